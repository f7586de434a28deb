"""`quintet queues`."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from quintet_client import Client, Queue

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, instant

HEADINGS = ("queue", "ready", "delayed", "leased", "dead", "paused", "partition", "created")


@click.command()
@click.argument("prefix", default="")
@connected
async def queues(client: Client, output: Output, prefix: str) -> int:
    """List queues, all or those whose name starts with PREFIX, with their counts."""
    found = [queue async for queue in client.list_queues(prefix=prefix)]
    show(output, found)
    return exit_codes.DONE


def show(output: Output, found: list[Queue]) -> None:
    """Queues, as a table or as JSON."""
    if output.json:
        for queue in found:
            output.record(record(queue))
    elif found:
        output.table(HEADINGS, (_row(queue) for queue in found))
    else:
        output.say("no queues", {})


def record(queue: Queue) -> dict[str, Any]:
    """A queue as a JSON object."""
    return dataclasses.asdict(queue)


def _row(queue: Queue) -> tuple[object, ...]:
    counts = queue.counts
    return (
        queue.name,
        counts.ready,
        counts.delayed,
        counts.leased,
        counts.dead,
        paused(queue),
        queue.partition,
        instant(queue.created_at_ms),
    )


def paused(queue: Queue) -> str:
    """What is paused, and until when."""
    if queue.paused is None:
        return ""
    until = f" until {instant(queue.paused_until_ms)}" if queue.paused_until_ms else ""
    return f"{queue.paused}{until}"
