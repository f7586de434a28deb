"""`quintet table put`."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, BinaryIO

import click
from quintet_client import Client, TimeToLive

from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.output import Output, bytes_record
from quintet_cli.commands.table.arguments import row_key, takes_expected_version, takes_key


def _read(
    key: str, key_base64: bool, value: str | None, source: BinaryIO | None, ttl: int | None, clear_ttl: bool
) -> dict[str, Any]:
    """Before there is a connection: what is wrong with the command line, and a value that somebody may be typing."""
    given = value is not None and value != "-"
    if given and source is not None:
        raise click.UsageError("give a value or --file, not both")
    if ttl is not None and clear_ttl:
        raise click.UsageError("give --ttl or --clear-ttl, not both")
    read = row_key(key, key_base64)
    return read | {"value": os.fsencode(value or "") if given else (source or sys.stdin.buffer).read()}


@click.command()
@click.argument("table")
@takes_key
@click.argument("value", required=False)
@click.option("--file", "source", type=click.File("rb"), help="Read the value from a file (-: standard input).")
@click.option("--ttl", type=Duration(), help="How long the row lives.  [default: as long as it did]")
@click.option("--clear-ttl", is_flag=True, help="The row lives until deleted.")
@takes_expected_version
@click.option("--create/--no-create", default=True, show_default=True, help="Make the table when it is missing.")
@connected(prepare=_read)
async def put(
    client: Client,
    output: Output,
    table: str,
    key: bytes,
    key_base64: bool,
    value: bytes,
    source: BinaryIO | None,
    ttl: int | None,
    clear_ttl: bool,
    expected_version: int | None,
    create: bool,
) -> None:
    """Put a row into TABLE under KEY, and print its version once it is on disk.

    VALUE is taken as it stands; "-" (or nothing) reads standard input. Exit code 3: the row is not of the version
    expected, there is no such table, or the table is full.
    """
    lives = TimeToLive.CLEAR if clear_ttl else TimeToLive.KEEP
    written = await client.put_row(
        table,
        key,
        value,
        ttl_ms=lives if ttl is None else ttl,
        expected_version=expected_version,
        create_if_missing=create,
    )
    output.say(str(written.version), {"table": table} | bytes_record("key", key) | dataclasses.asdict(written))
