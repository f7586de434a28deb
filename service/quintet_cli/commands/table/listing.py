"""`quintet table list` and `quintet table show`."""

from __future__ import annotations

import click
from quintet_client import Client

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output
from quintet_cli.commands.table.shown import show_tables


@click.command("list")
@click.argument("prefix", default="")
@connected
async def list_tables(client: Client, output: Output, prefix: str) -> None:
    """List tables, all or those whose name starts with PREFIX."""
    show_tables(output, [table async for table in client.list_tables(prefix=prefix)])


@click.command()
@click.argument("table")
@connected
async def show(client: Client, output: Output, table: str) -> None:
    """Show the settings of TABLE and how many rows it has."""
    show_tables(output, [await client.get_table(table)])
