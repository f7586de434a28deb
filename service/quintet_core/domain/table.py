"""Tables, their settings, and their rows."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class TtlChange(enum.IntEnum):
    """What a put does to the row's time to live. As quintet.v1.TtlChange."""

    KEEP = 0
    SET = 1
    CLEAR = 2


@dataclass(frozen=True, slots=True)
class TableSettings:
    """`None` is no limit. `events_carry_values`: the events of puts hold the value too."""

    rows_max: int | None = None
    value_bytes_max: int | None = None
    events_carry_values: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it stands. `rows` may count rows whose time is over and that are not removed yet."""

    namespace: str
    name: str
    settings: TableSettings
    rows: int
    created_at_ms: int
    partition: int


@dataclass(slots=True)
class Row:
    """A row as it stands. `version` is the offset of the event that wrote it; `expires_at_ms` 0: until deleted."""

    key: bytes
    value: bytes
    version: int
    expires_at_ms: int


@dataclass(slots=True)
class RowPut:
    """A row as a caller puts it. `ttl_ms` counts with SET. `expected_version` None: whatever there is; 0: no row."""

    key: bytes
    value: bytes
    ttl_change: TtlChange = TtlChange.KEEP
    ttl_ms: int = 0
    expected_version: int | None = None


@dataclass(slots=True)
class RowDelete:
    """A row that is to go, among several writes. `expected_version` as in RowPut."""

    key: bytes
    expected_version: int | None = None


@dataclass(slots=True)
class RowStored:
    """What a put made. `created`: there was no such row."""

    version: int
    created: bool
    expires_at_ms: int


@dataclass(slots=True)
class RowPage:
    """Rows in the byte order of their keys, and the key behind which the next page begins; None at the end."""

    rows: list[Row]
    cursor: bytes | None
