"""What tables must do, as plain Python, for comparison with the real ones.

A partition's tables in dictionaries; one method per verb, answering what the store answers, or the Reason of a refusal.
Time is `now`. Rows whose time is over stay in `rows` until the log tells that they went: when exactly that is, is no
promise. Every other event is foretold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from quintet_core.domain.errors import Reason
from quintet_core.domain.event import EventKind
from quintet_core.domain.table import RowDelete, RowPut, TableSettings, TtlChange

Told = tuple[int, str, bytes, int, int, bytes | None]
"""Of an event: kind, table, key, deadline, bytes of the value, the value if it is carried."""


@dataclass(eq=False)
class ModelRow:
    """A row. `version` is known once the store has answered."""

    value: bytes
    expires_at_ms: int
    version: int = 0


@dataclass(eq=False)
class ModelTable:
    """A table and its rows by key, those among them whose time is over and of which the log has not told."""

    name: str
    settings: TableSettings
    created_at_ms: int
    rows: dict[bytes, ModelRow] = field(default_factory=dict)


@dataclass(frozen=True)
class Put:
    """What a put made of a row."""

    row: ModelRow
    created: bool


class TableModel:
    """The tables of one partition."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.now = 0
        self.tables: dict[str, ModelTable] = {}
        self.dropping: dict[str, set[bytes]] = {}
        """Names of deleted tables, with the rows they may still hold."""
        self.events: Counter[Told] = Counter()
        """Since the last look, without those of rows that expired or went with their table."""

    def living(self, table: ModelTable) -> dict[bytes, ModelRow]:
        """What a reader sees."""
        return {key: row for key, row in table.rows.items() if not 0 < row.expires_at_ms <= self.now}

    def _emit(self, kind: EventKind, table: ModelTable, key: bytes = b"", row: ModelRow | None = None) -> None:
        if row is None:
            self.events[(int(kind), table.name, key, 0, 0, None)] += 1
            return
        is_put = kind is EventKind.ROW_PUT
        value = row.value if is_put and table.settings.events_carry_values else None
        self.events[(int(kind), table.name, key, row.expires_at_ms if is_put else 0, len(row.value), value)] += 1

    # --- tables

    def create(self, name: str, settings: TableSettings) -> ModelTable | Reason:
        """An empty table."""
        if name in self.tables:
            return Reason.TABLE_EXISTS
        self.dropping.pop(name, None)
        table = self.tables[name] = ModelTable(name, settings, self.now)
        self._emit(EventKind.TABLE_CREATED, table)
        return table

    def update(self, name: str, settings: TableSettings) -> ModelTable | Reason:
        """The table with other settings."""
        table = self.get(name)
        if isinstance(table, ModelTable):
            table.settings = settings
            self._emit(EventKind.TABLE_UPDATED, table)
        return table

    def get(self, name: str) -> ModelTable | Reason:
        """The table."""
        return self.tables.get(name, Reason.TABLE_NOT_FOUND)

    def delete(self, name: str) -> ModelTable | Reason:
        """The table as it was."""
        table = self.get(name)
        if isinstance(table, ModelTable):
            del self.tables[name]
            self.dropping[name] = set(table.rows)
            self._emit(EventKind.TABLE_DELETED, table)
        return table

    # --- rows

    def put(self, name: str, put: RowPut, create: bool) -> Put | Reason:
        """Insert or replace one row."""
        made = self.write(name, [put], create)
        if isinstance(made, Reason):
            return made
        [stored] = made
        assert isinstance(stored, Put)
        return stored

    def write(
        self, name: str, writes: Sequence[RowPut | RowDelete], create: bool
    ) -> list[Put | ModelRow | None] | Reason:
        """All of them or none: what became of each; of a delete, the row that went."""
        return self._write(name, writes, create)

    def _write(
        self, name: str, writes: Sequence[RowPut | RowDelete], create: bool
    ) -> list[Put | ModelRow | None] | Reason:
        table = self.tables.get(name)
        if table is None and not create:
            return Reason.TABLE_NOT_FOUND
        settings = table.settings if table else TableSettings()
        living = self.living(table) if table else {}
        for write in writes:
            reason = _forbidden(settings, living.get(write.key), write)
            if reason:
                return reason
        more = sum(
            (write.key not in living) if isinstance(write, RowPut) else -(write.key in living) for write in writes
        )
        if settings.rows_max is not None and more > 0 and len(living) + more > settings.rows_max:
            return Reason.TABLE_FULL
        if table is None:
            made = self.create(name, TableSettings())
            assert isinstance(made, ModelTable)
            table = made
        return [self._carry_out(table, living.get(write.key), write) for write in writes]

    def _carry_out(self, table: ModelTable, row: ModelRow | None, write: RowPut | RowDelete) -> Put | ModelRow | None:
        if isinstance(write, RowDelete):
            if row is not None:
                del table.rows[write.key]
                self._emit(EventKind.ROW_DELETED, table, write.key, row)
            return row
        kept = row.expires_at_ms if row is not None and write.ttl_change is TtlChange.KEEP else 0
        expires_at_ms = self.now + write.ttl_ms if write.ttl_change is TtlChange.SET else kept
        made = table.rows[write.key] = ModelRow(write.value, expires_at_ms)
        self._emit(EventKind.ROW_PUT, table, write.key, made)
        return Put(made, row is None)

    def row(self, name: str, key: bytes) -> ModelRow | Reason:
        """What a get finds."""
        table = self.tables.get(name)
        if table is None:
            return Reason.TABLE_NOT_FOUND
        return self.living(table).get(key, Reason.ROW_NOT_FOUND)

    def delete_row(self, name: str, key: bytes, expected_version: int | None) -> ModelRow | Reason:
        """The row as it was."""
        table = self.tables.get(name)
        if table is None:
            return Reason.TABLE_NOT_FOUND
        row = self.living(table).get(key)
        reason = _forbidden(table.settings, row, RowDelete(key, expected_version))
        if reason or row is None:
            return reason or Reason.ROW_NOT_FOUND
        self._carry_out(table, row, RowDelete(key))
        return row

    def scan(self, name: str, prefix: bytes) -> list[tuple[bytes, ModelRow]] | Reason:
        """All rows with a prefix, in the order of their keys."""
        table = self.tables.get(name)
        if table is None:
            return Reason.TABLE_NOT_FOUND
        return sorted(
            ((key, row) for key, row in self.living(table).items() if key.startswith(prefix)),
            key=lambda found: found[0],
        )


def _forbidden(settings: TableSettings, row: ModelRow | None, write: RowPut | RowDelete) -> Reason | None:
    version = row.version if row is not None else 0
    if write.expected_version is not None and write.expected_version != version:
        return Reason.VERSION_MISMATCH
    limit = settings.value_bytes_max
    if isinstance(write, RowPut) and limit is not None and len(write.value) > limit:
        return Reason.PAYLOAD_TOO_LARGE
    return None
