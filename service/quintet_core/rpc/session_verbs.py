"""The operations of a session: each is a message in, one call of what carries it out, and one result.

Callback style: an operation costs a closure and a result, not a task. The three hot verbs write their results down as
bytes (rpc/wire.py).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from time import perf_counter
from typing import Any

from google.protobuf.message import Message
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as pb
from quintet_kit.logs import get_logger

from quintet_core.domain.errors import CallerError, Reason, Refusal, broken, refusal
from quintet_core.domain.job import JobState, LeaseTerms
from quintet_core.domain.outcomes import Acknowledged, Deleted, Dequeued, Done
from quintet_core.operations.bulk import BulkOperations
from quintet_core.operations.queues import QueueOperations
from quintet_core.operations.tables import TableOperations
from quintet_core.rpc import convert, wire
from quintet_core.rpc.access import Access
from quintet_core.rpc.arrivals import Arrival, Arrivals, Count
from quintet_core.rpc.status import failure
from quintet_core.rpc.table_verbs import TableVerbs
from quintet_core.waiting.awaits import Await, Awaits
from quintet_core.waiting.dequeues import Dequeue, Dequeues
from quintet_core.waiting.sessions import Owner, Session, Sessions, Wait

_DEFAULT = convert.NAMESPACE_DEFAULT

Refused = Callable[[str, Refusal, float], None]
"""Told of each operation refused: its verb, the Refusal, and the seconds from its arrival to that."""


class SessionVerbs(TableVerbs):
    """Carries out the operations of one session and gathers their results."""

    session: Session

    def __init__(
        self,
        operations: QueueOperations,
        bulk: BulkOperations,
        tables: TableOperations,
        dequeues: Dequeues,
        awaits: Awaits,
        sessions: Sessions,
        access: Access,
        count: Count,
        refuse: Refused,
    ) -> None:
        self._operations = operations
        self._bulk = bulk
        self._tables = tables
        self._dequeues = dequeues
        self._awaits = awaits
        self._sessions = sessions
        self._access = None if access.unlimited else access
        self._refuse = refuse
        self._arrivals = Arrivals(count)
        # The request whose operations are being begun.
        self._arrival = Arrival()
        # Encoded, each as a field of SessionResponse.
        self._results: list[bytes] = []
        self._wake = asyncio.Event()
        # The writer has nothing to write, and waits to be woken.
        self._idle = False
        self._in_flight = 0
        # What may wait for jobs: it has a bound of its own, and must not stop the stream from being read.
        self._waits = 0
        # The client can be told nothing any more.
        self._gone = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Callable[[Owner, pb.SessionOperation], None]] = {
            "enqueue": self._enqueue,
            "dequeue": self._dequeue,
            "await_jobs": self._await_jobs,
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
            **self._table_handlers(),
            "cancel_wait": self._cancel_wait,
            "close_owner": self._close_owner,
            "heartbeat": self._heartbeat,
            "keep_leases": self._keep_leases,
        }

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
            self._answer(self._arrival, operation.sequence, kind or "unknown", error.refusal, None)
        except Exception as error:
            # Ours, and one operation's alone: the session goes on.
            get_logger().exception("operation_failed", verb=kind)
            refused = refusal(Reason.INTERNAL, what=repr(error))
            self._answer(self._arrival, operation.sequence, kind or "unknown", refused, None)

    def _check_access(self, kind: str, operation: pb.SessionOperation) -> None:
        request = getattr(operation, kind)
        namespace = getattr(request, "namespace", None)
        assert self._access is not None
        if namespace is not None and not self._access.allows(kind, namespace or _DEFAULT):
            raise CallerError(refusal(Reason.PERMISSION_DENIED))

    def _answer(
        self,
        arrival: Arrival,
        sequence: int,
        kind: str,
        outcome: Any,
        message: Callable[[Any], Message] | None,
    ) -> None:
        if outcome.__class__ is Refusal or message is None:
            self._refuse(kind, outcome, perf_counter() - arrival.at)
            self._give(wire.result(sequence, "failure", failure(outcome)))
        else:
            self._answer_encoded(arrival, kind, wire.result(sequence, kind, message(outcome)))

    def _answer_encoded(self, arrival: Arrival, kind: str, result: bytes) -> None:
        self._arrivals.answered(arrival, kind)
        self._give(result)

    def _give(self, result: bytes) -> None:
        self._in_flight -= 1
        self._results.append(result)
        if self._idle:
            self._wake.set()

    def _answerer(self, sequence: int, kind: str, message: Callable[[Any], Message]) -> Done[Any]:
        arrival = self._arrival

        def done(outcome: object) -> None:
            self._answer(arrival, sequence, kind, outcome, message)

        return done

    # --- operations

    def _enqueue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request, sequence, arrival = operation.enqueue, operation.sequence, self._arrival
        jobs = request.jobs
        if len(jobs) == 1 and convert.is_plain(job := jobs[0]):
            self._operations.enqueue_plain(
                request.namespace or _DEFAULT,
                request.queue,
                job.payload,
                job.content_type,
                job.rank,
                request.create_if_missing,
                lambda outcome: self._enqueued_plain(arrival, sequence, outcome),
                owner,
            )
            return
        self._operations.enqueue(
            request.namespace or _DEFAULT,
            request.queue,
            convert.new_jobs(request),
            request.create_if_missing,
            self._answerer(sequence, "enqueue", convert.enqueued),
            owner,
        )

    def _enqueued_plain(self, arrival: Arrival, sequence: int, outcome: int | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._answer(arrival, sequence, "enqueue", outcome, None)
        else:
            self._answer_encoded(arrival, "enqueue", wire.enqueued_one(sequence, outcome))

    def _dequeue(self, owner: Owner, operation: pb.SessionOperation) -> None:
        message, sequence, arrival = operation.dequeue, operation.sequence, self._arrival
        asked = owner.asked
        request = asked[1] if asked is not None and asked[0] == message else self._new_dequeue(owner, message)

        def done(outcome: Dequeued | Refusal) -> None:
            self._dequeued(owner, arrival, sequence, request, outcome)

        if request.wait_ms:
            self._wait(owner, sequence, done, lambda told: self._dequeues.dequeue(request, told, owner))
        else:
            self._dequeues.take(request, done, owner)

    def _new_dequeue(self, owner: Owner, message: q.DequeueRequest) -> Dequeue:
        """A request other than the owner's last one; mostly it makes the same again."""
        queues, namespace = list(message.queues), message.namespace or _DEFAULT
        if message.owner_lease:
            terms = self._owner_terms(owner, message)
            self._operations.limits.check_namespace(namespace)
            for queue in queues:
                self.session.entering(owner, self._operations.store.partition_of(namespace, queue))
        else:
            convert.placement(message.placement_on_close)
            terms = LeaseTerms(message.lease_ms, worker=message.worker)
        request = Dequeue(namespace, queues, terms, message.jobs_max or 1, message.wait_ms, message.allow_missing)
        if len(queues) == 1:
            # A copy: a message that was received keeps all that came with it in memory.
            kept = q.DequeueRequest()
            kept.CopyFrom(message)
            owner.asked = kept, request
        return request

    def _owner_terms(self, owner: Owner, message: q.DequeueRequest) -> LeaseTerms:
        """Those of the owner's last dequeue when they are the same, as they mostly are."""
        placement, worker, terms = convert.placement(message.placement_on_close), message.worker, owner.terms
        if terms is None or terms.placement_on_close != placement or terms.worker != worker:
            self._operations.limits.check_label("worker", worker)
            terms = owner.terms = LeaseTerms(0, self.session.id, owner.key, placement, worker, self._sessions.ttl_ms)
        return terms

    def _wait(self, owner: Owner, sequence: int, answer: Done[Any], start: Callable[[Done[Any]], Wait]) -> None:
        """Begin what may take hours: it can be cancelled, and is not among what is in flight."""
        if sequence in owner.handles:
            raise broken("sequence is that of an operation that still waits", field="sequence")

        def done(outcome: Any) -> None:
            owner.handles.pop(sequence, None)
            self._waits -= 1
            self._in_flight += 1
            answer(outcome)

        owner.handles[sequence] = start(done)
        self._waits += 1
        self._in_flight -= 1

    def _await_jobs(self, owner: Owner, operation: pb.SessionOperation) -> None:
        message = operation.await_jobs
        request = Await(message.namespace or _DEFAULT, list(message.queues), message.wait_ms, message.allow_missing)
        answer = self._answerer(operation.sequence, "await_jobs", convert.jobs_awaited)
        if request.wait_ms:
            self._wait(owner, operation.sequence, answer, lambda told: self._awaits.await_jobs(request, told, owner))
        else:
            self._awaits.await_jobs(request, answer, owner)

    def _dequeued(
        self, owner: Owner, arrival: Arrival, sequence: int, request: Dequeue, outcome: Dequeued | Refusal
    ) -> None:
        if isinstance(outcome, Refusal):
            self._answer(arrival, sequence, "dequeue", outcome, None)
            return
        if (self._gone or owner.closed) and outcome.jobs:
            self._dequeues.give_back(request, outcome.jobs, owner)
            self._answer(arrival, sequence, "dequeue", refusal(Reason.OWNER_CLOSED), None)
            return
        try:
            encoded = wire.dequeued(sequence, outcome)
        except (ValueError, struct.error):
            get_logger().exception("record_not_understood")
            refused = refusal(Reason.DAMAGED, "Redis holds something else than was written")
            self._answer(arrival, sequence, "dequeue", refused, None)
            return
        self._answer_encoded(arrival, "dequeue", encoded)

    def _acknowledge(self, owner: Owner, operation: pb.SessionOperation) -> None:
        request, sequence, arrival = operation.acknowledge, operation.sequence, self._arrival

        def done(outcome: Acknowledged | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(arrival, sequence, "acknowledge", outcome, None)
            else:
                self._answer_encoded(arrival, "acknowledge", wire.acknowledged(sequence))

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
        request, sequence, arrival = operation.delete, operation.sequence, self._arrival

        def done(outcome: Deleted | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._answer(arrival, sequence, "delete", outcome, None)
            else:
                self._answer_encoded(arrival, "delete", wire.deleted(sequence, outcome))

        self._operations.delete(request.namespace or _DEFAULT, request.id, convert.queue_of(request), done, owner)

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
        outcome = await self._bulk.list_queues(
            request.namespace or _DEFAULT,
            request.prefix,
            convert.queues_cursor(request.page_token),
            request.page_size,
        )
        return outcome if isinstance(outcome, Refusal) else convert.queues_listed(outcome)

    def _start(self, sequence: int, kind: str, work: Any) -> None:
        """For what takes more than one call of the store."""
        arrival = self._arrival

        async def answer() -> None:
            try:
                outcome = await work
            except CallerError as error:
                outcome = error.refusal
            self._answer(arrival, sequence, kind, outcome, _itself)

        task = asyncio.ensure_future(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_wait(self, owner: Owner, operation: pb.SessionOperation) -> None:
        handle = owner.handles.get(operation.cancel_wait.sequence)
        if handle is not None:
            handle.cancel()
        self._answer(self._arrival, operation.sequence, "cancel_wait", pb.CancelWaitResponse(), _itself)

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


def _itself(message: Message) -> Message:
    return message


def _owner_closed(released: int) -> pb.CloseOwnerResponse:
    return pb.CloseOwnerResponse(released=released)


def _leases_kept(released: int) -> pb.KeepLeasesResponse:
    return pb.KeepLeasesResponse(released=released)
