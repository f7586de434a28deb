"""What can be done with tables and their rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from quintet.v1 import table_service_pb2 as wire

from quintet_client.calls import Calls
from quintet_client.table import Row, RowWrite, Table, TableSettings, TimeToLive, WrittenRow, ttl_to_wire


class TableCalls(Calls):
    """The verbs of tables. Every method raises a `QuintetError` when the core refuses, or cannot be reached."""

    async def create_table(self, table: str, settings: TableSettings | None = None) -> Table:
        """Makes a table. `TableExistsError` when there is one."""
        request = wire.CreateTableRequest(
            namespace=self.namespace, table=table, settings=(settings or TableSettings()).to_wire()
        )
        result = await self._operate(self.session.submit_create_table, request)
        return Table.of_wire(result.create_table.table)

    async def update_table(self, table: str, settings: TableSettings) -> Table:
        """Replaces all settings of a table."""
        request = wire.UpdateTableRequest(namespace=self.namespace, table=table, settings=settings.to_wire())
        response: wire.UpdateTableResponse = await self._call(self._table_service.UpdateTable, request)
        return Table.of_wire(response.table)

    async def delete_table(self, table: str) -> int:
        """Removes a table with its rows and returns how many it had, expired ones among them perhaps."""
        request = wire.DeleteTableRequest(namespace=self.namespace, table=table)
        result = await self._operate(self.session.submit_delete_table, request)
        return result.delete_table.rows

    async def get_table(self, table: str) -> Table:
        """A table, its settings and how many rows it has."""
        request = wire.GetTableRequest(namespace=self.namespace, table=table)
        response: wire.GetTableResponse = await self._read_call(self._table_service.GetTable, request)
        return Table.of_wire(response.table)

    async def list_tables(self, *, prefix: str = "", page_size: int = 100) -> AsyncIterator[Table]:
        """All tables of the namespace whose name starts with `prefix`, in the byte order of their names."""
        request = wire.ListTablesRequest(namespace=self.namespace, prefix=prefix, page_size=page_size)
        while True:
            result = await self._read(self.session.submit_list_tables, request)
            for table in result.list_tables.tables:
                yield Table.of_wire(table)
            if not result.list_tables.next_page_token:
                return
            request.page_token = result.list_tables.next_page_token

    async def put_row(
        self,
        table: str,
        key: bytes,
        value: bytes,
        *,
        ttl_ms: int | TimeToLive = TimeToLive.KEEP,
        expected_version: int | None = None,
        create_if_missing: bool = True,
    ) -> WrittenRow:
        """Inserts or replaces a row. `ttl_ms`: milliseconds it lives from now on, or what becomes of its deadline.

        With an `expected_version` only when the row is of that version (0: only when there is none), else
        `VersionMismatchError`. An unknown table is made when it may be (`create_if_missing`).
        """
        change, milliseconds = ttl_to_wire(ttl_ms)
        request = wire.PutRowRequest(
            namespace=self.namespace,
            table=table,
            key=key,
            value=value,
            ttl_change=change,
            ttl_ms=milliseconds,
            expected_version=expected_version,
            create_if_missing=create_if_missing,
        )
        result = await self._operate(self.session.submit_put_row, request)
        return WrittenRow.of_wire(result.put_row)

    async def get_row(self, table: str, key: bytes) -> Row:
        """A row as it stands. `RowNotFoundError` when there is none, or it has expired."""
        request = wire.GetRowRequest(namespace=self.namespace, table=table, key=key)
        result = await self._read(self.session.submit_get_row, request)
        return Row.of_wire(result.get_row.row)

    async def delete_row(self, table: str, key: bytes, *, expected_version: int | None = None) -> Row:
        """Removes a row and returns it as it was. `RowNotFoundError` when there is none."""
        request = wire.DeleteRowRequest(
            namespace=self.namespace, table=table, key=key, expected_version=expected_version
        )
        result = await self._operate(self.session.submit_delete_row, request)
        return Row.of_wire(result.delete_row.row)

    async def scan_rows(
        self, table: str, *, key_prefix: bytes = b"", keys_only: bool = False, page_size: int = 100
    ) -> AsyncIterator[Row]:
        """All rows whose key starts with `key_prefix`, in the byte order of their keys.

        A page is of one moment, and pages are of different moments: a row that stays is seen once.
        """
        request = wire.ScanRowsRequest(
            namespace=self.namespace, table=table, key_prefix=key_prefix, page_size=page_size, keys_only=keys_only
        )
        while True:
            result = await self._read(self.session.submit_scan_rows, request)
            for row in result.scan_rows.rows:
                yield Row.of_wire(row)
            if not result.scan_rows.next_page_token:
                return
            request.page_token = result.scan_rows.next_page_token

    async def write_rows(self, table: str, writes: Iterable[RowWrite], *, create_if_missing: bool = True) -> list[int]:
        """Puts and deletes of up to 100 rows of one table, no key twice: all of them or none.

        Returns a version for each, in order; 0: the delete of a row that was not there.
        """
        request = wire.WriteRowsRequest(
            namespace=self.namespace,
            table=table,
            writes=[write.to_wire() for write in writes],
            create_if_missing=create_if_missing,
        )
        result = await self._operate(self.session.submit_write_rows, request)
        return list(result.write_rows.versions)
