"""The Session stream: many operations of many owners on one stream.

Callback style throughout: an operation costs a closure and a message, not a task; whatever results came in one tick
go out in one response, and while a response is being written the next one gathers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as pb
from quintet.v1 import session_service_pb2_grpc
from quintet_kit.logs import get_logger

from quintet_core.domain.errors import CallerError, Reason, Refusal, broken, refusal
from quintet_core.domain.job import JobState, LeaseTerms
from quintet_core.domain.outcomes import Acknowledged, Dequeued, Done, Enqueued
from quintet_core.operations import bounds
from quintet_core.operations.bulk import BulkOperations
from quintet_core.operations.queues import QueueOperations
from quintet_core.rpc import convert, wire
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.status import abort, failure
from quintet_core.waiting.dequeues import Dequeue, Dequeues
from quintet_core.waiting.sessions import Owner, Session, Sessions

RESPONSE_BYTES_MAX = 4 << 20
# Results that the client has not taken, beyond which no more of it is read.
UNSENT_BYTES_MAX = 16 << 20
SERVICE = pb.DESCRIPTOR.services_by_name["SessionService"].full_name
_DEFAULT = convert.NAMESPACE_DEFAULT

Observe = Callable[[str, object], None]


class SessionServicer(session_service_pb2_grpc.SessionServiceServicer):
    """Opens sessions and serves their streams. `observe(verb, outcome)` is told of every operation answered."""

    def __init__(
        self,
        operations: QueueOperations,
        bulk: BulkOperations,
        dequeues: Dequeues,
        sessions: Sessions,
        in_flight_max: int,
        observe: Observe,
    ) -> None:
        self.operations = operations
        self.bulk = bulk
        self.dequeues = dequeues
        self.sessions = sessions
        self.in_flight_max = in_flight_max
        self.observe = observe
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


class _Stream:
    """One stream and the session attached to it."""

    session: Session

    def __init__(self, servicer: SessionServicer, context: grpc.aio.ServicerContext[Any, Any], access: Access) -> None:
        self._servicer = servicer
        self._operations = servicer.operations
        self._dequeues = servicer.dequeues
        self._sessions = servicer.sessions
        self._context = context
        self._access = None if access.unlimited else access
        self._observe = servicer.observe
        # Encoded, each as a field of SessionResponse.
        self._results: list[bytes] = []
        self._opened: pb.SessionOpened | None = None
        self._closing: pb.SessionClosing | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._in_flight = 0
        # Dequeues that may wait: they have a bound of their own, and must not stop the stream from being read.
        self._waits = 0
        self._ending = False
        # The writer has nothing to write, and waits to be woken.
        self._idle = False
        self._gone = False
        # Set once the client was written to after the end of what it sends.
        self._reached: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[bool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._handlers: dict[str, Callable[[Owner, pb.SessionOperation], None]] = {
            "enqueue": self._enqueue,
            "dequeue": self._dequeue,
            "acknowledge": self._acknowledge,
            "release": self._release,
            "extend": self._extend,
            "delete": self._delete,
            "peek": self._peek,
            "get_job": self._get_job,
            "count": self._count,
            "create_queue": self._create_queue,
            "delete_queue": self._delete_queue,
            "get_queue": self._get_queue,
            "list_queues": self._list_queues,
            "cancel_wait": self._cancel_wait,
            "close_owner": self._close_owner,
            "heartbeat": self._heartbeat,
            "keep_leases": self._keep_leases,
        }

    # --- life

    async def open(self, first: pb.SessionRequest) -> Refusal | None:
        """Open or resume the session that the first request asks for."""
        if not first.HasField("open"):
            return refusal(Reason.INVALID_ARGUMENT, "the first request of a session must hold open")
        bounds.check_label("client", first.open.client)
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
            in_flight_max=self._servicer.in_flight_max,
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
        context, limit = self._context, self._servicer.in_flight_max
        while True:
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
        return len(results) >= self._servicer.in_flight_max or sum(map(len, results)) > UNSENT_BYTES_MAX

    def _dispatch(self, operation: pb.SessionOperation) -> None:
        kind = operation.WhichOneof("operation")
        self._in_flight += 1
        try:
            if kind is None:
                raise CallerError(refusal(Reason.INVALID_ARGUMENT, "the operation is empty or unknown"))
            if self._access is not None:
                self._check_access(kind, operation)
            self._handlers[kind](self.session.owner(operation.owner), operation)
        except CallerError as error:
            self._answer(operation.sequence, kind or "unknown", error.refusal, None)
        except Exception as error:
            # Ours, and one operation's alone: the session goes on.
            get_logger().exception("operation_failed", verb=kind)
            self._answer(operation.sequence, kind or "unknown", refusal(Reason.INTERNAL, what=repr(error)), None)

    def _check_access(self, kind: str, operation: pb.SessionOperation) -> None:
        request = getattr(operation, kind)
        namespace = getattr(request, "namespace", None)
        assert self._access is not None
        if namespace is not None and not self._access.allows(kind, namespace or _DEFAULT):
            raise CallerError(refusal(Reason.PERMISSION_DENIED))

    # --- answering

    def _answer(self, sequence: int, kind: str, outcome: Any, message: Callable[[Any], Message] | None) -> None:
        self._in_flight -= 1
        self._observe(kind, outcome)
        if outcome.__class__ is Refusal or message is None:
            self._results.append(wire.result(sequence, "failure", failure(outcome)))
        else:
            self._results.append(wire.result(sequence, kind, message(outcome)))
        if self._idle:
            self._wake.set()

    def _answer_encoded(self, kind: str, outcome: object, result: bytes) -> None:
        self._in_flight -= 1
        self._observe(kind, outcome)
        self._results.append(result)
        if self._idle:
            self._wake.set()

    def _answerer(self, sequence: int, kind: str, message: Callable[[Any], Message]) -> Done[Any]:
        def done(outcome: object) -> None:
            self._answer(sequence, kind, outcome, message)

        return done

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

    # --- operations

    def _enqueue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request, sequence = operation.enqueue, operation.sequence

        def done(outcome: Enqueued | Refusal) -> None:
            if isinstance(outcome, Enqueued) and len(outcome.ids) == 1 and not outcome.deduplicated:
                self._answer_encoded("enqueue", outcome, wire.enqueued_one(sequence, outcome.ids[0]))
            else:
                self._answer(sequence, "enqueue", outcome, convert.enqueued)

        self._operations.enqueue(
            request.namespace or _DEFAULT,
            request.queue,
            convert.new_jobs(request),
            request.create_if_missing,
            done,
            owner,
        )

    def _dequeue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        message, sequence = operation.dequeue, operation.sequence
        queues, namespace = list(message.queues), message.namespace or _DEFAULT
        if message.owner_lease:
            terms = self._owner_terms(owner, message)
            for queue in queues:
                self.session.entering(owner, self._operations.store.partition_of(namespace, queue))
        else:
            convert.placement(message.placement_on_close)
            terms = LeaseTerms(message.lease_ms, worker=message.worker)
        request = Dequeue(namespace, queues, terms, message.jobs_max or 1, message.wait_ms, message.allow_missing)
        if request.wait_ms:
            self._dequeue_waiting(owner, sequence, request)
        else:
            self._dequeues.take(request, lambda outcome: self._dequeued(owner, sequence, request, outcome), owner)

    def _owner_terms(self, owner: Owner, message: q.DequeueRequest) -> LeaseTerms:
        """Those of the owner's last dequeue when they are the same, as they mostly are."""
        placement, worker, terms = convert.placement(message.placement_on_close), message.worker, owner.terms
        if terms is None or terms.placement_on_close != placement or terms.worker != worker:
            bounds.check_label("worker", worker)
            terms = owner.terms = LeaseTerms(0, self.session.id, owner.key, placement, worker, self._sessions.ttl_ms)
        return terms

    def _dequeue_waiting(self, owner: Owner, sequence: int, request: Dequeue) -> None:
        if sequence in owner.handles:
            raise broken("sequence is that of a dequeue that still waits", field="sequence")

        def done(outcome: Dequeued | Refusal) -> None:
            owner.handles.pop(sequence, None)
            self._waits -= 1
            self._in_flight += 1
            self._dequeued(owner, sequence, request, outcome)

        owner.handles[sequence] = self._dequeues.dequeue(request, done, owner)
        self._waits += 1
        self._in_flight -= 1

    def _dequeued(self, owner: Owner, sequence: int, request: Dequeue, outcome: Dequeued | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._answer(sequence, "dequeue", outcome, None)
            return
        if (self._gone or owner.closed) and outcome.jobs:
            self._dequeues.give_back(request, outcome.jobs, owner)
            self._answer(sequence, "dequeue", refusal(Reason.OWNER_CLOSED), None)
            return
        self._answer_encoded("dequeue", outcome, wire.dequeued(sequence, outcome))

    def _acknowledge(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request, sequence = operation.acknowledge, operation.sequence

        def done(outcome: Acknowledged | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(sequence, "acknowledge", outcome, None)
            else:
                self._answer_encoded("acknowledge", outcome, wire.acknowledged(sequence))

        self._operations.acknowledge(
            request.namespace or _DEFAULT,
            request.id,
            convert.token_of(request),
            convert.queue_of(request),
            done,
            owner,
        )

    def _release(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.release
        self._operations.release(
            request.namespace or _DEFAULT,
            request.id,
            convert.token_of(request),
            convert.queue_of(request),
            delay_ms=request.delay_ms if request.HasField("delay_ms") else None,
            placement=convert.placement(request.placement),
            failure_reason=request.failure_reason,
            undo_attempt=request.undo_attempt,
            done=self._answerer(operation.sequence, "release", convert.released),
            order=owner,
        )

    def _extend(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.extend
        self._operations.extend(
            request.namespace or _DEFAULT,
            request.id,
            convert.token_of(request),
            convert.queue_of(request),
            request.lease_ms,
            self._answerer(operation.sequence, "extend", convert.extended),
            owner,
        )

    def _delete(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.delete
        self._operations.delete(
            request.namespace or _DEFAULT,
            request.id,
            convert.queue_of(request),
            self._answerer(operation.sequence, "delete", convert.deleted),
            owner,
        )

    def _peek(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.peek
        self._operations.peek(
            request.namespace or _DEFAULT,
            request.queue,
            convert.job_state(request.state, JobState.READY),
            request.jobs_max,
            self._answerer(operation.sequence, "peek", convert.peeked),
            owner,
        )

    def _get_job(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.get_job
        self._operations.get_job(
            request.namespace or _DEFAULT,
            request.id,
            convert.queue_of(request),
            not request.without_payload,
            self._answerer(operation.sequence, "get_job", convert.job_got),
            owner,
        )

    def _count(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.count
        done = self._answerer(operation.sequence, "count", convert.counted)
        self._operations.count(request.namespace or _DEFAULT, request.queue, done, owner)

    def _create_queue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.create_queue
        done = self._answerer(operation.sequence, "create_queue", convert.queue_created)
        settings = convert.settings_of(request.settings)
        self._operations.create_queue(request.namespace or _DEFAULT, request.queue, settings, done, owner)

    def _delete_queue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.delete_queue
        done = self._answerer(operation.sequence, "delete_queue", convert.queue_deleted)
        self._operations.delete_queue(request.namespace or _DEFAULT, request.queue, done, owner)

    def _get_queue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request = operation.get_queue
        done = self._answerer(operation.sequence, "get_queue", convert.queue_got)
        self._operations.get_queue(request.namespace or _DEFAULT, request.queue, done, owner)

    def _list_queues(self, _: Owner, operation: pb.SessionOperation) -> None:
        self._start(operation.sequence, "list_queues", self._listed(operation.list_queues))

    async def _listed(self, request: q.ListQueuesRequest) -> q.ListQueuesResponse | Refusal:
        outcome = await self._servicer.bulk.list_queues(
            request.namespace or _DEFAULT,
            request.prefix,
            convert.queues_cursor(request.page_token),
            request.page_size,
        )
        return outcome if isinstance(outcome, Refusal) else convert.queues_listed(outcome)

    def _start(self, sequence: int, kind: str, work: Any) -> None:
        """For what takes more than one call of the store."""

        async def answer() -> None:
            try:
                outcome = await work
            except CallerError as error:
                outcome = error.refusal
            self._answer(sequence, kind, outcome, _itself)

        task = asyncio.ensure_future(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_wait(self, owner: Owner, operation: pb.SessionOperation) -> None:
        handle = owner.handles.get(operation.cancel_wait.sequence)
        if handle is not None:
            handle.cancel()
        self._answer(operation.sequence, "cancel_wait", pb.CancelWaitResponse(), _itself)

    def _close_owner(self, _: Owner, operation: pb.SessionOperation) -> None:
        done = self._answerer(operation.sequence, "close_owner", _owner_closed)
        self._sessions.close_owner(self.session, operation.owner, done)

    def _keep_leases(self, _: Owner, operation: pb.SessionOperation) -> None:
        done = self._answerer(operation.sequence, "keep_leases", _leases_kept)
        self._sessions.keep_leases(self.session, operation.owner, operation.keep_leases.ids, done)

    def _heartbeat(self, _: Owner, operation: pb.SessionOperation) -> None:
        self._start(operation.sequence, "heartbeat", self._beaten())

    async def _beaten(self) -> pb.HeartbeatResponse | Refusal:
        standing = await self._sessions.heartbeat(self.session)
        return pb.HeartbeatResponse() if standing is None else standing


def _seen(task: asyncio.Future[Any]) -> None:
    """How a reader or a writer ended was decided upon already."""
    if not task.cancelled():
        task.exception()


def _itself(message: Message) -> Message:
    return message


def _owner_closed(released: int) -> pb.CloseOwnerResponse:
    return pb.CloseOwnerResponse(released=released)


def _leases_kept(released: int) -> pb.KeepLeasesResponse:
    return pb.KeepLeasesResponse(released=released)
