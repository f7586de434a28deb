"""The event log played back: what it says about tables and rows, checked event by event for sense."""

from __future__ import annotations

from dataclasses import dataclass, field

from quintet_core.domain.event import Event, EventKind

WITH_ITS_TABLE = "table deleted"


@dataclass(frozen=True)
class ReplayedRow:
    """A row as its last put told it. `value` None: the event did not carry it."""

    version: int
    expires_at_ms: int
    value_bytes: int
    value: bytes | None


@dataclass
class TableReplay:
    """Tables of one partition as its log tells them; what it says about queues is passed over.

    Offsets need not be without gaps: a watch tells some of them only.
    """

    tables: dict[str, dict[bytes, ReplayedRow]] = field(default_factory=dict)
    dropping: dict[str, set[bytes]] = field(default_factory=dict)
    """Rows of deleted tables that have not gone yet, by the name of the table."""
    last_offset: int = 0
    last_at_ms: int = 0

    def play(self, event: Event) -> None:
        """Follow one event. Raises AssertionError when it does not follow from those before."""
        assert event.offset > self.last_offset, f"{event} after offset {self.last_offset}"
        assert event.at_ms >= self.last_at_ms, f"{event} before {self.last_at_ms}"
        self.last_offset, self.last_at_ms = event.offset, event.at_ms
        match event.kind:
            case EventKind.ROW_PUT:
                self._put(event)
            case EventKind.ROW_DELETED if event.detail == WITH_ITS_TABLE:
                self.dropping[event.table].remove(event.key)
            case EventKind.ROW_DELETED | EventKind.ROW_EXPIRED:
                self._gone(event)
            case EventKind.TABLE_CREATED:
                assert event.table not in self.tables, event
                assert not self.dropping.pop(event.table, None), f"{event}: rows of an earlier one are left"
                self.tables[event.table] = {}
            case EventKind.TABLE_UPDATED:
                assert event.table in self.tables, event
            case EventKind.TABLE_DELETED:
                left = set(self.tables.pop(event.table))
                assert event.detail == str(len(left)), f"{event}: it has {len(left)} rows"
                self.dropping.setdefault(event.table, set()).update(left)
            case _:
                assert not event.table, event

    @property
    def is_changing(self) -> bool:
        """Whether something is to happen by itself: a row has a time to live, or is to go with its table."""
        rows = (row for table in self.tables.values() for row in table.values())
        return any(self.dropping.values()) or any(row.expires_at_ms for row in rows)

    def _put(self, event: Event) -> None:
        rows = self.tables[event.table]
        old = rows.get(event.key)
        assert old is None or not 0 < old.expires_at_ms <= event.at_ms, f"{event} over {old}, which has expired"
        assert event.value is None or len(event.value) == event.payload_bytes, event
        rows[event.key] = ReplayedRow(event.offset, event.expires_at_ms, event.payload_bytes, event.value)

    def _gone(self, event: Event) -> None:
        row = self.tables[event.table].pop(event.key)
        is_over = 0 < row.expires_at_ms <= event.at_ms
        assert is_over == (event.kind == EventKind.ROW_EXPIRED), f"{event} of {row}"
        assert event.payload_bytes == row.value_bytes, f"{event} of {row}"
