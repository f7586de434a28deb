"""`quintet`: run everything (`quintet up`), and look at and change what is in it."""

from __future__ import annotations

import quintet_kit.early  # noqa: F401 - before everything else

# isort: split

import click

from quintet_cli.commands import ALL
from quintet_cli.commands.in_order import InOrder
from quintet_cli.up.command import up


@click.group(cls=InOrder)
@click.version_option(package_name="quintet")
def main() -> None:
    """Quintet: a durable job queue behind existing wire protocols."""


for _command in (up, *ALL):
    main.add_command(_command)

if __name__ == "__main__":
    main()
