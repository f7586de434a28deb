"""The verbs of tables with the arguments that tests rarely care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quintet_core.domain.event import Event
from quintet_core.domain.table import Row, RowDelete, RowPage, RowPut, RowStored, Table, TableSettings, TtlChange

from tests.support.store import Clock, OpenStore

NAMESPACE = "n"
TABLE = "t"


class Tables:
    """One partition's worth of tables."""

    def __init__(self, opened: OpenStore, clock: Clock) -> None:
        self.opened = opened
        self.store = opened.tables
        self.clock = clock
        self.partition = self.store.partition_of(NAMESPACE, TABLE)

    def siblings(self, count: int) -> list[str]:
        """Names of tables that share the partition of "t", it first."""
        found, number = [TABLE], 0
        while len(found) < count:
            number += 1
            if self.store.partition_of(NAMESPACE, f"{TABLE}{number}") == self.partition:
                found.append(f"{TABLE}{number}")
        return found

    async def create(self, table: str = TABLE, **settings: Any) -> Any:
        """A table with settings."""
        return await self.opened.do(self.store.create_table, NAMESPACE, table, TableSettings(**settings))

    async def update(self, table: str = TABLE, **settings: Any) -> Any:
        """Other settings."""
        return await self.opened.do(self.store.update_table, NAMESPACE, table, TableSettings(**settings))

    async def get_table(self, table: str = TABLE) -> Any:
        """As it stands."""
        return await self.opened.do(self.store.get_table, NAMESPACE, table)

    async def rows_in(self, table: str = TABLE) -> int:
        """Rows of a table that must be there."""
        told = await self.get_table(table)
        assert isinstance(told, Table), told
        return told.rows

    async def drop(self, table: str = TABLE) -> Any:
        """Delete a table."""
        return await self.opened.do(self.store.delete_table, NAMESPACE, table)

    async def try_put(
        self,
        key: bytes,
        value: bytes = b"v",
        *,
        table: str = TABLE,
        ttl_ms: int | None = None,
        clear: bool = False,
        expected: int | None = None,
        create: bool = False,
    ) -> Any:
        """Put a row: the answer as it is."""
        change = TtlChange.SET if ttl_ms else TtlChange.CLEAR if clear else TtlChange.KEEP
        put = RowPut(key, value, change, ttl_ms or 0, expected)
        return await self.opened.do(self.store.put_row, NAMESPACE, table, put, create)

    async def put(self, key: bytes, value: bytes = b"v", **terms: Any) -> RowStored:
        """Put a row, and its table when there is none."""
        answer = await self.try_put(key, value, **{"create": True, **terms})
        assert isinstance(answer, RowStored), answer
        return answer

    async def get(self, key: bytes, table: str = TABLE) -> Any:
        """A row: the answer as it is."""
        return await self.opened.do(self.store.get_row, NAMESPACE, table, key)

    async def row(self, key: bytes, table: str = TABLE) -> Row:
        """A row that must be there."""
        answer = await self.get(key, table)
        assert isinstance(answer, Row), answer
        return answer

    async def delete(self, key: bytes, expected: int | None = None, table: str = TABLE) -> Any:
        """Delete a row: the answer as it is."""
        return await self.opened.do(self.store.delete_row, NAMESPACE, table, key, expected)

    async def write(self, *writes: RowPut | RowDelete, table: str = TABLE, create: bool = True) -> Any:
        """Several writes: the answer as it is."""
        return await self.opened.do(self.store.write_rows, NAMESPACE, table, writes, create)

    async def page(
        self,
        prefix: bytes = b"",
        limit: int = 100,
        after: bytes | None = None,
        keys_only: bool = False,
        table: str = TABLE,
    ) -> RowPage:
        """One page of a scan."""
        scan = self.store.scan_rows
        page = await self.opened.do(scan, NAMESPACE, table, prefix, limit, after, keys_only)
        assert isinstance(page, RowPage), page
        return page

    async def keys(self, prefix: bytes = b"", table: str = TABLE) -> list[bytes]:
        """The keys of a scan in one page."""
        return [row.key for row in (await self.page(prefix, 1000, table=table)).rows]

    async def events(self, after: int = 0) -> list[Event]:
        """The partition's log."""
        answer = await self.opened.store.read_events(self.partition, after, 100_000)
        assert isinstance(answer, tuple), answer
        return answer[0]

    async def sweep(self) -> None:
        """Until nothing is left to remove."""
        while await self.opened.store.sweep(self.partition):
            pass


def told(events: Sequence[Event]) -> list[tuple[int, str, bytes]]:
    """Kind, table and key of each."""
    return [(event.kind, event.table, event.key) for event in events]
