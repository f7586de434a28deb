"""The Session stream: many operations of many owners on one stream.

Callback style throughout: an operation costs a closure and a message, not a task; whatever results came in one tick
go out in one response, and while a response is being written the next one gathers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from quintet.v1 import session_service_pb2 as pb
from quintet.v1 import session_service_pb2_grpc

from quintet_core.domain.errors import CallerError, Reason, Refusal, refusal
from quintet_core.operations.bulk import BulkOperations
from quintet_core.operations.queues import QueueOperations
from quintet_core.operations.tables import TableOperations
from quintet_core.rpc import wire
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.arrivals import Arrival, Count
from quintet_core.rpc.session_verbs import Refused, SessionVerbs
from quintet_core.rpc.status import abort
from quintet_core.waiting.awaits import Awaits
from quintet_core.waiting.dequeues import Dequeues
from quintet_core.waiting.sessions import Sessions

RESPONSE_BYTES_MAX = 4 << 20
# Results that the client has not taken, beyond which no more of it is read.
UNSENT_BYTES_MAX = 16 << 20
SERVICE = pb.DESCRIPTOR.services_by_name["SessionService"].full_name


class SessionServicer(session_service_pb2_grpc.SessionServiceServicer):
    """Opens sessions and serves their streams. `count` is told of the operations answered, some at a time, and
    `refuse` of those refused."""

    def __init__(
        self,
        operations: QueueOperations,
        bulk: BulkOperations,
        tables: TableOperations,
        dequeues: Dequeues,
        awaits: Awaits,
        sessions: Sessions,
        in_flight_max: int,
        count: Count,
        refuse: Refused,
    ) -> None:
        self.operations = operations
        self.bulk = bulk
        self.tables = tables
        self.dequeues = dequeues
        self.awaits = awaits
        self.sessions = sessions
        self.in_flight_max = in_flight_max
        self.count = count
        self.refuse = refuse
        self._streams: set[_Stream] = set()
        self._closing: Refusal | None = None

    async def Session(  # type: ignore[override]  # noqa: N802 - the name is the API's
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """One stream, from its opening to its end."""
        if self._closing is not None:
            await abort(context, self._closing)
        first = await context.read()
        if first is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        stream = _Stream(self, context, current_access())
        try:
            refused = await stream.open(first)
        except CallerError as error:
            refused = error.refusal
        if refused is not None:
            await abort(context, refused)
        self._streams.add(stream)
        if self._closing is not None:
            stream.end_soon(self._closing)
        try:
            await stream.run(first)
        finally:
            self._streams.discard(stream)

    async def drain(self, grace_s: float) -> None:
        """Tell every stream to go elsewhere, answer what is in flight, and end them; new ones are refused."""
        self._closing = refusal(Reason.DRAINING)
        streams = list(self._streams)
        for stream in streams:
            stream.end_soon(self._closing)
        if streams:
            await asyncio.wait([asyncio.ensure_future(stream.ended.wait()) for stream in streams], timeout=grace_s)


def session_handlers(servicer: SessionServicer) -> grpc.GenericRpcHandler[Any, Any]:
    """What the generated registration does, but that responses may be encoded already."""
    session = grpc.stream_stream_rpc_method_handler(
        servicer.Session, request_deserializer=pb.SessionRequest.FromString, response_serializer=wire.serialize
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Session": session})


class _Stream(SessionVerbs):
    """One stream and the session attached to it."""

    def __init__(self, servicer: SessionServicer, context: grpc.aio.ServicerContext[Any, Any], access: Access) -> None:
        super().__init__(
            servicer.operations,
            servicer.bulk,
            servicer.tables,
            servicer.dequeues,
            servicer.awaits,
            servicer.sessions,
            access,
            servicer.count,
            servicer.refuse,
        )
        self._in_flight_max = servicer.in_flight_max
        self._context = context
        self._opened: pb.SessionOpened | None = None
        self._closing: pb.SessionClosing | None = None
        self._room = asyncio.Event()
        self._ending = False
        # Set once the client was written to after the end of what it sends.
        self._reached: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[bool] | None = None
        self.ended = asyncio.Event()

    # --- life

    async def open(self, first: pb.SessionRequest) -> Refusal | None:
        """Open or resume the session that the first request asks for."""
        if not first.HasField("open"):
            return refusal(Reason.INVALID_ARGUMENT, "the first request of a session must hold open")
        self._operations.limits.check_label("client", first.open.client)
        if first.open.resume_session:
            resumed = await self._sessions.resume(first.open.resume_session, first.open.resume_secret, self._on_lapsed)
            if isinstance(resumed, Refusal):
                return resumed
            self.session = resumed
        else:
            self.session = self._sessions.open(first.open.resumable, self._on_lapsed)
        self._opened = pb.SessionOpened(
            session=self.session.number,
            secret=self._sessions.secret(self.session),
            session_ttl_ms=self._sessions.ttl_ms,
            in_flight_max=self._in_flight_max,
            resumed=self.session.resumed,
        )
        return None

    async def run(self, first: pb.SessionRequest) -> None:
        """Read and write until either side ends. What the session holds outlives a break when it is resumable."""
        self._wake.set()
        writer = asyncio.ensure_future(self._write_all())
        self._reader = asyncio.ensure_future(self._read_all(first))
        orderly = False
        try:
            done, _ = await asyncio.wait((writer, self._reader), return_when=asyncio.FIRST_COMPLETED)
            if self._reader in done and self._reader.exception() is None and self._reader.result():
                orderly = await self._reaches_client(writer)
                if orderly:
                    await self._finish_answering(writer)
        finally:
            self._gone = True
            self._arrivals.count()
            for task in (writer, self._reader):
                task.cancel()
                task.add_done_callback(_seen)
            # Shielded: whatever ends this call, the leases of the session are dealt with.
            leaving = asyncio.ensure_future(self._leave(orderly))
            leaving.add_done_callback(lambda _: self.ended.set())
            await asyncio.shield(leaving)

    async def _reaches_client(self, writer: asyncio.Future[None]) -> bool:
        """Whether the client is still there. The end of a broken connection reads like the end of all that a client
        had to say, and may be read before the call is told that it was cancelled; but nothing can be written to it."""
        self._reached = asyncio.get_running_loop().create_future()
        self._wake.set()
        await asyncio.wait((writer, self._reached), return_when=asyncio.FIRST_COMPLETED)
        return self._reached.done()

    async def _finish_answering(self, writer: asyncio.Future[None]) -> None:
        """The client has said all: waits end, and what is in flight is answered."""
        self._cancel_waits(Reason.CANCELLED)
        self._ending = True
        self._wake.set()
        await asyncio.wait((writer,))

    def _cancel_waits(self, why: Reason) -> None:
        for owner in self.session.owners.values():
            for handle in list(owner.handles.values()):
                handle.cancel(why)

    async def _leave(self, orderly: bool) -> None:
        if self.session.resumable and not orderly:
            self._sessions.detach(self.session)
        else:
            await self._sessions.close(self.session)

    def _on_lapsed(self) -> None:
        self.end_soon(refusal(Reason.SESSION_LAPSED))

    def end_soon(self, why: Refusal) -> None:
        """Say so to the client, refuse its waits, answer what is in flight, and end the stream."""
        self._closing = pb.SessionClosing(reason=why.reason, message=why.message)  # type: ignore[arg-type]
        self._cancel_waits(why.reason)
        self._wake.set()

    # --- reading

    async def _read_all(self, first: pb.SessionRequest) -> bool:
        """True when the client ended the stream in order."""
        request = first
        context, limit = self._context, self._in_flight_max
        while True:
            self._arrival = Arrival()
            for operation in request.operations:
                self._dispatch(operation)
            self._operations.store.pipeline.flush()
            while self._in_flight >= limit or self._is_clogged():
                self._room.clear()
                await self._room.wait()
            request = await context.read()
            if request is grpc.aio.EOF:  # type: ignore[attr-defined]
                # A broken call also ends what is read; its context says that it was cancelled.
                return not context.cancelled()

    def _is_clogged(self) -> bool:
        """Whether results pile up because the client does not take them."""
        results = self._results
        if self._idle or not results:
            return False
        return len(results) >= self._in_flight_max or sum(map(len, results)) > UNSENT_BYTES_MAX

    # --- writing

    async def _write_all(self) -> None:
        wake, room = self._wake, self._room
        write = self._context.write
        if self._opened is not None:
            await write(pb.SessionResponse(opened=self._opened))
        while True:
            if not self._results:
                self._idle = True
                await wake.wait()
                self._idle = False
            wake.clear()
            while self._results:
                self._arrivals.count()
                await write(self._take_results())
                room.set()
            room.set()
            if self._reached is not None and not self._reached.done():
                await write(b"")
                self._reached.set_result(None)
            if self._closing is not None and not self._ending:
                self._ending = True
                await write(pb.SessionResponse(closing=self._closing))
            if self._ending and not (self._results or self._in_flight or self._waits):
                return

    def _take_results(self) -> bytes:
        """An encoded SessionResponse of the results so far, or of as many as its bound allows."""
        results = self._results
        encoded = b"".join(results)
        if len(encoded) <= RESPONSE_BYTES_MAX:
            self._results = []
            return encoded
        size, count = 0, 0
        for result in results:
            size += len(result)
            if count and size > RESPONSE_BYTES_MAX:
                break
            count += 1
        self._results = results[count:]
        return b"".join(results[:count])


def _seen(task: asyncio.Future[Any]) -> None:
    """How a reader or a writer ended was decided upon already."""
    if not task.cancelled():
        task.exception()
