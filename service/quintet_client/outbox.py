"""Operations on their way to the stream: whatever is added before the writer takes it goes out as one request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from google.protobuf.message import Message
from quintet.v1.session_service_pb2 import SessionOperation, SessionRequest

REQUEST_BYTES_SOFT_MAX = 4 * 1024 * 1024
REQUEST_OPERATIONS_MAX = 4096


class Outbox:
    """Collects operations into one request; a single writer takes them."""

    def __init__(self) -> None:
        self._request = SessionRequest()
        self._add = self._request.operations.add
        self._writer: asyncio.Future[None] | None = None
        self.payload_bytes = 0
        """Bytes of the requests added with their size and not yet taken."""

    def add(self, sequence: int, owner: int, verb: str, request: Message) -> None:
        """Adds a copy of `request` as operation `verb` (a field of SessionOperation)."""
        operation = self._add()
        operation.sequence = sequence
        operation.owner = owner
        getattr(operation, verb).CopyFrom(request)
        if self._writer is not None:
            self.wake()

    def wake(self) -> None:
        """Lets the writer look again, also when there is nothing to take."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def __len__(self) -> int:
        return len(self._request.operations)

    async def wait_filled(self) -> None:
        """Returns when there is something to take, or when woken."""
        if not self._request.operations:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def take(self) -> list[SessionRequest]:
        """Takes everything added so far, as requests that keep to the bounds where single operations do."""
        request = self._request
        if not request.operations:
            return []
        self.clear()
        if len(request.operations) <= REQUEST_OPERATIONS_MAX and request.ByteSize() <= REQUEST_BYTES_SOFT_MAX:
            return [request]
        return list(_split(request))

    def clear(self) -> None:
        """Forgets what was not taken."""
        self._request = SessionRequest()
        self._add = self._request.operations.add
        self.payload_bytes = 0


def _split(request: SessionRequest) -> Iterator[SessionRequest]:
    part: list[SessionOperation] = []
    part_bytes = 0
    for operation in request.operations:
        operation_bytes = operation.ByteSize()
        if part and (part_bytes + operation_bytes > REQUEST_BYTES_SOFT_MAX or len(part) >= REQUEST_OPERATIONS_MAX):
            yield SessionRequest(operations=part)
            part, part_bytes = [], 0
        part.append(operation)
        part_bytes += operation_bytes
    yield SessionRequest(operations=part)
