"""A Session stream by the generated stub alone: what is sent is exactly what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1.job_pb2 import Job, NewJob
from quintet.v1.reason_pb2 import Reason

from tests.support.api import Api, Refused, told


class SessionStream:
    """One stream. `opened` is there once it is open; `order` lists the sequences answered, as they came."""

    opened: s.SessionOpened

    def __init__(self, api: Api) -> None:
        self._call: Any = api.sessions.Session()
        self._reader: asyncio.Task[None] | None = None
        self._results: dict[int, list[s.SessionResult]] = {}
        self._news = asyncio.Condition()
        self._sequence = 0
        self.order: list[int] = []
        self.response_bytes: list[int] = []
        self.closing: s.SessionClosing | None = None
        self.refused: Refused | None = None
        self.ended = asyncio.Event()

    async def open(self, **fields: Any) -> None:
        """Send the opening, read its answer, and begin to read the rest. Raises AioRpcError when it is refused."""
        await self._call.write(s.SessionRequest(open=s.SessionOpen(**fields)))
        first = await self._call.read()
        if first is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise await self._error()
        self.opened = first.opened
        self._reader = asyncio.ensure_future(self._read())

    async def _error(self) -> grpc.aio.AioRpcError:
        code, details = await self._call.code(), await self._call.details()
        trailing = await self._call.trailing_metadata()
        return grpc.aio.AioRpcError(code, await self._call.initial_metadata(), trailing, details, None)

    async def _read(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                await self._take(response)
        except grpc.aio.AioRpcError as error:
            self.refused = told(error)
        finally:
            self.ended.set()

    async def _take(self, response: s.SessionResponse) -> None:
        self.response_bytes.append(response.ByteSize())
        if response.HasField("closing"):
            self.closing = response.closing
        async with self._news:
            for result in response.results:
                self.order.append(result.sequence)
                self._results.setdefault(result.sequence, []).append(result)
            self._news.notify_all()

    def number(self, **fields: Any) -> s.SessionOperation:
        """An operation with a sequence of its own; owner 1 unless said."""
        self._sequence += 1
        return s.SessionOperation(**{"sequence": self._sequence, "owner": 1, **fields})

    async def write(self, *operations: s.SessionOperation) -> None:
        """Send operations in one request."""
        await self._call.write(s.SessionRequest(operations=operations))

    async def send(self, **fields: Any) -> int:
        """Send one operation; its sequence."""
        operation = self.number(**fields)
        await self.write(operation)
        return operation.sequence

    async def result(self, sequence: int) -> s.SessionResult:
        """The result of an operation, once it is there."""
        async with self._news:
            await self._news.wait_for(lambda: sequence in self._results)
        (result,) = self._results[sequence]
        return result

    async def do(self, **fields: Any) -> s.SessionResult:
        """Send one operation and await its result."""
        return await self.result(await self.send(**fields))

    def has(self, sequence: int) -> bool:
        """Whether an operation has its result."""
        return sequence in self._results

    async def put(self, queue: str, *payloads: bytes, owner: int = 1, **fields: Any) -> list[int]:
        """Enqueue jobs; their ids."""
        jobs = [NewJob(payload=payload, **fields) for payload in payloads or (b"x",)]
        result = await self.do(owner=owner, enqueue=q.EnqueueRequest(queue=queue, jobs=jobs, create_if_missing=True))
        return list(result.enqueue.ids)

    async def take(self, *queues: str, owner: int = 1, **fields: Any) -> Job:
        """Take, as the owner, the one job that must be there."""
        result = await self.do(owner=owner, dequeue=q.DequeueRequest(queues=queues, owner_lease=True, **fields))
        (job,) = result.dequeue.jobs
        assert isinstance(job, Job)
        return job

    async def half_close(self) -> None:
        """Say that all was said, and return once the core has said all too."""
        await self._call.done_writing()
        await self.ended.wait()

    async def cancel(self) -> None:
        """Break the stream."""
        self._call.cancel()
        if self._reader is not None:
            with suppress(asyncio.CancelledError):
                await self._reader


def reason_of(result: s.SessionResult) -> str:
    """The reason of a failure, or the kind of any other result."""
    if result.HasField("failure"):
        return Reason.Name(result.failure.reason).removeprefix("REASON_")
    return result.WhichOneof("result") or ""


@asynccontextmanager
async def open_session(api: Api, **fields: Any) -> AsyncIterator[SessionStream]:
    """A stream that is open; broken at the end unless it has ended."""
    stream = SessionStream(api)
    await stream.open(**fields)
    try:
        yield stream
    finally:
        await stream.cancel()
