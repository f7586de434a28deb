"""The operations of a session on tables and rows. A part of `session_verbs`, which see."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from google.protobuf.message import Message
from quintet.v1 import session_service_pb2 as pb
from quintet.v1 import table_service_pb2

from quintet_core.domain.errors import Refusal
from quintet_core.domain.outcomes import Done
from quintet_core.domain.table import Row, RowStored
from quintet_core.operations.tables import TableOperations
from quintet_core.rpc import convert, table_wire
from quintet_core.rpc import table_messages as messages
from quintet_core.rpc.arrivals import Arrival
from quintet_core.storage.pipeline import Ordered

_DEFAULT = convert.NAMESPACE_DEFAULT


class TableVerbs:
    """What SessionVerbs does with tables. The methods without a body are its own."""

    _tables: TableOperations
    _arrival: Arrival

    def _answer(
        self,
        arrival: Arrival,
        sequence: int,
        kind: str,
        outcome: Any,
        message: Callable[[Any], Message] | None,
    ) -> None:
        raise NotImplementedError

    def _answer_encoded(self, arrival: Arrival, kind: str, result: bytes) -> None:
        raise NotImplementedError

    def _answerer(self, sequence: int, kind: str, message: Callable[[Any], Message]) -> Done[Any]:
        raise NotImplementedError

    def _start(self, sequence: int, kind: str, work: Coroutine[Any, Any, Any]) -> None:
        raise NotImplementedError

    def _table_handlers(self) -> dict[str, Callable[[Any, pb.SessionOperation], None]]:
        return {
            "create_table": self._create_table,
            "delete_table": self._delete_table,
            "list_tables": self._list_tables,
            "put_row": self._put_row,
            "get_row": self._get_row,
            "delete_row": self._delete_row,
            "scan_rows": self._scan_rows,
            "write_rows": self._write_rows,
        }

    # --- rows

    def _put_row(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request, sequence, arrival = operation.put_row, operation.sequence, self._arrival

        def done(outcome: RowStored | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(arrival, sequence, "put_row", outcome, None)
            else:
                self._answer_encoded(arrival, "put_row", table_wire.row_stored(sequence, outcome))

        self._tables.put_row(
            request.namespace or _DEFAULT,
            request.table,
            messages.row_put(request),
            request.create_if_missing,
            done,
            owner,
        )

    def _get_row(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request, sequence, arrival = operation.get_row, operation.sequence, self._arrival

        def done(outcome: Row | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(arrival, sequence, "get_row", outcome, None)
            else:
                self._answer_encoded(arrival, "get_row", table_wire.row_got(sequence, outcome))

        self._tables.get_row(request.namespace or _DEFAULT, request.table, request.key, done, owner)

    def _delete_row(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request, sequence, arrival = operation.delete_row, operation.sequence, self._arrival

        def done(outcome: Row | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(arrival, sequence, "delete_row", outcome, None)
            else:
                self._answer_encoded(arrival, "delete_row", table_wire.row_deleted(sequence, outcome))

        expected = messages.expected_version(request)
        self._tables.delete_row(request.namespace or _DEFAULT, request.table, request.key, expected, done, owner)

    def _scan_rows(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request = operation.scan_rows
        self._tables.scan_rows(
            request.namespace or _DEFAULT,
            request.table,
            request.key_prefix,
            request.page_size,
            messages.rows_cursor(request.page_token),
            request.keys_only,
            self._answerer(operation.sequence, "scan_rows", messages.rows_scanned),
            owner,
        )

    def _write_rows(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request = operation.write_rows
        self._tables.write_rows(
            request.namespace or _DEFAULT,
            request.table,
            messages.row_writes(request),
            request.create_if_missing,
            self._answerer(operation.sequence, "write_rows", messages.rows_written),
            owner,
        )

    # --- tables

    def _create_table(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request = operation.create_table
        done = self._answerer(operation.sequence, "create_table", messages.table_created)
        settings = messages.settings_of(request.settings)
        self._tables.create_table(request.namespace or _DEFAULT, request.table, settings, done, owner)

    def _delete_table(self, owner: Ordered, operation: pb.SessionOperation) -> None:
        request = operation.delete_table
        done = self._answerer(operation.sequence, "delete_table", messages.table_deleted)
        self._tables.delete_table(request.namespace or _DEFAULT, request.table, done, owner)

    def _list_tables(self, _: Ordered, operation: pb.SessionOperation) -> None:
        self._start(operation.sequence, "list_tables", self._tables_listed(operation.list_tables))

    async def _tables_listed(
        self, request: table_service_pb2.ListTablesRequest
    ) -> table_service_pb2.ListTablesResponse | Refusal:
        after = convert.queues_cursor(request.page_token)
        outcome = await self._tables.list_tables(
            request.namespace or _DEFAULT, request.prefix, after, request.page_size
        )
        return outcome if isinstance(outcome, Refusal) else messages.tables_listed(outcome)
