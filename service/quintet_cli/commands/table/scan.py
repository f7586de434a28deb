"""`quintet table scan`."""

from __future__ import annotations

from typing import Any

import click
from quintet_client import Client, Row

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output
from quintet_cli.commands.table.arguments import row_key
from quintet_cli.commands.table.shown import row_record, show_rows

_PAGE_ROWS_MAX = 1000


def _prefix(prefix: str, key_base64: bool) -> dict[str, Any]:
    return {"prefix": row_key(prefix, key_base64)["key"]}


@click.command()
@click.argument("table")
@click.argument("prefix", default="")
@click.option("--key-base64", is_flag=True, help="PREFIX is in base64.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="0: all of them.")
@click.option("--values/--no-values", default=True, help="Show the values as well.")
@connected(prepare=_prefix)
async def scan(
    client: Client, output: Output, table: str, prefix: bytes, key_base64: bool, limit: int, values: bool
) -> None:
    """List the rows of TABLE, all or those whose key starts with PREFIX, in the byte order of their keys."""
    listed: list[Row] = []
    seen = 0
    page_size = min(limit or _PAGE_ROWS_MAX, _PAGE_ROWS_MAX)
    async for row in client.scan_rows(table, key_prefix=prefix, keys_only=not values, page_size=page_size):
        # As they come: all rows of a large table need not fit into memory.
        output.record(row_record(row, values=values)) if output.json else listed.append(row)
        seen += 1
        if seen == limit:
            break
    if not output.json:
        show_rows(output, listed, values=values)
