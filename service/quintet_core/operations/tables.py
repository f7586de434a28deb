"""The verbs of tables and rows: the bounds, then one call of the store. Watches are in `watching`.

Arguments as in quintet.v1.table_service. `done` gets the outcome or a Refusal, exactly once and never before the
method returns; a broken rule raises CallerError instead and `done` is never called.
"""

from __future__ import annotations

from collections.abc import Sequence

from quintet_core.domain.errors import Refusal, broken, exceeded
from quintet_core.domain.limits import SEQUENCE_MAX, Limits, check_span
from quintet_core.domain.outcomes import Done
from quintet_core.domain.table import Row, RowDelete, RowPage, RowPut, RowStored, Table, TableSettings, TtlChange
from quintet_core.operations.listing import one_page
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.table_store import TableStore


class TableOperations:
    """Verbs in the callback style; list_tables, which asks every partition, is awaited."""

    def __init__(self, store: TableStore, limit: Limits) -> None:
        self.store = store
        self.limits = limit

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
        """Insert or replace a row."""
        self._check_table(namespace, table)
        self._check_put(put)
        self.store.put_row(namespace, table, put, create_if_missing, done, order)

    def get_row(self, namespace: str, table: str, key: bytes, done: Done[Row], order: Ordered | None = None) -> None:
        """A row as it stands."""
        self._check_table(namespace, table)
        self.limits.check_key(key)
        self.store.get_row(namespace, table, key, done, order)

    def delete_row(
        self,
        namespace: str,
        table: str,
        key: bytes,
        expected_version: int | None,
        done: Done[Row],
        order: Ordered | None = None,
    ) -> None:
        """Remove a row and tell it as it was."""
        self._check_table(namespace, table)
        self.limits.check_key(key)
        _check_version(expected_version)
        self.store.delete_row(namespace, table, key, expected_version, done, order)

    def scan_rows(
        self,
        namespace: str,
        table: str,
        key_prefix: bytes,
        page_size: int,
        after: bytes | None,
        keys_only: bool,
        done: Done[RowPage],
        order: Ordered | None = None,
    ) -> None:
        """One page of rows, behind the key `after`. `page_size` 0 is 100."""
        self._check_table(namespace, table)
        self.limits.check_key(key_prefix, "key_prefix")
        if after is not None and not (len(after) <= self.limits.key_bytes_max and after.startswith(key_prefix)):
            raise broken("page_token is of another scan", field="page_token")
        size = self.limits.page_size(page_size)
        self.store.scan_rows(namespace, table, key_prefix, size, after, keys_only, done, order)

    def write_rows(
        self,
        namespace: str,
        table: str,
        writes: Sequence[RowPut | RowDelete],
        create_if_missing: bool,
        done: Done[list[int]],
        order: Ordered | None = None,
    ) -> None:
        """All of the writes or none."""
        self._check_table(namespace, table)
        self._check_writes(writes)
        self.store.write_rows(namespace, table, writes, create_if_missing, done, order)

    def _check_table(self, namespace: str, table: str) -> None:
        self.limits.check_namespace(namespace)
        self.limits.check_name(table, "table")

    def _check_put(self, put: RowPut) -> None:
        self.limits.check_key(put.key)
        self.limits.check_payload(put.value)
        _check_version(put.expected_version)
        if put.ttl_change is TtlChange.SET:
            if not 1 <= put.ttl_ms <= self.limits.delay_ms_max:
                longest = self.limits.delay_ms_max
                raise broken(f"ttl_ms must be from 1 to {longest}, not {put.ttl_ms}", field="ttl_ms")
        elif put.ttl_ms:
            raise broken("ttl_ms is for TTL_CHANGE_SET", field="ttl_ms")

    def _check_writes(self, writes: Sequence[RowPut | RowDelete]) -> None:
        if not writes:
            raise broken("writes must not be empty", field="writes")
        if len(writes) > self.limits.batch_rows_max:
            raise exceeded("writes", self.limits.batch_rows_max, len(writes))
        size = 0
        for write in writes:
            if isinstance(write, RowPut):
                self._check_put(write)
                size += len(write.value)
            else:
                self.limits.check_key(write.key)
                _check_version(write.expected_version)
        if len(writes) > 1 and size > self.limits.batch_bytes_max:
            raise exceeded("value bytes of a batch", self.limits.batch_bytes_max, size)
        if len({write.key for write in writes}) < len(writes):
            raise broken("a key is written twice", field="writes")

    # --- tables

    def create_table(
        self, namespace: str, table: str, settings: TableSettings, done: Done[Table], order: Ordered | None = None
    ) -> None:
        """Make a table with settings."""
        self._check_table(namespace, table)
        _check_settings(settings)
        self.store.create_table(namespace, table, settings, done, order)

    def update_table(
        self, namespace: str, table: str, settings: TableSettings, done: Done[Table], order: Ordered | None = None
    ) -> None:
        """Replace a table's settings."""
        self._check_table(namespace, table)
        _check_settings(settings)
        self.store.update_table(namespace, table, settings, done, order)

    def get_table(self, namespace: str, table: str, done: Done[Table], order: Ordered | None = None) -> None:
        """A table as it stands."""
        self._check_table(namespace, table)
        self.store.get_table(namespace, table, done, order)

    def delete_table(self, namespace: str, table: str, done: Done[int], order: Ordered | None = None) -> None:
        """Remove a table and its rows; answers how many rows it held."""
        self._check_table(namespace, table)
        self.store.delete_table(namespace, table, done, order)

    async def list_tables(
        self, namespace: str, prefix: str, after: str | None, page_size: int
    ) -> tuple[list[Table], str | None] | Refusal:
        """One page of tables in the order of their names (by UTF-8 bytes), and the last name when there is more."""
        self.limits.check_namespace(namespace)
        self.limits.check_name(prefix, "prefix")
        size, store = self.limits.page_size(page_size), self.store
        return await one_page(
            store.partitions, size, lambda partition: store.list_tables(partition, namespace, prefix, after, size)
        )


def _check_version(version: int | None) -> None:
    if version:
        check_span("expected_version", version, SEQUENCE_MAX)


def _check_settings(settings: TableSettings) -> None:
    if settings.rows_max is not None:
        check_span("rows_max", settings.rows_max, SEQUENCE_MAX)
    if settings.value_bytes_max is not None:
        check_span("value_bytes_max", settings.value_bytes_max, SEQUENCE_MAX)
