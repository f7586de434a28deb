"""Etzel: JSON requests, by WebSocket or as lines, pipelined, answered in order; and wake-ups (`awk`) between answers.

A request goes to the core as soon as it is there, without waiting for the results of earlier ones: the core carries out
the operations of one owner in the order sent. ISLP becomes one `await_jobs` per queue, which waits in the core for a
ready job and becomes the `awk`, but never before `okslp` is written. It looks at the queue when it arrives, so that
nothing published since the client looked is missed. When the core goes away with the wait, it is asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
from quintet_adapters.protocols.etzel_requests import COMMANDS, Command, EtzelReader, Fields, Queue, decode
from quintet_adapters.protocols.framing import Framing, Lines, Over, Unfit
from quintet_adapters.protocols.json_source import JsonFaultError
from quintet_adapters.protocols.payload import as_json
from quintet_adapters.protocols.websocket import WebSocket

_UNREAD_BYTES_MAX: Final = 64 * 1024
_AT_ITS_TURN: Final = b""
"""Takes the place of an answer that is made when everything before it is answered."""

_NO_QUEUE: Final = b'{"cmd":"nok","err":"Q_NOT_FOUND"}'
_NOT_SUBSCRIBED: Final = b'{"cmd":"nok","err":"NOT_SUBSCRIBED"}'
_UNAVAILABLE: Final = b'{"cmd":"nok","err":"UNAVAILABLE"}'

_BAD: Final = frozenset(
    {
        reason_pb2.REASON_INVALID_ARGUMENT,
        reason_pb2.REASON_LIMIT_EXCEEDED,
        reason_pb2.REASON_PAYLOAD_TOO_LARGE,
    }
)
_GONE: Final = frozenset({reason_pb2.REASON_JOB_NOT_FOUND, reason_pb2.REASON_QUEUE_NOT_FOUND})


class _Turn(Request):
    """A request with its place in the order of answers. What no one reads before it is written has no first value."""

    __slots__ = ("answer", "on_result", "queue", "source_bytes", "uid")

    uid: str
    queue: Queue

    def __init__(self, command: str, source_bytes: int) -> None:
        self.command = command
        self.source_bytes = source_bytes
        self.takes_lease = False
        self.answer: bytes | None = None

    def ask(self, verb: Verb, message: RequestMessage, on_result: Callable[[_Turn, SessionResult], bytes]) -> None:
        """Fills in what to ask of the core and who makes an answer of the result."""
        self.verb = verb
        self.message = message
        self.on_result = on_result


class _Sleep(Request):
    """A place on a queue's sleep list: the wait in the core that will wake the client."""

    __slots__ = ("announced", "queue", "ready")

    def __init__(self, queue: Queue) -> None:
        super().__init__("await_jobs", queue.await_jobs, "ISLP")
        self.queue = queue
        self.announced = False
        """`okslp` is written."""
        self.ready = False
        """There was a job before that."""


