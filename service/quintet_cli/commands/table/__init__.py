"""`quintet table`: tables and their rows."""

import click

from quintet_cli.commands.in_order import InOrder
from quintet_cli.commands.table.delete import delete
from quintet_cli.commands.table.get import delete_row, get
from quintet_cli.commands.table.listing import list_tables, show
from quintet_cli.commands.table.put import put
from quintet_cli.commands.table.scan import scan
from quintet_cli.commands.table.settings import create, update
from quintet_cli.commands.table.watch import watch
from quintet_cli.commands.table.write import write


@click.group(cls=InOrder)
def table() -> None:
    """Look at and change tables and their rows.

    Keys and values are bytes. A KEY is taken as it stands, with --key-base64 decoded first.
    """


for _command in (create, list_tables, show, update, delete, put, get, delete_row, scan, write, watch):
    table.add_command(_command)
