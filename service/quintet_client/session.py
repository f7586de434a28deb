"""One Session stream, callback style: the hot path beneath the adapters and beneath `Client`.

Every `submit_*` sends one operation and returns its sequence number. `on_result` is called exactly once, from the event
loop and never from within `submit_*`, with a `SessionResult`. All operations submitted while the last write was
under way (at the least: in one tick of the event loop) go out as one `SessionRequest`. Requests are copied
when submitted. A result must be read within its callback, or copied: it keeps its whole response in memory.

When a stream breaks, every operation in flight is answered with REASON_UNAVAILABLE: it may or may not have happened,
and is never repeated by the session. While there is no stream, submissions are answered so at once. A parked
`dequeue` under an owner lease that ends so may have taken a job that nobody knows of: the job stays with
its owner, so that the caller must close the owner (and go on under a new one), or say which leases it knows of
(`submit_keep_leases`), to give it back.

Operations of one owner take effect in the order submitted; results may come in any order. Not safe for threads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence

from google.protobuf.message import Message
from quintet.v1.queue_service_pb2 import (
    DequeueRequest,
    EnqueueRequest,
)
from quintet.v1.reason_pb2 import REASON_LIMIT_EXCEEDED, REASON_TOO_MANY_IN_FLIGHT, REASON_UNAVAILABLE, Reason
from quintet.v1.session_service_pb2 import (
    CancelWait,
    CloseOwner,
    Failure,
    Heartbeat,
    SessionClosing,
    SessionOpened,
    SessionResult,
)

from quintet_client.credentials import ANONYMOUS, MESSAGE_BYTES_MAX, Credentials
from quintet_client.errors import AccessError, QuintetError, UnavailableError, error_of_failure
from quintet_client.heartbeats import Heartbeats
from quintet_client.link import Link
from quintet_client.outbox import Outbox
from quintet_client.session_life import SessionLife
from quintet_client.verbs import OnResult, Verbs

IN_FLIGHT_DEFAULT = 4096
BACKLOG_OPERATIONS_MAX = 65_536
UNSENT_BYTES_MAX = 64 * 1024 * 1024
UNSENT_BYTES_WRITABLE = 8 * 1024 * 1024
OPERATION_BYTES_MAX = MESSAGE_BYTES_MAX - 1024 * 1024
CONNECT_TIMEOUT_S = 10.0
HAND_OVER_S = 2.0
CLOSE_AGAIN_S = 0.5

_log = logging.getLogger(__name__)
_WAITING = frozenset(("dequeue", "await_jobs"))
"""Verbs that may wait."""
_SESSION_OWNER = 0
"""Owner of the session's own operations. Callers' owners start at 1."""


class Observer:
    """Hooks for metrics; override what is wanted. Called from the event loop."""

    def session_opened(self, resumed: bool) -> None:
        """A stream was opened; operations flow."""

    def session_broken(self, error: QuintetError) -> None:
        """A stream broke or could not be opened."""

    def leases_lost(self) -> None:
        """The session lapsed."""


class Session(Verbs):
    """One session with a core, reconnecting by itself. Make it with `await Session.connect(target)`."""

    def __init__(
        self,
        target: str,
        *,
        client: str = "",
        resumable: bool = True,
        credentials: Credentials | None = None,
        observer: Observer | None = None,
        backlog_max: int = BACKLOG_OPERATIONS_MAX,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._observer = observer or Observer()
        self._outbox = Outbox()
        self._life = SessionLife(self._lapsed)
        self._link = Link(
            target, credentials or ANONYMOUS, self._life, self._outbox, self, client=client, resumable=resumable
        )
        self._sequences = itertools.count(1)
        self._owners = itertools.count(1)
        self._pending: dict[int, OnResult] = {}
        # Dequeues and await_jobs that wait: they may stay for hours and so do not count as in flight.
        self._parked: dict[int, OnResult] = {}
        self._backlog: deque[tuple[int, int, str, Message, OnResult]] = deque()
        self._backlog_max = backlog_max
        self._backlog_bytes = 0
        self._in_flight_max = IN_FLIGHT_DEFAULT
        self._sending = False
        self._holding = False
        self._closed = False
        self._ready = asyncio.Event()
        self._last_error: QuintetError = UnavailableError("not connected yet")
        self._owners_to_close: set[int] = set()
        self._heartbeats = Heartbeats(self._life, self._heartbeat, self._close_left_owners)
        self._hold_timer: asyncio.TimerHandle | None = None
        self._on_leases_lost: list[Callable[[], None]] = []
        self._on_connected: list[Callable[[], None]] = []
        self._on_writable: list[Callable[[], None]] = []

    @classmethod
    async def connect(
        cls,
        target: str,
        *,
        client: str = "",
        resumable: bool = True,
        credentials: Credentials | None = None,
        observer: Observer | None = None,
        backlog_max: int = BACKLOG_OPERATIONS_MAX,
        wait_ready: bool = True,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> Session:
        """Starts a session with the core at `target` ("unix:/run/quintet.sock" or "host:port").

        With `wait_ready` returns when the session is open, or raises the error that stood in the way when
        `connect_timeout_s` seconds have passed (refused credentials: at once). Otherwise returns at once.
        """
        session = cls(
            target,
            client=client,
            resumable=resumable,
            credentials=credentials,
            observer=observer,
            backlog_max=backlog_max,
        )
        session._link.start()
        if wait_ready:
            try:
                await session.wait_connected(connect_timeout_s)
            except BaseException:
                await session.close()
                raise
        return session

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Returns when operations can be sent. After `timeout_s` raises why not (a `QuintetError`)."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise self._last_error from None
        if self._closed:
            raise UnavailableError("the session is closed")
        if not self._sending:
            raise self._last_error

    async def close(self) -> None:
        """Orderly end: sends what was submitted, half-closes; the core answers, and releases every owner's leases.

        What is not answered within five seconds is UNAVAILABLE. `on_leases_lost` does not fire.
        """
        self._closed = True
        self._heartbeats.stop()
        await self._link.close()
        self._life.end()
        self._ready.set()
        self._fail_everything("the session is closed")

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What a caller can see.

    @property
    def connected(self) -> bool:
        """Whether operations are being sent now."""
        return self._sending

    @property
    def leases_valid(self) -> bool:
        """Whether owner leases taken in this session may still be relied on, by the monotonic clock, right now."""
        return self._life.alive

    @property
    def in_flight(self) -> int:
        """Operations without a result, parked dequeues apart."""
        return len(self._pending) + len(self._backlog)

    @property
    def in_flight_max(self) -> int:
        """As the core said; beyond it operations wait here, bounded."""
        return self._in_flight_max

    @property
    def parked(self) -> int:
        """Dequeues and await_jobs that wait for jobs."""
        return len(self._parked)

    @property
    def writable(self) -> bool:
        """Whether a caller should go on submitting. Who does not look is queued for a while, then refused."""
        return (
            not self._backlog
            and len(self._pending) < self._in_flight_max
            and self._outbox.payload_bytes < UNSENT_BYTES_WRITABLE
        )

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when the session is writable again: soon when it is now."""
        self._on_writable.append(callback)
        if self.writable:
            self._loop.call_soon(self._notify_writable)

    def on_leases_lost(self, callback: Callable[[], None]) -> None:
        """Calls `callback` each time that every owner's leases are, or must be taken as, gone."""
        self._on_leases_lost.append(callback)

    def on_connected(self, callback: Callable[[], None]) -> None:
        """Calls `callback` each time that a stream was opened or resumed."""
        self._on_connected.append(callback)

    def new_owner(self) -> int:
        """An owner number that this session has not used."""
        return next(self._owners)

    # Operations.

    def submit_enqueue(self, owner: int, request: EnqueueRequest, on_result: OnResult) -> int:
        """`enqueue`. A request beyond 63 MiB is LIMIT_EXCEEDED."""
        request_bytes = request.ByteSize()
        if request_bytes > OPERATION_BYTES_MAX:
            return self._refuse(REASON_LIMIT_EXCEEDED, f"the request has {request_bytes} bytes", on_result)
        if self._outbox.payload_bytes + self._backlog_bytes + request_bytes > UNSENT_BYTES_MAX:
            return self._refuse(REASON_TOO_MANY_IN_FLIGHT, "too many bytes wait to be sent", on_result)
        self._outbox.payload_bytes += request_bytes
        return self._submit(owner, request, on_result, "enqueue")

    def submit_dequeue(self, owner: int, request: DequeueRequest, on_result: OnResult) -> int:
        """`dequeue`. With a wait it does not count as in flight; see the module on streams that break."""
        return self._submit(owner, request, on_result, "dequeue")

    def cancel_wait(self, owner: int, sequence: int) -> None:
        """Ends a parked dequeue or await_jobs. Its own `on_result` then comes: CANCELLED, or the job that it took."""
        if sequence in self._parked or self._backlog:
            self._submit(owner, CancelWait(sequence=sequence), _ignore, "cancel_wait")

    def close_owner(self, owner: int) -> None:
        """Ends an owner: its parked dequeues answer OWNER_CLOSED, its leases are released.

        Certain to happen: when the stream breaks it is sent again, until the session has lapsed.
        """
        if self._sending or self._holding:
            self._submit(owner, CloseOwner(), lambda result: self._owner_closed(owner, result), "close_owner")
        elif self._life.session:
            self._owners_to_close.add(owner)

    # The hot path.

    def _submit(self, owner: int, request: Message, on_result: OnResult, verb: str) -> int:
        sequence = next(self._sequences)
        if self._sending and not self._backlog and len(self._pending) < self._in_flight_max:
            if verb in _WAITING and request.wait_ms:  # type: ignore[attr-defined]
                self._parked[sequence] = on_result
            else:
                self._pending[sequence] = on_result
            self._outbox.add(sequence, owner, verb, request)
        else:
            self._submit_later(sequence, owner, verb, request, on_result)
        return sequence

    def _submit_later(self, sequence: int, owner: int, verb: str, request: Message, on_result: OnResult) -> None:
        if self._closed or not (self._sending or self._holding):
            self._answer_soon(sequence, REASON_UNAVAILABLE, self._last_error.message, on_result)
        elif len(self._backlog) >= self._backlog_max and verb != "close_owner":
            self._answer_soon(sequence, REASON_TOO_MANY_IN_FLIGHT, "too many operations wait to be sent", on_result)
        else:
            copy = type(request)()
            copy.CopyFrom(request)
            self._backlog.append((sequence, owner, verb, copy, on_result))
            self._backlog_bytes += copy.ByteSize()

    def stream_results(self, results: Sequence[SessionResult]) -> None:
        """The link's: results have come."""
        pending = self._pending
        for result in results:
            sequence = result.sequence
            on_result = pending.pop(sequence, None) or self._parked.pop(sequence, None)
            if on_result is not None:
                try:
                    on_result(result)
                except Exception as error:
                    self._report(error)
        if self._backlog:
            self._drain_backlog()
        if self._on_writable and self.writable:
            self._notify_writable()

    def _drain_backlog(self) -> None:
        while self._backlog and self._sending and len(self._pending) < self._in_flight_max:
            sequence, owner, verb, request, on_result = self._backlog.popleft()
            request_bytes = request.ByteSize()
            self._backlog_bytes -= request_bytes
            if verb in _WAITING and request.wait_ms:  # type: ignore[attr-defined]
                self._parked[sequence] = on_result
            else:
                self._pending[sequence] = on_result
            self._outbox.payload_bytes += request_bytes
            self._outbox.add(sequence, owner, verb, request)

    # The link's other news.

    def stream_opened(self, opened: SessionOpened) -> None:
        """The link's: operations may be sent."""
        self._in_flight_max = opened.in_flight_max or IN_FLIGHT_DEFAULT
        self._sending, self._holding = True, False
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        self._ready.set()
        self._observer.session_opened(opened.resumed)
        self._heartbeats.start()
        self._close_left_owners()
        self._drain_backlog()
        self._call_all(self._on_connected)

    def stream_closing(self, closing: SessionClosing) -> None:
        """The link's: the core is about to end the stream. What is submitted now waits for the next one."""
        self._sending, self._holding = False, True
        self._ready.clear()
        self._heartbeats.stop()
        _log.info("the core ends the stream: %s", closing.message)

    def stream_broken(self, error: QuintetError) -> None:
        """The link's: what was sent is in doubt."""
        self._last_error = error
        self._sending = False
        if isinstance(error, AccessError):
            self._ready.set()  # Waiting does not mend it: those who wait are told.
        else:
            self._ready.clear()
        self._heartbeats.stop()
        self._observer.session_broken(error)
        in_doubt = self._pending | self._parked
        self._pending, self._parked = {}, {}
        self._answer_all(in_doubt, error.message)
        # Operations held back during a hand-over were never sent: they may go to the next stream, if it comes soon.
        if not self._holding:
            self._fail_backlog(error.message)
        elif self._hold_timer is None:
            self._hold_timer = self._loop.call_later(HAND_OVER_S, self._stop_holding)

    def _stop_holding(self) -> None:
        self._hold_timer = None
        if not self._sending:
            self._fail_backlog(self._last_error.message)

    def _lapsed(self) -> None:
        self._owners_to_close.clear()
        self._observer.leases_lost()
        self._call_all(self._on_leases_lost)
        self._link.break_stream()

    # The session's own operations.

    def _heartbeat(self, on_result: OnResult) -> None:
        # Past the backlog: a heartbeat must not wait for what it keeps alive.
        sequence = next(self._sequences)
        self._pending[sequence] = on_result
        self._outbox.add(sequence, _SESSION_OWNER, "heartbeat", Heartbeat())

    def _close_left_owners(self) -> None:
        owners, self._owners_to_close = self._owners_to_close, set()
        for owner in owners:
            self.close_owner(owner)

    def _owner_closed(self, owner: int, result: SessionResult) -> None:
        if result.HasField("failure") and self._life.session and error_of_failure(result.failure).retryable:
            if not self._owners_to_close:
                self._loop.call_later(CLOSE_AGAIN_S, self._close_left_owners)
            self._owners_to_close.add(owner)

    # Answers made here.

    def _refuse(self, reason: Reason.ValueType, message: str, on_result: OnResult) -> int:
        sequence = next(self._sequences)
        self._answer_soon(sequence, reason, message, on_result)
        return sequence

    def _answer_soon(self, sequence: int, reason: Reason.ValueType, message: str, on_result: OnResult) -> None:
        self._loop.call_soon(on_result, _failed(sequence, reason, message))

    def _answer_all(self, callbacks: dict[int, OnResult], message: str) -> None:
        for sequence, on_result in callbacks.items():
            try:
                on_result(_failed(sequence, REASON_UNAVAILABLE, message))
            except Exception as error:
                self._report(error)

    def _fail_backlog(self, message: str) -> None:
        backlog, self._backlog, self._backlog_bytes = self._backlog, deque(), 0
        self._holding = False
        self._answer_all({sequence: on_result for sequence, _, _, _, on_result in backlog}, message)
        self._notify_writable()

    def _fail_everything(self, message: str) -> None:
        self._sending = self._holding = False
        callbacks = self._pending | self._parked
        self._pending, self._parked = {}, {}
        self._answer_all(callbacks, message)
        self._fail_backlog(message)

    def _notify_writable(self) -> None:
        if self._on_writable:
            callbacks, self._on_writable = self._on_writable, []
            self._call_all(callbacks)

    def _call_all(self, callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                self._report(error)

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "a callback of a quintet session raised", "exception": error})


def _failed(sequence: int, reason: Reason.ValueType, message: str) -> SessionResult:
    return SessionResult(sequence=sequence, failure=Failure(reason=reason, message=message))


def _ignore(_: SessionResult) -> None:
    pass
