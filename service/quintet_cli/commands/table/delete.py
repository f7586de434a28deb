"""`quintet table delete`."""

from __future__ import annotations

import click
from quintet_client import Client

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output


@click.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
async def delete(client: Client, output: Output, table: str, yes: bool) -> None:
    """Delete TABLE with all its rows. They do not come back."""
    if not yes:
        rows = (await client.get_table(table)).rows
        click.confirm(f"Delete the table {table} and its {rows} rows?", abort=True, err=True)
    rows = await client.delete_table(table)
    output.say(f"table {table} deleted, and its {rows} rows", {"table": table, "deleted_rows": rows})
