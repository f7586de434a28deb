"""`quintet table get` and `quintet table del`."""

from __future__ import annotations

import sys

import click
from quintet_client import Client, Row, RowNotFoundError

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output
from quintet_cli.commands.table.arguments import row_key, takes_expected_version, takes_key
from quintet_cli.commands.table.shown import show_rows

_RAW = click.option("--raw", is_flag=True, help="Write the value and nothing else, not even a newline.")


@click.command()
@click.argument("table")
@takes_key
@_RAW
@connected(prepare=row_key)
async def get(client: Client, output: Output, table: str, key: bytes, key_base64: bool, raw: bool) -> int:
    """Show the row of TABLE under KEY. Exit code 1: there is none."""
    try:
        row = await client.get_row(table, key)
    except RowNotFoundError:
        return _nothing(output, raw)
    return _show(output, row, raw)


@click.command("del")
@click.argument("table")
@takes_key
@takes_expected_version
@_RAW
@connected(prepare=row_key)
async def delete_row(
    client: Client,
    output: Output,
    table: str,
    key: bytes,
    key_base64: bool,
    expected_version: int | None,
    raw: bool,
) -> int:
    """Delete the row of TABLE under KEY and show what it was. Exit code 1: there is none."""
    try:
        row = await client.delete_row(table, key, expected_version=expected_version)
    except RowNotFoundError:
        return _nothing(output, raw)
    return _show(output, row, raw)


def _show(output: Output, row: Row, raw: bool) -> int:
    if raw:
        sys.stdout.buffer.write(row.value)
        sys.stdout.buffer.flush()
    else:
        show_rows(output, [row])
    return exit_codes.DONE


def _nothing(output: Output, raw: bool) -> int:
    if not output.json and not raw:
        click.echo("no such row", err=True)
    return exit_codes.NOTHING_THERE
