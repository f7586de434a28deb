"""`quintet table create` and `quintet table update`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click
from quintet_client import Client, TableSettings

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output
from quintet_cli.commands.table.shown import show_tables


class Limit(click.ParamType[int]):
    """Converts to a whole number from 0 on, "none" to `NO_LIMIT`."""

    name = "limit"
    NO_LIMIT = -1

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of `value`; a click usage error when it is neither that nor "none"."""
        text = str(value).strip()
        if text == "none":
            return self.NO_LIMIT
        if not text.isdecimal():
            self.fail(f"{value!r} is neither a whole number nor none", param, ctx)
        return int(text)


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option("--rows-max", type=Limit(), help="How many rows it may hold; none: any number."),
    click.option("--value-bytes-max", type=Limit(), help="How long a value may be; none: as the core allows."),
    click.option(
        "--events-carry-values/--no-events-carry-values",
        default=None,
        help="Whether the events of puts hold the value, so that watches bring it.",
    ),
)


def _takes_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("table")
@_takes_settings
@connected
async def create(client: Client, output: Output, table: str, **given: int | bool | None) -> None:
    """Make TABLE. Exit code 3: there is one."""
    show_tables(output, [await client.create_table(table, _changed(TableSettings(), given))])


@click.command()
@click.argument("table")
@_takes_settings
@connected
async def update(client: Client, output: Output, table: str, **given: int | bool | None) -> None:
    """Change those settings of TABLE that are given."""
    settings = (await client.get_table(table)).settings
    show_tables(output, [await client.update_table(table, _changed(settings, given))])


def _changed(settings: TableSettings, given: dict[str, int | bool | None]) -> TableSettings:
    changes = {name: None if value == Limit.NO_LIMIT else value for name, value in given.items() if value is not None}
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]
