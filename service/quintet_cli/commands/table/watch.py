"""`quintet table watch`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import click
from quintet_client import Client, RowChange

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, bytes_record, instant, shown
from quintet_cli.commands.table.arguments import row_key

_START = re.compile(r"(\d+)[:/](\d+)")


def _read(prefix: str, key_base64: bool, after: tuple[str, ...]) -> dict[str, Any]:
    starts = [_START.fullmatch(start) for start in after]
    if None in starts:
        raise click.UsageError("--after: must be PARTITION/OFFSET, such as 3/120")
    offsets = {int(start[1]): int(start[2]) for start in starts if start is not None}
    return {"prefix": row_key(prefix, key_base64)["key"], "after": offsets}


@click.command()
@click.argument("tables", nargs=-1)
@click.option("--prefix", default="", help="Only rows whose key starts with this.")
@click.option("--key-base64", is_flag=True, help="The prefix is in base64.")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=0, help="End after so many.  [default: never]")
@click.option(
    "--after",
    multiple=True,
    metavar="PARTITION/OFFSET",
    help="Begin behind this, in its partition; may be given many times.  [default: with what comes next]",
)
@connected(prepare=_read)
async def watch(
    client: Client,
    output: Output,
    tables: tuple[str, ...],
    prefix: bytes,
    key_base64: bool,
    limit: int,
    after: dict[int, int],
) -> None:
    """Show the changes of TABLES (none named: of all) as they happen, until Ctrl+C.

    Each change is shown once, in commit order within its partition, through restarts of the core. Exit code 3: the log
    no longer holds what follows --after.
    """
    seen = 0
    async with client.watch(*tables, key_prefix=prefix, after_offsets=after) as watching:
        if not output.json:
            click.echo("watching", err=True)
        async for change in watching:
            output.say(_sentence(change), _record(change))
            seen += 1
            if seen == limit:
                return


def _record(change: RowChange) -> dict[str, Any]:
    record: dict[str, Any] = dataclasses.asdict(change)
    key, value = record.pop("key"), record.pop("value")
    return record | bytes_record("key", key) | ({} if value is None else bytes_record("value", value))


def _sentence(change: RowChange) -> str:
    told = [f"{instant(change.at_ms)} {change.partition}/{change.offset} {change.kind} table={change.table}"]
    if change.kind.startswith("row_"):
        told.append(f"key={shown(change.key)}")
    if change.value is not None:
        told.append(f"value={shown(change.value)}")
    if change.expires_at_ms:
        told.append(f"expires={instant(change.expires_at_ms)}")
    if change.detail:
        told.append(f"({change.detail})")
    return " ".join(told)
