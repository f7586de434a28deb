"""Job Centre: one JSON object per line, pipelined, answered in order.

A request goes to the core as soon as its line is there, without waiting for the results of earlier ones: the core
carries out the operations of one owner in the order sent. Two things wait:
- everything behind a `get` that waits, until that get is answered;
- an `abort`, and all behind it, until the gets before it are answered: it needs the lease of the job they may bring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import ClassVar, Final

import msgspec
from quintet.v1 import queue_service_pb2 as api
from quintet.v1 import reason_pb2
from quintet.v1.job_pb2 import PLACEMENT_ORIGINAL, Job
from quintet.v1.session_service_pb2 import Failure, SessionResult

from quintet_adapters.messages import (
    INVALID_COMMAND,
    CommandCounts,
    Outcome,
    Request,
    RequestMessage,
    Verb,
    explain,
    outcome_of,
)
from quintet_adapters.protocols.conversation import Conversation, End
from quintet_adapters.protocols.job_centre_requests import Command, Fields, JobCentreReader, decode
from quintet_adapters.protocols.json_source import JsonFaultError, json_string
from quintet_adapters.protocols.lines import LineBuffer, TooLong
from quintet_adapters.protocols.payload import as_json_object

ID_MAX: Final = 2**63 - 1
NO_LEASE: Final = -1

_OK: Final = b'{"status":"ok"}\n'
_NO_JOB: Final = b'{"status":"no-job"}\n'
_UNREAD_BYTES_MAX: Final = 64 * 1024
_HANG_UP: Final = b""
"""Takes the place of the answer where the conversation ends without one."""


class _Turn(Request):
    """A request with its place in the order of answers. What no one reads before it is written has no first value."""

    __slots__ = ("answer", "job_id", "line_bytes", "on_result", "token")

    job_id: int
    token: int

    def __init__(self, command: str, line_bytes: int) -> None:
        self.command = command
        self.line_bytes = line_bytes
        self.takes_lease = False
        self.answer: bytes | None = None

    def ask(self, verb: Verb, message: RequestMessage, on_result: Callable[[_Turn, SessionResult], bytes]) -> None:
        """Fills in what to ask of the core and who makes an answer of the result."""
        self.verb = verb
        self.message = message
        self.on_result = on_result


class JobCentre(Conversation):
    """One client's conversation; see the module."""

    owner_leases: ClassVar[bool] = True
    commands: ClassVar[tuple[str, ...]] = ("put", "get", "delete", "abort", INVALID_COMMAND)

    def __init__(self, reader: JobCentreReader, counts: CommandCounts) -> None:
        super().__init__(counts)
        self._reader = reader
        self._limits = limits = reader.limits
        self._requests_max = limits.requests_max
        self._bytes_max = limits.bytes_max
        self._namespace = reader.namespace
        self._lines = LineBuffer(limits.line_bytes_max)
        self._turns: deque[_Turn] = deque()
        self._turn_bytes = 0
        self._leases: dict[int, int] = {}
        self._waiting: _Turn | None = None
        self._abort: _Turn | None = None
        self._gets = 0
        self._gets_max = 16
        self._holding = False
        self._stalled = False
        """Lines may wait to be taken: something held them back when last they were looked at."""
        self._ended = False
        self._finishing = False

    @property
    def leased_ids(self) -> Collection[int]:
        return self._leases.keys()

    # Inputs.

    def receive(self, data: bytes) -> None:
        if self.end is not None or self._finishing:
            return
        if not self._stalled and self._lines.is_one_line(data):
            self._take(data[:-1])
            self._stalled = self._is_held()
        else:
            self._lines.feed(data)
            self._advance()

    def receive_end(self) -> None:
        self._ended = True
        self._stop_waiting()
        self._advance()

    def finish(self) -> None:
        self._finishing = True
        self._lines.clear()
        self._stop_waiting()
        self._advance()

    def hold(self) -> None:
        self._holding = self._stalled = True

    def resume(self) -> None:
        self._holding = False
        self._advance()

    def receive_result(self, request: Request, result: SessionResult) -> None:
        if not isinstance(request, _Turn):
            return self._lease_checked(request, result)
        if self.end is not None:
            return None
        request.answer = request.on_result(request, result)
        if request is self._turns[0]:
            self._write_answers()
        if self._stalled or self._ended or self._finishing:
            self._advance()
        return None

    # Lines.

    def _advance(self) -> None:
        """Takes lines while nothing holds them back, and ends when nothing is left to do."""
        while not (stalled := self._is_held()):
            line = self._lines.next_line()
            if line is None:
                break
            self._take(line)
        self._stalled = stalled
        self.wants_input = not stalled or self._lines.waiting_bytes < _UNREAD_BYTES_MAX
        if self._ended or self._finishing:
            self._end_when_done()

    def _is_held(self) -> bool:
        return (
            self._holding
            or self._waiting is not None
            or self._abort is not None
            or len(self._turns) >= self._requests_max
            or self._turn_bytes >= self._bytes_max
            or self._gets >= self._gets_max
            or self.end is not None
        )

    def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            self._refuse(INVALID_COMMAND, f"line too long: at most {self._limits.line_bytes_max} bytes", 0)
            return
        command: str = INVALID_COMMAND
        try:
            fields = decode(line)
            command = self._reader.command(fields)
            _STARTS[command](self, _Turn(command, len(line)), fields)
        except JsonFaultError as fault:
            self._refuse(command, str(fault), len(line))

    def _refuse(self, command: str, reason: str, line_bytes: int) -> None:
        self._answer_now(_Turn(command, line_bytes), _error(reason), "refused")

    def _answer_now(self, turn: _Turn, answer: bytes, outcome: Outcome) -> None:
        """Answers without the core, in the turn's place."""
        self.counts[turn.command, outcome] += 1
        if self._turns:
            turn.answer = answer
            self._turns.append(turn)
            self._turn_bytes += turn.line_bytes
        else:
            self.output.append(answer)

    def _send(self, turn: _Turn) -> None:
        self._turns.append(turn)
        self._turn_bytes += turn.line_bytes
        self.requests.append(turn)

    def _write_answers(self) -> None:
        turns, output = self._turns, self.output
        while turns and (answer := turns[0].answer) is not None:
            self._turn_bytes -= turns.popleft().line_bytes
            if answer is _HANG_UP:
                self._part()
                return
            output.append(answer)

    def _end_when_done(self) -> None:
        if not self._turns and self.end is None and (self._finishing or self._lines.is_drained):
            self._part()

    def _part(self) -> None:
        self._lines.clear()
        self._turns.clear()
        self.requests.clear()
        self.end = End.CLOSE

    # put

    def _put(self, turn: _Turn, fields: Fields) -> None:
        turn.ask("enqueue", self._reader.enqueue_request(fields), self._put_done)
        self._send(turn)

    def _put_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._failed(turn, result.failure)
        self.counts["put", "ok"] += 1
        return b'{"status":"ok","id":%d}\n' % result.enqueue.ids[0]

    # get

    def _get(self, turn: _Turn, fields: Fields) -> None:
        wait = self._reader.waits(fields)
        message = self._reader.dequeue_request(fields, wait and not self._ended)
        if message is None:
            self._get_from_nowhere(turn, wait)
            return
        turn.takes_lease = True
        turn.ask("dequeue", message, self._get_done)
        self._gets += 1
        if wait:
            self._waiting = turn
        self._send(turn)

    def _get_from_nowhere(self, turn: _Turn, wait: bool) -> None:
        if not wait:
            self._answer_now(turn, _NO_JOB, "empty")
            return
        self._turns.append(turn)
        self._waiting = turn
        if self._ended:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        """Ends the waiting get, if any; the core may have given it a job already."""
        turn = self._waiting
        if turn is None:
            return
        if turn.takes_lease:
            self.cancels.append(turn)
            return
        if self._ended:
            turn.answer = _HANG_UP
        else:
            turn.answer = _error("shutting down, try again")
            self._waiting = None
        self._write_answers()

    def _get_done(self, turn: _Turn, result: SessionResult) -> bytes:
        answer = self._answer_get(turn, result)
        # A get that hangs up goes on holding back what is behind it, which is never carried out.
        if turn is self._waiting and answer is not _HANG_UP:
            self._waiting = None
        self._gets -= 1
        self._start_held_abort()
        return answer

    def _answer_get(self, turn: _Turn, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            answer = self._failed(turn, result.failure)
        elif jobs := result.dequeue.jobs:
            self.counts["get", "ok"] += 1
            return self._hand_over(jobs[0])
        else:
            self.counts["get", "empty"] += 1
            answer = _NO_JOB
        # End of stream ends a wait without an answer.
        return _HANG_UP if turn is self._waiting and self._ended else answer

    def _hand_over(self, job: Job) -> bytes:
        payload = as_json_object(job.content_type, job.payload)
        # As many gets at once as there is room for answers like this one.
        self._gets_max = max(1, min(2 * self._gets_max, self._limits.bytes_max // (len(payload) + 64)))
        self._leases[job.id] = job.lease.token
        if len(self._leases) > self._limits.leases_checked_above:
            self._check_oldest_lease()
        return b'{"status":"ok","id":%d,"job":%b,"pri":%d,"queue":%b}\n' % (
            job.id,
            payload,
            -job.rank,
            json_string(job.queue),
        )

    def _check_oldest_lease(self) -> None:
        """Jobs in hand that others have deleted would otherwise be remembered for ever."""
        job_id = next(iter(self._leases))
        message = api.GetJobRequest(namespace=self._namespace, id=job_id, without_payload=True)
        self.requests.append(Request("get_job", message, "get"))
        self._leases[job_id] = self._leases.pop(job_id)

    def _lease_checked(self, request: Request, result: SessionResult) -> None:
        message = request.message
        if isinstance(message, api.GetJobRequest) and _reason_of(result) == reason_pb2.REASON_JOB_NOT_FOUND:
            self._leases.pop(message.id, None)

    # delete

    def _delete(self, turn: _Turn, fields: Fields) -> None:
        turn.job_id = self._reader.job_id(fields)
        if not 0 < turn.job_id <= ID_MAX:
            self._answer_now(turn, _NO_JOB, "empty")
            return
        turn.ask("delete", api.DeleteRequest(namespace=self._namespace, id=turn.job_id), self._delete_done)
        self._send(turn)

    def _delete_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._gone(turn) if _is_gone(result) else self._failed(turn, result.failure)
        self._leases.pop(turn.job_id, None)
        self.counts["delete", "ok"] += 1
        return _OK

    def _gone(self, turn: _Turn) -> bytes:
        self._leases.pop(turn.job_id, None)
        self.counts[turn.command, "empty"] += 1
        return _NO_JOB

    # abort

    def _abort_job(self, turn: _Turn, fields: Fields) -> None:
        turn.job_id = self._reader.job_id(fields)
        if not 0 < turn.job_id <= ID_MAX:
            self._answer_now(turn, _NO_JOB, "empty")
            return
        self._turns.append(turn)
        self._turn_bytes += turn.line_bytes
        self._abort = turn
        self._start_held_abort()

    def _start_held_abort(self) -> None:
        turn = self._abort
        if turn is None or self._gets:
            return
        self._abort = None
        turn.token = self._leases.get(turn.job_id, NO_LEASE)
        if turn.token == NO_LEASE:
            lookup = api.GetJobRequest(namespace=self._namespace, id=turn.job_id, without_payload=True)
            turn.ask("get_job", lookup, self._foreign_abort_done)
        else:
            release = api.ReleaseRequest(
                namespace=self._namespace,
                id=turn.job_id,
                token=turn.token,
                delay_ms=0,
                placement=PLACEMENT_ORIGINAL,
            )
            turn.ask("release", release, self._abort_done)
        self.requests.append(turn)

    def _abort_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if _is_gone(result):
            return self._gone(turn)
        reason = _reason_of(result)
        refused = reason in (reason_pb2.REASON_NOT_LEASED, reason_pb2.REASON_STALE_LEASE)
        if reason and not refused:
            return self._failed(turn, result.failure)
        # Unless a later get has brought the same job again.
        if self._leases.get(turn.job_id) == turn.token:
            del self._leases[turn.job_id]
        return self._not_worked_on(turn) if refused else self._aborted()

    def _aborted(self) -> bytes:
        self.counts["abort", "ok"] += 1
        return _OK

    def _foreign_abort_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if _is_gone(result):
            return self._gone(turn)
        if result.HasField("failure"):
            return self._failed(turn, result.failure)
        return self._not_worked_on(turn)

    def _not_worked_on(self, turn: _Turn) -> bytes:
        self.counts["abort", "refused"] += 1
        return _error("this client does not work on that job")

    # Shared.

    def _failed(self, turn: _Turn, failure: Failure) -> bytes:
        self.counts[turn.command, outcome_of(failure)] += 1
        return _error(explain(failure))


_Start = Callable[[JobCentre, _Turn, Fields], None]

_STARTS: Final[dict[Command, _Start]] = {
    "put": JobCentre._put,
    "get": JobCentre._get,
    "delete": JobCentre._delete,
    "abort": JobCentre._abort_job,
}


def _error(reason: str) -> bytes:
    return b'{"status":"error","error":%b}\n' % msgspec.json.encode(reason)


def _reason_of(result: SessionResult) -> int:
    """The reason of a failure, or 0."""
    return (result.failure.reason or reason_pb2.REASON_INTERNAL) if result.HasField("failure") else 0


def _is_gone(result: SessionResult) -> bool:
    return _reason_of(result) == reason_pb2.REASON_JOB_NOT_FOUND
