"""TaskFlux: binary packets; one request at a time, answered in order, with acknowledgements both ways.

A client that enqueues says what it wants to store, hears that it may (`k`), and acknowledges: only then is it stored. A
client that dequeues gets a record under a lease of its connection, and acknowledges: only then is it removed. What
comes behind a request that is under way waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import ClassVar, Final

from quintet.v1 import reason_pb2
from quintet.v1.queue_pb2 import QueueSettings
from quintet.v1.session_service_pb2 import Failure, SessionResult

from quintet_adapters.messages import (
    INVALID_COMMAND,
    CommandCounts,
    Outcome,
    Request,
    RequestMessage,
    Verb,
    outcome_of,
)
from quintet_adapters.protocols import taskflux_answers as answers
from quintet_adapters.protocols.conversation import Conversation, End
from quintet_adapters.protocols.taskflux_answers import OK, Code
from quintet_adapters.protocols.taskflux_packets import (
    Count,
    Create,
    Delete,
    Dequeue,
    Enqueue,
    Idle,
    List,
    Metadata,
    Packet,
    PacketFaultError,
    PacketReader,
)
from quintet_adapters.protocols.taskflux_requests import TaskFluxService, fault_of, is_queue_name

_AUTHORIZATION_NONE: Final = 0x4E  # N
_MAJOR, _MINOR = 1, 0
_UNREAD_BYTES_MAX: Final = 64 * 1024
_JOB_OVER: Final = frozenset({reason_pb2.REASON_JOB_NOT_FOUND, reason_pb2.REASON_QUEUE_NOT_FOUND})
_LEASE_OVER: Final = _JOB_OVER | {reason_pb2.REASON_NOT_LEASED, reason_pb2.REASON_STALE_LEASE}


class _Question(Request):
    """A request and what makes an answer of its result; None: no answer yet."""

    __slots__ = ("on_result", "waits")

    def __init__(
        self,
        verb: Verb,
        message: RequestMessage,
        command: str,
        on_result: Callable[[TaskFlux, SessionResult], bytes | None],
        *,
        takes_lease: bool = False,
    ) -> None:
        self.verb = verb
        self.message = message
        self.command = command
        self.on_result = on_result
        self.takes_lease = takes_lease
        self.waits = False


class _Settling(_Question):
    """Ends a lease that nobody works under from now on, whatever comes of it."""

    __slots__ = ()
    ends_lease = True


class TaskFlux(Conversation):
    """One client's conversation; see the module."""

    owner_leases: ClassVar[bool] = True
    commands: ClassVar[tuple[str, ...]] = (
        "enqueue",
        "dequeue",
        "acknowledge",
        "return",
        "count",
        "create",
        "delete",
        "list",
        "metadata",
        INVALID_COMMAND,
    )

    def __init__(self, service: TaskFluxService, counts: CommandCounts) -> None:
        super().__init__(counts)
        limits = service.limits
        self.idle_ms = limits.idle_ms
        self._service = service
        self._answers = service.answers
        self._reader = PacketReader(limits.packet_bytes_max, csharp=limits.csharp)
        self._step: Callable[[TaskFlux], bool] = TaskFlux._authorize
        """Takes one packet, as the state of the conversation wants it; False when more bytes are needed."""
        self._asking: _Question | None = None
        """The core has it, or will get it."""
        self._offered: Enqueue | None = None
        """To be stored when the client acknowledges it."""
        self._leased: tuple[int, int] | None = None
        """Id and token of the record that the client has in hand."""
        self._listed: list[bytes] = []
        self._listed_bytes = 0
        self._has_default = False
        self._holding = False
        self._ended = False
        self._finishing = False

    @property
    def leased_ids(self) -> Collection[int]:
        return () if self._leased is None else self._leased[:1]

    @property
    def is_idle(self) -> bool:
        # Who has sent everything may have gone: nobody can tell, so that such a wait is bounded.
        return self._asking is None or (self._ended and self._asking.waits)

    # Inputs.

    def receive(self, data: bytes) -> None:
        if self.end is None:
            self._reader.feed(data)
            self._advance()

    def receive_end(self) -> None:
        self._ended = True
        # A record is of no use to a client that cannot acknowledge it any more.
        if not self._reader.has_acknowledgement:
            self._stop_waiting()
        self._advance()

    def finish(self) -> None:
        self._finishing = True
        self._stop_waiting()
        self._advance()

    def idle(self) -> None:
        if self._asking is None:
            self._part(End.CLOSE)
        else:
            self._stop_waiting()

    def hold(self) -> None:
        self._holding = True

    def resume(self) -> None:
        self._holding = False
        self._advance()

    def receive_result(self, request: Request, result: SessionResult) -> None:
        if self.end is not None or not isinstance(request, _Question):
            return
        self._asking = None
        answer = request.on_result(self, result)
        if answer is not None:
            self.progress += 1
            self.output.append(answer)
        self._advance()

    # Packets.

    def _advance(self) -> None:
        """Takes packets while nothing holds them back, and ends when nothing is left to do."""
        try:
            while not (held := self._is_held()) and self._step(self):
                self.progress += 1
        except PacketFaultError as fault:
            self._end_with_fault(str(fault))
            return
        self.wants_input = not held or self._reader.waiting_bytes < _UNREAD_BYTES_MAX
        if self._ended or self._finishing:
            self._end_when_done(held)

    def _is_held(self) -> bool:
        return self._asking is not None or self._holding or self.end is not None

    def _end_when_done(self, held: bool) -> None:
        if self._asking is not None or self.end is not None:
            return
        confirming = self._offered is not None or self._leased is not None
        # Whole packets that are held back are taken later, but for those of a process that is about to stop.
        if (self._finishing and not confirming) or (self._ended and not held):
            self._part(End.CLOSE)

    def _end_with_fault(self, fault: str) -> None:
        self.counts[INVALID_COMMAND, "refused"] += 1
        if self._step not in (TaskFlux._authorize, TaskFlux._bootstrap):
            self.output.append(answers.error_response(fault))
        self._part(End.LINGER)

    def _part(self, end: End) -> None:
        self._reader.clear()
        self.requests.clear()
        self._asking = self._offered = self._leased = None
        self.end = end

    # Set-up.

    def _authorize(self) -> bool:
        method = self._reader.next_authorization()
        if method is None:
            return False
        if method == _AUTHORIZATION_NONE:
            self.output.append(answers.AUTHORIZED)
            self._step = TaskFlux._bootstrap
        else:
            self._refuse_set_up(answers.refused_authorization("unknown authorization method"))
        return True

    def _bootstrap(self) -> bool:
        version = self._reader.next_bootstrap()
        if version is None:
            return False
        if version == (_MAJOR, _MINOR):
            self.output.append(answers.BOOTSTRAPPED)
            self._step = TaskFlux._take_packet
        else:
            self._refuse_set_up(answers.refused_bootstrap(f"only version {_MAJOR}.{_MINOR} is spoken here"))
        return True

    def _refuse_set_up(self, answer: bytes) -> None:
        self.counts[INVALID_COMMAND, "refused"] += 1
        self.output.append(answer)
        self._part(End.LINGER)

    # Where nothing is pending.

    def _take_packet(self) -> bool:
        if self._finishing:
            return False
        packet = self._reader.next_packet()
        if packet is None:
            return False
        _STARTS[type(packet)](self, packet)
        return True

    def _ignore(self, _: Idle) -> None:
        """It has no effect."""

    def _answer_now(self, command: str, outcome: Outcome, answer: bytes) -> None:
        self.counts[command, outcome] += 1
        self.output.append(answer)

    def _refuse(self, command: str, code: Code) -> None:
        self._answer_now(command, "refused", self._answers.error(code))

    def _is_good(self, name: bytes, command: str) -> bool:
        """Whether it names a queue; if not, that is answered."""
        if is_queue_name(name):
            return True
        self._refuse(command, Code.BAD_NAME)
        return False

    def _ask(self, question: _Question) -> None:
        self._asking = question
        self.requests.append(question)

    # Enqueue

    def _enqueue(self, packet: Enqueue) -> None:
        if self._is_good(packet.queue, "enqueue"):
            self._offered = packet
            self._step = TaskFlux._confirm_enqueue
            self.output.append(OK)

    def _confirm_enqueue(self) -> bool:
        confirmed = self._reader.next_acknowledgement()
        if confirmed is None or self._offered is None:
            return False
        offered, self._offered = self._offered, None
        self._step = TaskFlux._take_packet
        if confirmed:
            self._store(offered)
        else:
            self._answer_now("enqueue", "empty", OK)
        return True

    def _store(self, record: Enqueue) -> None:
        self._ask(_Question("enqueue", self._service.enqueue_request(record), "enqueue", TaskFlux._enqueued))

    def _enqueued(self, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._failed("enqueue", result.failure)
        self.counts["enqueue", "ok"] += 1
        return OK

    # Dequeue

    def _dequeue(self, packet: Dequeue) -> None:
        if not self._is_good(packet.queue, "dequeue"):
            return
        futile = self._ended and not self._reader.has_acknowledgement
        message = self._service.dequeue_request(packet.queue, 0 if futile else packet.wait_ms)
        question = _Question("dequeue", message, "dequeue", TaskFlux._dequeued, takes_lease=True)
        question.waits = message.wait_ms > 0
        self._ask(question)

    def _stop_waiting(self) -> None:
        """Ends the Dequeue that waits, if any; the core may have given it a record already."""
        if self._asking is not None and self._asking.waits:
            self._asking.waits = False
            self.cancels.append(self._asking)

    def _dequeued(self, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            failure = result.failure
            if self._ended and failure.reason == reason_pb2.REASON_CANCELLED:
                return self._nothing()
            return self._failed("dequeue", failure)
        if not result.dequeue.jobs:
            return self._nothing()
        job = result.dequeue.jobs[0]
        self._leased = (job.id, job.lease.token)
        self._step = TaskFlux._confirm_dequeue
        self.counts["dequeue", "ok"] += 1
        return answers.record(job.rank, job.payload)

    def _nothing(self) -> bytes:
        self.counts["dequeue", "empty"] += 1
        return answers.NOTHING

    def _confirm_dequeue(self) -> bool:
        confirmed = self._reader.next_acknowledgement()
        if confirmed is None or self._leased is None:
            return False
        job_id, token = self._leased
        self._step = TaskFlux._take_packet
        if confirmed:
            acknowledge = self._service.acknowledge_request(job_id, token)
            self._ask(_Settling("acknowledge", acknowledge, "acknowledge", TaskFlux._acknowledged))
        else:
            release = self._service.release_request(job_id, token)
            self._ask(_Settling("release", release, "return", TaskFlux._returned))
        return True

    def _acknowledged(self, result: SessionResult) -> bytes:
        # Ok says that the record is removed: of one that somebody gave back for this client, it would be a lie.
        return self._settled("acknowledge", result, _JOB_OVER)

    def _returned(self, result: SessionResult) -> bytes:
        return self._settled("return", result, _LEASE_OVER)

    def _settled(self, command: str, result: SessionResult, settled_anyway: Container[int]) -> bytes:
        self._leased = None
        if not result.HasField("failure"):
            self.counts[command, "ok"] += 1
        elif result.failure.reason in settled_anyway:
            # The queue was deleted, or somebody ended the job otherwise: the client need not care.
            self.counts[command, "empty"] += 1
        else:
            return self._failed(command, result.failure)
        return OK

    # Count

    def _count(self, packet: Count) -> None:
        if self._is_good(packet.queue, "count"):
            counted = TaskFlux._counted if packet.queue else TaskFlux._default_counted
            self._ask(_Question("count", self._service.count_request(packet.queue), "count", counted))

    def _default_counted(self, result: SessionResult) -> bytes:
        """Should the default queue be missing, it is an empty one."""
        if result.failure.reason == reason_pb2.REASON_QUEUE_NOT_FOUND:
            self.counts["count", "ok"] += 1
            return answers.count(0)
        return self._counted(result)

    def _counted(self, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._failed("count", result.failure)
        self.counts["count", "ok"] += 1
        counts = result.count.counts
        return answers.count(counts.ready + counts.delayed)

    # Create

    def _create(self, packet: Create) -> None:
        code = fault_of(packet, csharp=self._service.limits.csharp)
        if code is not None:
            self._refuse("create", code)
        else:
            self._ask(_Question("create_queue", self._service.create_request(packet), "create", TaskFlux._created))

    def _created(self, result: SessionResult) -> bytes:
        return self._done("create", result)

    # Delete

    def _delete(self, packet: Delete) -> None:
        if not packet.queue:
            self._refuse("delete", Code.BAD_NAME)
        elif self._is_good(packet.queue, "delete"):
            self._ask(
                _Question("delete_queue", self._service.delete_request(packet.queue), "delete", TaskFlux._deleted)
            )

    def _deleted(self, result: SessionResult) -> bytes:
        return self._done("delete", result)

    def _done(self, command: str, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._failed(command, result.failure)
        self.counts[command, "ok"] += 1
        return OK

    # List

    def _list(self, _: List) -> None:
        self._has_default = False
        self._ask_page("")

    def _ask_page(self, page_token: str) -> None:
        self._ask(_Question("list_queues", self._service.list_request(page_token), "list", TaskFlux._page_listed))

    def _page_listed(self, result: SessionResult) -> bytes | None:
        if result.HasField("failure"):
            return self._end_list(self._failed("list", result.failure))
        for queue in result.list_queues.queues:
            name = queue.name.encode()
            if is_queue_name(name):
                self._add_listed(name, answers.listed(name, answers.size_of(queue), queue.settings))
        if self._listed_bytes > self._service.limits.packet_bytes_max:
            self.counts["list", "refused"] += 1
            return self._end_list(self._answers.error(Code.UNKNOWN, "too many queues for one packet"))
        if page_token := result.list_queues.next_page_token:
            self._ask_page(page_token)
            return None
        if not self._has_default:
            self._add_listed(b"", answers.listed(b"", 0, QueueSettings()))
        self.counts["list", "ok"] += 1
        return self._end_list(answers.queues(self._listed))

    def _add_listed(self, name: bytes, entry: bytes) -> None:
        self._has_default |= not name
        self._listed.append(entry)
        self._listed_bytes += len(entry)

    def _end_list(self, answer: bytes) -> bytes:
        self._listed, self._listed_bytes = [], 0
        return answer

    # ClusterMetadata

    def _metadata(self, packet: Metadata) -> None:
        self.counts["metadata", "ok"] += packet.times
        self.output.append(answers.metadata(self._service.address) * packet.times)

    # Shared.

    def _failed(self, command: str, failure: Failure) -> bytes:
        self.counts[command, outcome_of(failure)] += 1
        if failure.reason == reason_pb2.REASON_CANCELLED and self._finishing:
            return self._answers.error(Code.UNKNOWN, "shutting down, try again")
        return self._answers.failed(failure)


_STARTS: Final[dict[type[Packet], Callable[..., None]]] = {
    Enqueue: TaskFlux._enqueue,
    Dequeue: TaskFlux._dequeue,
    Count: TaskFlux._count,
    Create: TaskFlux._create,
    Delete: TaskFlux._delete,
    List: TaskFlux._list,
    Metadata: TaskFlux._metadata,
    Idle: TaskFlux._ignore,
}
