"""`quintet`: run everything (`quintet up`), and look at and change what is in it."""

from __future__ import annotations

import quintet_kit.early  # noqa: F401 - before everything else

# isort: split

import click

from quintet_cli.commands import MODULES
from quintet_cli.commands.in_order import InOrder


@click.group(cls=InOrder, modules={"up": "quintet_cli.up.command", **MODULES})
@click.version_option(package_name="quintet")
def main() -> None:
    """Quintet: a durable job queue behind existing wire protocols."""


if __name__ == "__main__":
    main()
