"""A peer that speaks the real wire and does what a test's script says: for what a healthy core never does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from quintet.v1.queue_service_pb2 import EnqueueResponse
from quintet.v1.reason_pb2 import REASON_CANCELLED, REASON_OWNER_CLOSED, REASON_SESSION_LAPSED
from quintet.v1.session_service_pb2 import (
    Failure,
    HeartbeatResponse,
    SessionClosing,
    SessionOpen,
    SessionOpened,
    SessionOperation,
    SessionRequest,
    SessionResponse,
    SessionResult,
)
from quintet.v1.session_service_pb2_grpc import SessionServiceServicer, add_SessionServiceServicer_to_server
from quintet_client.session import Session

Answer = Callable[[SessionOperation], SessionResult | None]


async def disconnected(session: Session) -> None:
    """Returns when the session has noticed that its stream is gone."""
    while session.connected:
        await asyncio.sleep(0)


class ScriptedCore(SessionServiceServicer):
    """Answers an enqueue with the id = its rank; parks dequeues; everything else by `answers[verb]`."""

    def __init__(self, path: Path, *, session_ttl_ms: int = 10_000, in_flight_max: int = 1000) -> None:
        self.target = f"unix:{path}"
        self.session_ttl_ms = session_ttl_ms
        self.in_flight_max = in_flight_max
        self.answers: dict[str, Answer] = {}
        self.sessions: set[int] = set()
        self.opens: list[SessionOpen] = []
        self.requests: list[SessionRequest] = []
        self.operations: list[SessionOperation] = []
        self.answers_heartbeats = True
        self.half_closed = asyncio.Event()
        self.parked: dict[int, SessionOperation] = {}
        self.metadata: dict[str, str] = {}
        self.refusal: grpc.StatusCode | None = None
        self._changed = asyncio.Condition()
        self._numbers = itertools.count(1)
        self._streams: dict[Any, asyncio.Queue[SessionResponse | None]] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        add_SessionServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.target)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)
            self._streams.clear()
            self.parked.clear()

    async def break_streams(self) -> None:
        """Ends every stream with UNAVAILABLE; the sessions live on."""
        for out in list(self._streams.values()):
            out.put_nowait(None)

    def announce_closing(self) -> None:
        for out in self._streams.values():
            out.put_nowait(SessionResponse(closing=SessionClosing(message="going away")))

    def respond(self, *results: SessionResult) -> None:
        for out in self._streams.values():
            out.put_nowait(SessionResponse(results=results))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)

    def received(self, verb: str) -> list[SessionOperation]:
        return [operation for operation in self.operations if operation.WhichOneof("operation") == verb]

    async def Session(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[SessionRequest], context: Any
    ) -> None:
        self.metadata = dict(context.invocation_metadata() or ())
        if self.refusal is not None:
            await context.abort(self.refusal, "refused by the script")
        out: asyncio.Queue[SessionResponse | None] = asyncio.Queue()
        self._streams[context] = out
        reading = asyncio.ensure_future(self._read(request_iterator, out))
        try:
            while (response := await out.get()) is not None:
                await context.write(response)
            if not reading.done() or reading.exception() is not None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the script broke the stream")
        finally:
            reading.cancel()
            self._streams.pop(context, None)
            await self._note()

    async def _read(
        self, request_iterator: AsyncIterator[SessionRequest], out: asyncio.Queue[SessionResponse | None]
    ) -> None:
        async for request in request_iterator:
            if request.HasField("open"):
                out.put_nowait(self._open(request.open))
            self.requests.append(request)
            self.operations.extend(request.operations)
            results = [result for operation in request.operations if (result := self._answer(operation)) is not None]
            if results:
                out.put_nowait(SessionResponse(results=results))
            await self._note()
        self.half_closed.set()
        out.put_nowait(None)

    def _open(self, open_request: SessionOpen) -> SessionResponse:
        self.opens.append(open_request)
        if open_request.resume_session and open_request.resume_session not in self.sessions:
            return SessionResponse(closing=SessionClosing(reason=REASON_SESSION_LAPSED, message="gone"))
        session = open_request.resume_session or next(self._numbers)
        self.sessions.add(session)
        return SessionResponse(
            opened=SessionOpened(
                session=session,
                secret=b"secret",
                session_ttl_ms=self.session_ttl_ms,
                in_flight_max=self.in_flight_max,
                resumed=bool(open_request.resume_session),
            )
        )

    def _answer(self, operation: SessionOperation) -> SessionResult | None:
        verb = operation.WhichOneof("operation") or ""
        if verb in self.answers:
            return self.answers[verb](operation)
        return getattr(self, f"_answer_{verb}")(operation)  # type: ignore[no-any-return]

    def _answer_enqueue(self, operation: SessionOperation) -> SessionResult:
        ids = [job.rank for job in operation.enqueue.jobs]
        return SessionResult(sequence=operation.sequence, enqueue=EnqueueResponse(ids=ids))

    def _answer_dequeue(self, operation: SessionOperation) -> None:
        self.parked[operation.sequence] = operation

    def _answer_await_jobs(self, operation: SessionOperation) -> None:
        self.parked[operation.sequence] = operation

    def _answer_cancel_wait(self, operation: SessionOperation) -> SessionResult:
        sequence = operation.cancel_wait.sequence
        if self.parked.pop(sequence, None) is not None:
            self.respond(SessionResult(sequence=sequence, failure=Failure(reason=REASON_CANCELLED)))
        result = SessionResult(sequence=operation.sequence)
        result.cancel_wait.SetInParent()
        return result

    def _answer_close_owner(self, operation: SessionOperation) -> SessionResult:
        for sequence in [s for s, parked in self.parked.items() if parked.owner == operation.owner]:
            del self.parked[sequence]
            self.respond(SessionResult(sequence=sequence, failure=Failure(reason=REASON_OWNER_CLOSED)))
        result = SessionResult(sequence=operation.sequence)
        result.close_owner.SetInParent()
        return result

    def _answer_heartbeat(self, operation: SessionOperation) -> SessionResult | None:
        if not self.answers_heartbeats:
            return None
        return SessionResult(sequence=operation.sequence, heartbeat=HeartbeatResponse())

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()
