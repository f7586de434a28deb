"""The text queue: one command per connection, answered in one write, then closed.

Commands have no end of their own, so that when a command is complete is the heart of this file; `text_commands` reads
what was received so far, and this conversation decides with the help of end of stream and of quiet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from quintet.v1 import queue_service_pb2 as api
from quintet.v1 import reason_pb2
from quintet.v1.job_pb2 import PLACEMENT_ORIGINAL, Job, NewJob
from quintet.v1.session_service_pb2 import SessionResult

from quintet_adapters.messages import INVALID_COMMAND, CommandCounts, Outcome, Request, explain, outcome_of
from quintet_adapters.protocols.conversation import Conversation, End
from quintet_adapters.protocols.payload import BYTES_CONTENT_TYPE
from quintet_adapters.protocols.text_commands import Ack, Add, Command, CommandReader, Fault, Get, In, Save

_NOT_THERE: Final = frozenset(
    {
        reason_pb2.REASON_JOB_NOT_FOUND,
        reason_pb2.REASON_QUEUE_NOT_FOUND,
        reason_pb2.REASON_NOT_LEASED,
        reason_pb2.REASON_STALE_LEASE,
    }
)


@dataclass(frozen=True, slots=True)
class TextQueueLimits:
    """What one conversation keeps to. Times in milliseconds."""

    namespace: str = "default"
    lease_ms: int = 300_000
    course: bool = False
    """The later version of the course's text: ACK answers YES or NO, errors are the bare word, SAVE exists."""
    quiet_ms: int = 20
    read_timeout_ms: int = 5_000
    """From the last byte."""
    lifetime_ms: int = 60_000
    """For the whole command."""
    data_bytes_max: int = 1_000_000
    queue_name_bytes_max: int = 4096


