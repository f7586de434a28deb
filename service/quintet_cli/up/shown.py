"""What `quintet up` tells once everything is ready: a table for people, one JSON line for programs."""

from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.table import Table

from quintet_cli.up.everything import Everything
from quintet_cli.up.parts import METRICS


def as_json(everything: Everything) -> str:
    """One line: `{"event":"up","data":...,"parts":{name:{"pid":...,"listening":{name:address}}}}`."""
    return msgspec.json.encode(
        {
            "event": "up",
            "data": str(everything.directory.path),
            "parts": {child.name: {"pid": child.pid, "listening": child.listening} for child in everything.children},
        }
    ).decode()


def show_table(everything: Everything, console: Console) -> None:
    """The table, and how to try it."""
    table = Table(title="Quintet is ready", title_justify="left")
    for heading in ("name", "address", "metrics, health", "speaks"):
        table.add_column(heading, overflow="fold")
    for row in _rows(everything):
        table.add_row(*row)
    console.print(table)
    text_queue = next((child.listening.get("text-queue") for child in everything.adapters if child.listening), None)
    if text_queue:
        host, _, port = text_queue.rpartition(":")
        console.print(f"Try it:  printf 'ADD greetings 5 hello' | nc {host} {port}", highlight=False, soft_wrap=True)
        console.print(f"    and  printf 'GET greetings' | nc {host} {port}", highlight=False, soft_wrap=True)
    console.print("Ctrl+C stops everything; what was acknowledged stays.", highlight=False)


def _rows(everything: Everything) -> Iterator[tuple[str, str, str, str]]:
    for part, child in zip(everything.parts, (everything.core, *everything.adapters), strict=True):
        metrics = child.listening.get(METRICS, "")
        speaks = {listener.name: listener.speaks for listener in part.listeners}
        for name, address in child.listening.items():
            if name != METRICS:
                yield name, address, metrics, speaks.get(name, "gRPC, on this machine only")
    yield "redis", everything.redis.listening.get("redis", ""), "", f"append-only file in {everything.directory.path}"
