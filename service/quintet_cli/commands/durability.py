"""`quintet durability`."""

from __future__ import annotations

import dataclasses

import click
from quintet_client import Client, Durability

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, instant


@click.command()
@connected
async def durability(client: Client, output: Output) -> int:
    """Say whether a reply means that a change is on disk. Exit code 1: it does not."""
    found = await client.durability()
    if output.json:
        output.record(dataclasses.asdict(found))
    else:
        output.table(("what", "found"), _rows(found))
    return exit_codes.DONE if found.durable else exit_codes.NOTHING_THERE


def _rows(found: Durability) -> list[tuple[str, str]]:
    return [
        ("durable", "yes" if found.durable else "NO"),
        ("weak durability allowed", "yes" if found.weak_allowed else "no"),
        ("weaknesses", "\n".join(found.weaknesses) or "none"),
        ("append-only file", "on" if found.append_only else "OFF"),
        ("fsync", found.append_fsync),
        ("eviction", found.eviction_policy),
        ("last write of the file", found.append_only_last_write_status),
        ("checked", instant(found.checked_at_ms)),
    ]
