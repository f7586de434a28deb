"""The verbs of a session that need nothing but to be sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from google.protobuf.message import Message
from quintet.v1.queue_service_pb2 import (
    AcknowledgeRequest,
    AwaitJobsRequest,
    CountRequest,
    CreateQueueRequest,
    DeleteQueueRequest,
    DeleteRequest,
    ExtendRequest,
    GetJobRequest,
    GetQueueRequest,
    ListQueuesRequest,
    PeekRequest,
    ReleaseRequest,
)
from quintet.v1.session_service_pb2 import KeepLeases, SessionResult
from quintet.v1.table_service_pb2 import (
    CreateTableRequest,
    DeleteRowRequest,
    DeleteTableRequest,
    GetRowRequest,
    ListTablesRequest,
    PutRowRequest,
    ScanRowsRequest,
    WriteRowsRequest,
)

OnResult = Callable[[SessionResult], None]
"""Called exactly once for each operation, from the event loop."""


class Verbs(ABC):
    """One method for each verb: sends the operation, returns its sequence."""

    @abstractmethod
    def _submit(self, owner: int, request: Message, on_result: OnResult, verb: str) -> int:
        """Sends `request` as operation `verb` (a field of SessionOperation)."""

    def submit_acknowledge(self, owner: int, request: AcknowledgeRequest, on_result: OnResult) -> int:
        """`acknowledge`."""
        return self._submit(owner, request, on_result, "acknowledge")

    def submit_release(self, owner: int, request: ReleaseRequest, on_result: OnResult) -> int:
        """`release`."""
        return self._submit(owner, request, on_result, "release")

    def submit_extend(self, owner: int, request: ExtendRequest, on_result: OnResult) -> int:
        """`extend`."""
        return self._submit(owner, request, on_result, "extend")

    def submit_delete(self, owner: int, request: DeleteRequest, on_result: OnResult) -> int:
        """`delete`."""
        return self._submit(owner, request, on_result, "delete")

    def submit_peek(self, owner: int, request: PeekRequest, on_result: OnResult) -> int:
        """`peek`."""
        return self._submit(owner, request, on_result, "peek")

    def submit_get_job(self, owner: int, request: GetJobRequest, on_result: OnResult) -> int:
        """`get_job`."""
        return self._submit(owner, request, on_result, "get_job")

    def submit_count(self, owner: int, request: CountRequest, on_result: OnResult) -> int:
        """`count`."""
        return self._submit(owner, request, on_result, "count")

    def submit_create_queue(self, owner: int, request: CreateQueueRequest, on_result: OnResult) -> int:
        """`create_queue`."""
        return self._submit(owner, request, on_result, "create_queue")

    def submit_delete_queue(self, owner: int, request: DeleteQueueRequest, on_result: OnResult) -> int:
        """`delete_queue`."""
        return self._submit(owner, request, on_result, "delete_queue")

    def submit_get_queue(self, owner: int, request: GetQueueRequest, on_result: OnResult) -> int:
        """`get_queue`."""
        return self._submit(owner, request, on_result, "get_queue")

    def submit_list_queues(self, owner: int, request: ListQueuesRequest, on_result: OnResult) -> int:
        """`list_queues`."""
        return self._submit(owner, request, on_result, "list_queues")

    def submit_await_jobs(self, owner: int, request: AwaitJobsRequest, on_result: OnResult) -> int:
        """`await_jobs`; ended by `cancel_wait`."""
        return self._submit(owner, request, on_result, "await_jobs")

    def submit_create_table(self, owner: int, request: CreateTableRequest, on_result: OnResult) -> int:
        """`create_table`."""
        return self._submit(owner, request, on_result, "create_table")

    def submit_delete_table(self, owner: int, request: DeleteTableRequest, on_result: OnResult) -> int:
        """`delete_table`."""
        return self._submit(owner, request, on_result, "delete_table")

    def submit_list_tables(self, owner: int, request: ListTablesRequest, on_result: OnResult) -> int:
        """`list_tables`."""
        return self._submit(owner, request, on_result, "list_tables")

    def submit_put_row(self, owner: int, request: PutRowRequest, on_result: OnResult) -> int:
        """`put_row`."""
        return self._submit(owner, request, on_result, "put_row")

    def submit_get_row(self, owner: int, request: GetRowRequest, on_result: OnResult) -> int:
        """`get_row`."""
        return self._submit(owner, request, on_result, "get_row")

    def submit_delete_row(self, owner: int, request: DeleteRowRequest, on_result: OnResult) -> int:
        """`delete_row`."""
        return self._submit(owner, request, on_result, "delete_row")

    def submit_scan_rows(self, owner: int, request: ScanRowsRequest, on_result: OnResult) -> int:
        """`scan_rows`."""
        return self._submit(owner, request, on_result, "scan_rows")

    def submit_write_rows(self, owner: int, request: WriteRowsRequest, on_result: OnResult) -> int:
        """`write_rows`."""
        return self._submit(owner, request, on_result, "write_rows")

    def submit_keep_leases(self, owner: int, request: KeepLeases, on_result: OnResult) -> int:
        """`keep_leases`: releases what the owner holds beyond `request.ids`.

        For an owner whose dequeue under an owner lease is in doubt; to be submitted when the session is connected
        again and the owner has no dequeue under way.
        """
        return self._submit(owner, request, on_result, "keep_leases")
