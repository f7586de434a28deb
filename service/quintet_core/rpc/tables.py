"""TableService: a thin door onto the operations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from quintet.v1 import table_service_pb2 as pb
from quintet.v1 import table_service_pb2_grpc

from quintet_core.domain.outcomes import Done
from quintet_core.operations.tables import TableOperations
from quintet_core.rpc import convert
from quintet_core.rpc import table_messages as messages
from quintet_core.rpc.door import Context, Door

# Each method's name is the API's.
# ruff: noqa: N802


class TableServicer(table_service_pb2_grpc.TableServiceServicer):
    """Unary calls on tables and rows."""

    def __init__(self, operations: TableOperations, door: Door) -> None:
        self._operations = operations
        self._door = door

    # --- tables

    async def CreateTable(self, request: pb.CreateTableRequest, context: Context) -> pb.CreateTableResponse:
        """Make a table."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.create_table(namespace, request.table, messages.settings_of(request.settings), done)

        return await self._door.call(context, "create_table", namespace, start, messages.table_created)

    async def UpdateTable(self, request: pb.UpdateTableRequest, context: Context) -> pb.UpdateTableResponse:
        """Replace a table's settings."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.update_table(namespace, request.table, messages.settings_of(request.settings), done)

        return await self._door.call(context, "update_table", namespace, start, messages.table_updated)

    async def DeleteTable(self, request: pb.DeleteTableRequest, context: Context) -> pb.DeleteTableResponse:
        """Remove a table and its rows."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.delete_table(namespace, request.table, done)

        return await self._door.call(context, "delete_table", namespace, start, messages.table_deleted)

    async def GetTable(self, request: pb.GetTableRequest, context: Context) -> pb.GetTableResponse:
        """A table as it stands."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.get_table(namespace, request.table, done)

        return await self._door.call(context, "get_table", namespace, start, messages.table_got)

    async def ListTables(self, request: pb.ListTablesRequest, context: Context) -> pb.ListTablesResponse:
        """A page of tables."""
        namespace = convert.namespace_of(request)

        async def work() -> Any:
            after = convert.queues_cursor(request.page_token)
            return await self._operations.list_tables(namespace, request.prefix, after, request.page_size)

        return await self._door.wait(context, "list_tables", namespace, work, messages.tables_listed)

    # --- rows

    async def PutRow(self, request: pb.PutRowRequest, context: Context) -> pb.PutRowResponse:
        """Insert or replace a row."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            put = messages.row_put(request)
            self._operations.put_row(namespace, request.table, put, request.create_if_missing, done)

        return await self._door.call(context, "put_row", namespace, start, messages.row_stored)

    async def GetRow(self, request: pb.GetRowRequest, context: Context) -> pb.GetRowResponse:
        """A row as it stands."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.get_row(namespace, request.table, request.key, done)

        return await self._door.call(context, "get_row", namespace, start, messages.row_got)

    async def DeleteRow(self, request: pb.DeleteRowRequest, context: Context) -> pb.DeleteRowResponse:
        """Remove a row and tell it."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            expected = messages.expected_version(request)
            self._operations.delete_row(namespace, request.table, request.key, expected, done)

        return await self._door.call(context, "delete_row", namespace, start, messages.row_deleted)

    async def ScanRows(self, request: pb.ScanRowsRequest, context: Context) -> pb.ScanRowsResponse:
        """A page of rows."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.scan_rows(
                namespace,
                request.table,
                request.key_prefix,
                request.page_size,
                messages.rows_cursor(request.page_token),
                request.keys_only,
                done,
            )

        return await self._door.call(context, "scan_rows", namespace, start, messages.rows_scanned)

    async def WriteRows(self, request: pb.WriteRowsRequest, context: Context) -> pb.WriteRowsResponse:
        """Several writes, all or none."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            writes = messages.row_writes(request)
            self._operations.write_rows(namespace, request.table, writes, request.create_if_missing, done)

        return await self._door.call(context, "write_rows", namespace, start, messages.rows_written)

    async def WatchRows(self, request: pb.WatchRowsRequest, context: Context) -> AsyncIterator[pb.WatchRowsResponse]:
        """Changes of rows as they are committed."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "WatchRows")
        yield pb.WatchRowsResponse()
