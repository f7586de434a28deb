"""The verbs of tables and rows as methods: arguments packed, answers parsed. As RedisStore is for queues and jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quintet_core.domain.errors import Refusal
from quintet_core.domain.outcomes import Done
from quintet_core.domain.table import Row, RowDelete, RowPage, RowPut, RowStored, Table, TableSettings
from quintet_core.storage import table_records as records
from quintet_core.storage.asking import Asking, home, parsed
from quintet_core.storage.keys import name_key
from quintet_core.storage.link import Reply
from quintet_core.storage.packing import Argument, bulk
from quintet_core.storage.pipeline import Operation, Ordered, Pipeline

_T = TypeVar("_T")
_PACKED_SETTINGS = records.pack_settings(TableSettings())
_DEFAULT_SETTINGS, _NO_SETTINGS = bulk(_PACKED_SETTINGS), bulk(b"")
_VERSION_BYTES = 8


class TableStore(Asking):
    """All operations of tables and rows. `on_leftovers(partition)` is told where a table was deleted that had rows."""

    def __init__(
        self, pipeline: Pipeline, partitions: int, on_leftovers: Callable[[int], None] = lambda _: None
    ) -> None:
        super().__init__(pipeline, partitions)
        self._on_leftovers = on_leftovers

    # --- rows

    def put_row(
        self,
        namespace: str,
        table: str,
        put: RowPut,
        create_if_missing: bool,
        done: Done[RowStored],
        order: Ordered | None = None,
    ) -> None:
        """Insert or replace a row. Refusals: TABLE_NOT_FOUND, VERSION_MISMATCH and the table's limits."""
        key, partition = home(namespace, table, self.partitions)
        settings = _DEFAULT_SETTINGS if create_if_missing else _NO_SETTINGS

        def on_answer(answer: Reply) -> None:
            if answer.__class__ is int:
                done(RowStored(-answer, True, 0) if answer < 0 else RowStored(answer, False, 0))
            else:
                done(parsed(records.unpack_stored, answer))

        self.pipeline.submit(Operation(partition, records.pack_put_row(key, settings, put), on_answer, order))

    def get_row(self, namespace: str, table: str, key: bytes, done: Done[Row], order: Ordered | None = None) -> None:
        """A row as it stands. Refusals: TABLE_NOT_FOUND, ROW_NOT_FOUND."""
        name, partition = home(namespace, table, self.partitions)

        def on_answer(answer: Reply) -> None:
            if answer.__class__ is bytes and len(answer) >= records.ROW_HEAD_BYTES:
                done(records.unpack_row(key, answer))
            else:
                done(parsed(lambda raw: records.unpack_row(key, raw), answer))

        self.pipeline.submit(Operation(partition, records.pack_get_row(name, key), on_answer, order))

    def delete_row(
        self,
        namespace: str,
        table: str,
        key: bytes,
        expected_version: int | None,
        done: Done[Row],
        order: Ordered | None = None,
    ) -> None:
        """Remove a row, and tell it as it was. Refusals: TABLE_NOT_FOUND, ROW_NOT_FOUND, VERSION_MISMATCH."""
        name, partition = home(namespace, table, self.partitions)

        def on_answer(answer: Reply) -> None:
            done(parsed(lambda raw: records.unpack_row(key, raw), answer))

        packed = records.pack_delete_row(name, key, expected_version)
        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    def scan_rows(
        self,
        namespace: str,
        table: str,
        prefix: bytes,
        limit: int,
        after: bytes | None,
        keys_only: bool,
        done: Done[RowPage],
        order: Ordered | None = None,
    ) -> None:
        """Rows whose keys begin with a prefix, behind the key `after`; without their values when keys_only. Refusal:
        TABLE_NOT_FOUND."""
        low, high = records.scan_bounds(prefix, after)
        rest: tuple[Argument, ...] = (low, high, limit, b"1" if keys_only else b"0")
        self._of_name("scan_rows", namespace, table, rest, lambda answer, _: _page(answer), done, order)

    def write_rows(
        self,
        namespace: str,
        table: str,
        writes: Sequence[RowPut | RowDelete],
        create_if_missing: bool,
        done: Done[list[int]],
        order: Ordered | None = None,
    ) -> None:
        """All of the writes or none; no key twice. The version of each; 0 where there was nothing to delete. Refusals
        as put_row, with the `index` of the write that broke the rule."""
        rest: list[Argument] = [_PACKED_SETTINGS if create_if_missing else b"", len(writes)]
        for write in writes:
            rest += records.pack_write(write)
        self._of_name("write_rows", namespace, table, tuple(rest), lambda answer, _: _versions(answer), done, order)

    # --- tables

    def create_table(
        self, namespace: str, table: str, settings: TableSettings, done: Done[Table], order: Ordered | None = None
    ) -> None:
        """Rows that an earlier table of this name left go first. Refusal: TABLE_EXISTS."""
        rest = (records.pack_settings(settings),)
        self._of_name("create_table", namespace, table, rest, records.unpack_table, done, order)

    def update_table(
        self, namespace: str, table: str, settings: TableSettings, done: Done[Table], order: Ordered | None = None
    ) -> None:
        """Replace all settings. Refusal: TABLE_NOT_FOUND."""
        rest = (records.pack_settings(settings),)
        self._of_name("update_table", namespace, table, rest, records.unpack_table, done, order)

    def get_table(self, namespace: str, table: str, done: Done[Table], order: Ordered | None = None) -> None:
        """Refusal: TABLE_NOT_FOUND."""
        self._of_name("get_table", namespace, table, (), records.unpack_table, done, order)

    def delete_table(self, namespace: str, table: str, done: Done[int], order: Ordered | None = None) -> None:
        """Gone at once for readers; answers the number of rows in it. Refusal: TABLE_NOT_FOUND."""
        partition = home(namespace, table, self.partitions).partition

        def on_deleted(rows: int | Refusal) -> None:
            if rows and not isinstance(rows, Refusal):
                self._on_leftovers(partition)
            done(rows)

        self._of_name("delete_table", namespace, table, (), lambda answer, _: int(answer), on_deleted, order)

    async def list_tables(
        self, partition: int, namespace: str, prefix: str, after: str | None, limit: int
    ) -> list[Table] | Refusal:
        """Tables of one partition in the order of their names, behind `after`."""
        low = name_key(namespace, prefix)
        behind = name_key(namespace, after) if after is not None else b""
        answer = await self.ask(partition, "list_tables", low, low + b"\xff", behind, limit)
        return parsed(lambda told: [records.unpack_table(described, partition) for described in told], answer)


def _page(answer: Reply) -> RowPage:
    rows = [records.unpack_row(answer[at], answer[at + 1]) for at in range(1, len(answer), 2)]
    return RowPage(rows, rows[-1].key if answer[0] else None)


def _versions(answer: bytes) -> list[int]:
    return [int.from_bytes(answer[at : at + _VERSION_BYTES], "big") for at in range(0, len(answer), _VERSION_BYTES)]
