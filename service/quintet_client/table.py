"""Tables and rows as a caller sees them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quintet.v1 import table_pb2
from quintet.v1 import table_service_pb2 as wire


class TimeToLive(StrEnum):
    """What a put that sets no time to live does to the one that runs."""

    KEEP = "keep"
    """A row that exists keeps its deadline; a new one lives until deleted."""
    CLEAR = "clear"
    """The row lives until deleted."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table. None: no limit.

    With `events_carry_values` the events of puts carry the value, so that watches bring it; it costs its bytes once
    more, in the log.
    """

    rows_max: int | None = None
    value_bytes_max: int | None = None
    events_carry_values: bool = False

    def to_wire(self) -> table_pb2.TableSettings:
        """The API's message."""
        return table_pb2.TableSettings(
            rows_max=self.rows_max,
            value_bytes_max=self.value_bytes_max,
            events_carry_values=self.events_carry_values,
        )

    @classmethod
    def of_wire(cls, settings: table_pb2.TableSettings) -> TableSettings:
        """The settings of the API's message."""
        return cls(
            rows_max=settings.rows_max if settings.HasField("rows_max") else None,
            value_bytes_max=settings.value_bytes_max if settings.HasField("value_bytes_max") else None,
            events_carry_values=settings.events_carry_values,
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it stood when the core answered. `rows` may count expired ones that are not removed yet."""

    namespace: str
    name: str
    settings: TableSettings
    rows: int
    created_at_ms: int
    partition: int

    @classmethod
    def of_wire(cls, table: table_pb2.Table) -> Table:
        """The table of the API's message."""
        return cls(
            namespace=table.namespace,
            name=table.name,
            settings=TableSettings.of_wire(table.settings),
            rows=table.rows,
            created_at_ms=table.created_at_ms,
            partition=table.partition,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `version` grows with every write; `expires_at_ms` 0: it lives until deleted."""

    key: bytes
    value: bytes
    version: int
    expires_at_ms: int

    @classmethod
    def of_wire(cls, row: table_pb2.Row) -> Row:
        """The row of the API's message."""
        return cls(row.key, row.value, row.version, row.expires_at_ms)


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """What a put made of a row. `created`: there was none before."""

    version: int
    created: bool
    expires_at_ms: int

    @classmethod
    def of_wire(cls, response: wire.PutRowResponse) -> WrittenRow:
        """The outcome in the API's message."""
        return cls(response.version, response.created, response.expires_at_ms)


@dataclass(frozen=True, slots=True)
class RowPut:
    """A put among several writes; the arguments are those of `put_row`."""

    key: bytes
    value: bytes
    ttl_ms: int | TimeToLive = TimeToLive.KEEP
    expected_version: int | None = None

    def to_wire(self) -> wire.RowWrite:
        """The API's message."""
        change, ttl_ms = ttl_to_wire(self.ttl_ms)
        put = wire.RowPut(
            key=self.key, value=self.value, ttl_change=change, ttl_ms=ttl_ms, expected_version=self.expected_version
        )
        return wire.RowWrite(put=put)


@dataclass(frozen=True, slots=True)
class RowDelete:
    """A delete among several writes. A row that is not there is no fault, unless a version is expected."""

    key: bytes
    expected_version: int | None = None

    def to_wire(self) -> wire.RowWrite:
        """The API's message."""
        return wire.RowWrite(delete=wire.RowDelete(key=self.key, expected_version=self.expected_version))


RowWrite = RowPut | RowDelete


def ttl_to_wire(ttl_ms: int | TimeToLive) -> tuple[wire.TtlChange.ValueType, int]:
    """The API's change, and its milliseconds where it sets a time to live."""
    if isinstance(ttl_ms, TimeToLive):
        return wire.TtlChange.Value(f"TTL_CHANGE_{ttl_ms.name}"), 0
    return wire.TTL_CHANGE_SET, ttl_ms