class Etzel(Conversation):
    """One client's conversation; see the module."""

    owner_leases: ClassVar[bool] = False
    commands: ClassVar[tuple[str, ...]] = (*COMMANDS, INVALID_COMMAND)

    def __init__(self, reader: EtzelReader, framing: Framing, counts: CommandCounts) -> None:
        super().__init__(counts)
        self._reader = reader
        self._framing = framing
        self._limits = limits = reader.limits
        self._requests_max = limits.requests_max
        self._bytes_max = limits.bytes_max
        self._turns: deque[_Turn] = deque()
        self._turn_bytes = 0
        self._fetches = 0
        self._fetches_max = 16
        self._claimed: set[str] = set()
        """Queues that SUB was asked for."""
        self._subscribed: set[str] = set()
        """Those for which it was done."""
        self._sleeps: dict[str, _Sleep] = {}
        """The sleep lists that the client is on."""
        self._holding = False
        self._stalled = False
        """Messages may wait to be taken: something held them back when last they were looked at."""
        self._ended = False
        self._finishing = False
        self._ending = False
        """No further request is to come, for whatever reason."""

    @classmethod
    def by_lines(cls, reader: EtzelReader, counts: CommandCounts) -> Etzel:
        """With a client of the TCP port."""
        return cls(reader, Lines(reader.limits.frame_bytes_max), counts)

    @classmethod
    def by_websocket(cls, reader: EtzelReader, counts: CommandCounts) -> Etzel:
        """With a client of the WebSocket port, which has yet to shake hands."""
        conversation = cls(reader, WebSocket(reader.limits.path, reader.limits.frame_bytes_max), counts)
        conversation.lifetime_ms = reader.limits.handshake_ms
        return conversation

    # Inputs.

    def receive(self, data: bytes) -> None:
        framing = self._framing
        if self.end is not None or self._finishing or framing.over is not None:
            return
        if not self._stalled and (message := framing.sole_message(data)) is not None:
            self._take(message)
            self._stalled = self._is_held()
        else:
            framing.feed(data)
            self._advance()

    def receive_end(self) -> None:
        self._ended = self._ending = True
        self._look_once_more()
        self._advance()

    def finish(self) -> None:
        self._finishing = self._ending = True
        self._framing.clear()
        self._advance()

    def expire(self) -> None:
        """The opening handshake took too long."""
        self._part(End.CLOSE)

    def hold(self) -> None:
        self._holding = self._stalled = True

    def resume(self) -> None:
        self._holding = False
        self._advance()

    def lose_client(self) -> None:
        self._stop_sleeping()
        self._turns.clear()
        self.retries.clear()
        self.end = End.CLOSE

    def receive_result(self, request: Request, result: SessionResult) -> None:
        if isinstance(request, _Turn):
            if self.end is not None:
                self._give_back(result)
                return
            request.answer = request.on_result(request, result)
            if request is self._turns[0]:
                self._write_answers()
        elif isinstance(request, _Sleep):
            self._awaited(request, result)
        if self._stalled or self._ending:
            self._advance()

    # Messages.

    def _advance(self) -> None:
        """Takes messages while nothing holds them back, and ends when nothing is left to do."""
        framing = self._framing
        while not (stalled := self._is_held()):
            message = framing.next_message()
            if framing.replies:
                self._pass_on_replies()
            if message is None:
                break
            self._take(message)
        self._stalled = stalled
        self.wants_input = not stalled or framing.waiting_bytes < _UNREAD_BYTES_MAX
        if framing.over is not None:
            self._ending = True
        if self._ending:
            self._end_when_done()

    def _pass_on_replies(self) -> None:
        self.lifetime_ms = None  # the first reply ends the opening handshake
        self.output.extend(self._framing.replies)
        self._framing.replies.clear()

    def _is_held(self) -> bool:
        return (
            self._holding
            or len(self._turns) >= self._requests_max
            or self._turn_bytes >= self._bytes_max
            or self._fetches >= self._fetches_max
            or self.end is not None
        )

    def _take(self, message: bytes | Unfit) -> None:
        if isinstance(message, Unfit):
            self._refuse(INVALID_COMMAND, message.reason, 0)
            return
        command: str = INVALID_COMMAND
        try:
            fields = decode(message)
            command = self._reader.command(fields)
            turn = _Turn(command, len(message))
            turn.queue = self._reader.queue(fields)
            _STARTS[command](self, turn, fields)
        except JsonFaultError as fault:
            self._refuse(command, str(fault), len(message))

    def _refuse(self, command: str, reason: str, source_bytes: int) -> None:
        self._answer_now(_Turn(command, source_bytes), _nok("BAD_REQUEST", reason), "refused")

    def _answer_now(self, turn: _Turn, answer: bytes, outcome: Outcome) -> None:
        """Answers without the core, in the turn's place."""
        self.counts[turn.command, outcome] += 1
        if self._turns:
            turn.answer = answer
            self._turns.append(turn)
            self._turn_bytes += turn.source_bytes
        else:
            self._framing.write(answer, self.output)

    def _send(self, turn: _Turn) -> None:
        self._turns.append(turn)
        self._turn_bytes += turn.source_bytes
        self.requests.append(turn)

    def _write_answers(self) -> None:
        turns, write, output = self._turns, self._framing.write, self.output
        while turns and (answer := turns[0].answer) is not None:
            turn = turns.popleft()
            self._turn_bytes -= turn.source_bytes
            if answer is _AT_ITS_TURN:
                self._fall_asleep(turn)
            else:
                write(answer, output)

    # The end.

    def _end_when_done(self) -> None:
        if self.end is not None:
            return
        if self._framing.over is Over.LEFT:
            self._turns.clear()
        elif self._turns or (self._stalled and self._framing.over is None and not self._finishing):
            return
        if self._ended and self._sleeps and not self._finishing:
            return  # each looks once more
        self._part(End.LINGER if self._framing.over is Over.FAILED or self._finishing else End.CLOSE)

    def _part(self, end: End) -> None:
        if goodbye := self._framing.goodbye():
            self.output.append(goodbye)
        self._stop_sleeping()
        self._framing.clear()
        self.end = end

    def _give_back(self, result: SessionResult) -> None:
        """The client left before its message was there: that delivery never happened."""
        for job in result.dequeue.jobs:
            message = api.ReleaseRequest(
                namespace=self._reader.namespace,
                id=job.id,
                token=job.lease.token,
                delay_ms=0,
                placement=PLACEMENT_ORIGINAL,
                undo_attempt=True,
            )
            self.requests.append(Request("release", message, "FET"))

    # SUB

    def _subscribe(self, turn: _Turn, _fields: Fields) -> None:
        if turn.queue.name not in self._claimed:
            if len(self._claimed) >= self._limits.subscriptions_max:
                raise JsonFaultError(f"too many subscriptions: at most {self._limits.subscriptions_max} queues")
            self._claimed.add(turn.queue.name)
        turn.ask("create_queue", turn.queue.create, self._subscribe_done)
        self._send(turn)

    def _subscribe_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if result.HasField("failure") and result.failure.reason != reason_pb2.REASON_QUEUE_EXISTS:
            return self._failed(turn, result.failure)
        self._subscribed.add(turn.queue.name)
        self.counts["SUB", "ok"] += 1
        return b'{"cmd":"oksub","qname":%b}' % turn.queue.json

    # ISLP

    def _sleep(self, turn: _Turn, _fields: Fields) -> None:
        name = turn.queue.name
        if name in self._claimed and name not in self._sleeps:
            self._await_jobs(turn.queue)
        if self._turns:
            turn.answer = _AT_ITS_TURN
            self._turns.append(turn)
            self._turn_bytes += turn.source_bytes
        else:
            self._fall_asleep(turn)

    def _fall_asleep(self, turn: _Turn) -> None:
        queue = turn.queue
        sleep = self._sleeps.get(queue.name)
        if queue.name not in self._subscribed:
            self.counts["ISLP", "refused"] += 1
            self._framing.write(_NOT_SUBSCRIBED, self.output)
            if sleep is not None:
                self.cancels.append(self._sleeps.pop(queue.name))
            return
        self.counts["ISLP", "ok"] += 1
        self._framing.write(b'{"cmd":"okslp","qname":%b}' % queue.json, self.output)
        if sleep is None:  # the client was on the list, and has been woken since
            sleep = self._await_jobs(queue)
        sleep.announced = True
        if sleep.ready:
            self._wake_up(sleep)

    def _await_jobs(self, queue: Queue) -> _Sleep:
        self._sleeps[queue.name] = sleep = _Sleep(queue)
        self.requests.append(sleep)
        if self._ended:
            self.cancels.append(sleep)
        return sleep

    def _wake_up(self, sleep: _Sleep) -> None:
        del self._sleeps[sleep.queue.name]
        self._framing.write(b'{"cmd":"awk","qname":%b}' % sleep.queue.json, self.output)

    def _awaited(self, sleep: _Sleep, result: SessionResult) -> None:
        name = sleep.queue.name
        if self._sleeps.get(name) is not sleep:
            return
        if result.await_jobs.ready:
            sleep.ready = True
            if sleep.announced:
                self._wake_up(sleep)
        elif not self._ended:
            self.retries.append(sleep)
        elif sleep.message is sleep.queue.await_jobs:
            self._look_now(sleep)
        else:
            del self._sleeps[name]

    def _look_once_more(self) -> None:
        """A client that sends nothing more has no use for a later wake-up, but is told of what is there already."""
        self.cancels.extend(self._sleeps.values())
        for sleep in self.retries:
            if isinstance(sleep, _Sleep):
                del self._sleeps[sleep.queue.name]
        self.retries.clear()

    def _look_now(self, sleep: _Sleep) -> None:
        queue = sleep.queue.name
        sleep.message = api.AwaitJobsRequest(namespace=self._reader.namespace, queues=(queue,), allow_missing=True)
        self.requests.append(sleep)

    def _stop_sleeping(self) -> None:
        self.cancels.extend(self._sleeps.values())
        self._sleeps.clear()

    # PUB

    def _publish(self, turn: _Turn, fields: Fields) -> None:
        turn.ask("enqueue", self._reader.enqueue_request(fields, turn.queue), self._publish_done)
        self._send(turn)

    def _publish_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if result.HasField("failure"):
            return self._failed(turn, result.failure)
        self.counts["PUB", "ok"] += 1
        return b'{"cmd":"ok","uid":"%016x"}' % result.enqueue.ids[0]

    # FET

    def _fetch(self, turn: _Turn, _fields: Fields) -> None:
        turn.ask("dequeue", turn.queue.dequeue, self._fetch_done)
        self._fetches += 1
        self._send(turn)

    def _fetch_done(self, turn: _Turn, result: SessionResult) -> bytes:
        self._fetches -= 1
        if result.HasField("failure"):
            if result.failure.reason == reason_pb2.REASON_QUEUE_NOT_FOUND:
                self.counts["FET", "empty"] += 1
                return _NO_QUEUE
            return self._failed(turn, result.failure)
        if jobs := result.dequeue.jobs:
            self.counts["FET", "ok"] += 1
            return self._hand_over(turn.queue, jobs[0])
        self.counts["FET", "empty"] += 1
        return b'{"cmd":"nomsg","qname":%b}' % turn.queue.json

    def _hand_over(self, queue: Queue, job: Job) -> bytes:
        message = self._framing.fit(as_json(job.content_type, job.payload))
        # As many fetches at once as there is room for answers like this one.
        self._fetches_max = max(1, min(2 * self._fetches_max, self._bytes_max // (len(message) + 64)))
        return b'{"cmd":"msg","qname":%b,"uid":"%016x","error_count":"%d","msg":%b}' % (
            queue.json,
            job.id,
            job.attempts - 1,
            message,
        )

    # ACK, DEL

    def _acknowledge(self, turn: _Turn, fields: Fields) -> None:
        turn.uid = self._reader.uid(fields)
        request = self._reader.delete_request(turn.uid, turn.queue)
        if request is None:
            self._answer_now(turn, _acknowledged(turn), "empty")
            return
        turn.ask("delete", request, self._acknowledge_done)
        self._send(turn)

    def _acknowledge_done(self, turn: _Turn, result: SessionResult) -> bytes:
        if not result.HasField("failure"):
            self.counts[turn.command, "ok"] += 1
        elif result.failure.reason in _GONE:
            self.counts[turn.command, "empty"] += 1
        else:
            return self._failed(turn, result.failure)
        return _acknowledged(turn)

    # Shared.

    def _failed(self, turn: _Turn, failure: Failure) -> bytes:
        outcome = outcome_of(failure)
        self.counts[turn.command, outcome] += 1
        if outcome == "unavailable":
            return _UNAVAILABLE
        if outcome == "failed":
            return _nok("INTERNAL", explain(failure))
        return _nok("BAD_REQUEST" if failure.reason in _BAD else "REFUSED", explain(failure))


_Start = Callable[[Etzel, _Turn, Fields], None]

_STARTS: Final[dict[Command, _Start]] = {
    "SUB": Etzel._subscribe,
    "ISLP": Etzel._sleep,
    "PUB": Etzel._publish,
    "FET": Etzel._fetch,
    "ACK": Etzel._acknowledge,
    "DEL": Etzel._acknowledge,
}


def _acknowledged(turn: _Turn) -> bytes:
    return b'{"cmd":"okack","uid":%b,"qname":%b}' % (msgspec.json.encode(turn.uid), turn.queue.json)


def _nok(error: str, detail: str) -> bytes:
    return b'{"cmd":"nok","err":"%b","detail":%b}' % (error.encode(), msgspec.json.encode(detail))