class TextQueue(Conversation):
    """One client's conversation; see the module."""

    owner_leases: ClassVar[bool] = False
    commands: ClassVar[tuple[str, ...]] = ("ADD", "GET", "ACK", "IN", "SAVE", INVALID_COMMAND)

    def __init__(self, limits: TextQueueLimits, counts: CommandCounts) -> None:
        super().__init__(counts)
        self._limits = limits
        self._namespace = "" if limits.namespace == "default" else limits.namespace
        self._reader = CommandReader(limits.data_bytes_max, limits.queue_name_bytes_max, with_save=limits.course)
        self._asked = False
        """A command is complete: whatever else comes is dropped."""
        self._client_gone = False
        self.wake_after_ms = limits.read_timeout_ms
        self.lifetime_ms = limits.lifetime_ms

    # Inputs.

    def receive(self, data: bytes) -> None:
        if self._asked:
            return
        self._go_on(self._reader.receive(data))

    def receive_end(self) -> None:
        if self._asked:
            return
        if self._reader.is_empty:
            self._part(End.CLOSE)
        else:
            self._go_on(self._reader.end())

    def wake(self) -> None:
        if self._asked:
            return
        command = self._reader.settle()
        if command is None:
            self._time_out()
        else:
            self._go_on(command)

    def expire(self) -> None:
        if not self._asked:
            self._time_out()

    def finish(self) -> None:
        if not self._asked and self._reader.is_empty:
            self._part(End.CLOSE)

    def lose_client(self) -> None:
        self._client_gone = True
        if not self._asked:
            self._part(End.CLOSE)

    def receive_result(self, request: Request, result: SessionResult) -> None:
        if request.verb == "enqueue":
            self._added(result)
        elif request.verb == "dequeue":
            self._got(result)
        elif request.verb == "acknowledge":
            self._told(request, result, b"YES" if self._limits.course else b"OK")
        elif request.verb == "get_job":
            self._told(request, result, b"YES")

    # Commands.

    def _go_on(self, command: Command | None) -> None:
        if command is None:
            quiet_matters = self._reader.settle_after_quiet
            self.wake_after_ms = self._limits.quiet_ms if quiet_matters else self._limits.read_timeout_ms
            return
        self._stop_listening()
        match command:
            case Add(queue, data):
                self._ask_add(queue, data)
            case Get(queue):
                self._ask_get(queue)
            case Ack(queue, job_id):
                self._ask_ack(queue, job_id)
            case In(queue, job_id):
                self._ask_in(queue, job_id)
            case Save():
                self._answer("SAVE", "ok", b"OK")
            case Fault(word, reason):
                self._refuse(word, "refused", reason)

    def _ask_add(self, queue: str, data: bytes) -> None:
        job = NewJob(payload=data, content_type=BYTES_CONTENT_TYPE)
        message = api.EnqueueRequest(namespace=self._namespace, queue=queue, jobs=(job,), create_if_missing=True)
        self.requests.append(Request("enqueue", message, "ADD"))

    def _added(self, result: SessionResult) -> None:
        if result.HasField("failure"):
            self._refuse_failure("ADD", result)
        else:
            self._answer("ADD", "ok", b"%016x" % result.enqueue.ids[0])

    def _ask_get(self, queue: str) -> None:
        message = api.DequeueRequest(
            namespace=self._namespace, queues=(queue,), jobs_max=1, lease_ms=self._limits.lease_ms, allow_missing=True
        )
        self.requests.append(Request("dequeue", message, "GET"))

    def _got(self, result: SessionResult) -> None:
        if result.HasField("failure"):
            self._refuse_failure("GET", result)
        elif not result.dequeue.jobs:
            self._answer("GET", "empty", b"NONE")
        elif self._client_gone:
            self._give_back(result.dequeue.jobs[0])
        else:
            job = result.dequeue.jobs[0]
            self._answer("GET", "ok", b"%016x %d %b" % (job.id, len(job.payload), job.payload))

    def _give_back(self, job: Job) -> None:
        """The delivery never happened."""
        message = api.ReleaseRequest(
            namespace=self._namespace,
            id=job.id,
            token=job.lease.token,
            delay_ms=0,
            placement=PLACEMENT_ORIGINAL,
            undo_attempt=True,
        )
        self.requests.append(Request("release", message, "GET"))
        self._part(End.CLOSE)

    def _ask_ack(self, queue: str, job_id: int) -> None:
        if job_id <= 0:
            self._answer("ACK", "empty", b"NO")
            return
        message = api.AcknowledgeRequest(namespace=self._namespace, id=job_id, any_lease=True, queue=queue)
        self.requests.append(Request("acknowledge", message, "ACK"))

    def _ask_in(self, queue: str, job_id: int) -> None:
        if job_id <= 0:
            self._answer("IN", "empty", b"NO")
            return
        message = api.GetJobRequest(namespace=self._namespace, id=job_id, queue=queue, without_payload=True)
        self.requests.append(Request("get_job", message, "IN"))

    def _told(self, request: Request, result: SessionResult, yes: bytes) -> None:
        if not result.HasField("failure"):
            self._answer(request.command, "ok", yes)
        elif result.failure.reason in _NOT_THERE:
            self._answer(request.command, "empty", b"NO")
        else:
            self._refuse_failure(request.command, result)

    # Answers.

    def _refuse_failure(self, word: str, result: SessionResult) -> None:
        self._refuse(word, outcome_of(result.failure), explain(result.failure))

    def _refuse(self, word: str, outcome: Outcome, reason: str) -> None:
        self._answer(word, outcome, b"ERROR" if self._limits.course else b"ERROR " + reason.encode())

    def _answer(self, word: str, outcome: Outcome, answer: bytes) -> None:
        self.counts[word, outcome] += 1
        self.output.append(answer)
        self._part(End.LINGER)

    def _time_out(self) -> None:
        self._stop_listening()
        if self._reader.is_empty:
            self._part(End.CLOSE)
        else:
            self._refuse(INVALID_COMMAND, "refused", "no complete command in time")

    def _stop_listening(self) -> None:
        self._asked = True
        self.wake_after_ms = self.lifetime_ms = None

    def _part(self, end: End) -> None:
        self._stop_listening()
        self._reader.clear()
        self.end = end
