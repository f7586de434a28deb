"""Tables and rows as commands show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from quintet_client import Row, Table

from quintet_cli.commands.output import Output, bytes_record, instant, shown

TABLE_HEADINGS = ("table", "rows", "rows max", "value bytes max", "events carry values", "partition", "created")
ROW_HEADINGS = ("key", "version", "expires", "bytes", "value")


def show_tables(output: Output, tables: Sequence[Table]) -> None:
    """Tables, in the order given."""
    if output.json:
        for table in tables:
            output.record(dataclasses.asdict(table))
    elif tables:
        output.table(TABLE_HEADINGS, (_table_cells(table) for table in tables))
    else:
        output.say("no tables", {})


def show_rows(output: Output, rows: Sequence[Row], *, values: bool = True) -> None:
    """Rows, in the order given."""
    if output.json:
        for row in rows:
            output.record(row_record(row, values=values))
    else:
        headings = ROW_HEADINGS if values else ROW_HEADINGS[:3]
        output.table(headings, (_row_cells(row)[: len(headings)] for row in rows))


def row_record(row: Row, *, values: bool = True) -> dict[str, Any]:
    """A row as a JSON object: `key` and `value` where they are UTF-8, else `key_base64` and `value_base64`."""
    value = bytes_record("value", row.value) if values else {}
    return bytes_record("key", row.key) | value | {"version": row.version, "expires_at_ms": row.expires_at_ms}


def _table_cells(table: Table) -> tuple[object, ...]:
    settings = table.settings
    return (
        table.name,
        table.rows,
        "" if settings.rows_max is None else settings.rows_max,
        "" if settings.value_bytes_max is None else settings.value_bytes_max,
        "yes" if settings.events_carry_values else "no",
        table.partition,
        instant(table.created_at_ms),
    )


def _row_cells(row: Row) -> tuple[object, ...]:
    return shown(row.key), row.version, instant(row.expires_at_ms), len(row.value), shown(row.value)
