"""The stream beneath a session: connects, opens or resumes, reads and writes until it breaks, and again.

`Link` knows streams; what the operations on them mean is its `Listener`'s affair (`quintet_client.session`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
from quintet.v1.reason_pb2 import REASON_SESSION_LAPSED, REASON_SESSION_NOT_FOUND
from quintet.v1.session_service_pb2 import (
    Failure,
    SessionClosing,
    SessionOpen,
    SessionOpened,
    SessionRequest,
    SessionResponse,
    SessionResult,
)
from quintet.v1.session_service_pb2_grpc import SessionServiceStub

from quintet_client.credentials import Credentials, open_channel
from quintet_client.errors import (
    DrainingError,
    QuintetError,
    SessionLapsedError,
    SessionNotFoundError,
    UnavailableError,
    error_of_failure,
    error_of_rpc,
)
from quintet_client.outbox import Outbox
from quintet_client.session_life import SessionLife

OPEN_TIMEOUT_S = 5.0
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
CLOSE_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)

_Call = grpc.aio.StreamStreamCall[SessionRequest, SessionResponse]


class Listener(Protocol):
    """What a link tells its session."""

    def stream_opened(self, opened: SessionOpened) -> None:
        """Operations may be added to the outbox."""

    def stream_results(self, results: Sequence[SessionResult]) -> None:
        """Results have come."""

    def stream_closing(self, closing: SessionClosing) -> None:
        """Nothing new may be sent on this stream; results may still come."""

    def stream_broken(self, error: QuintetError) -> None:
        """The stream is gone (or could not be opened); the outbox is stale."""


class Link:
    """Keeps one stream open to `target`, with a backoff of 20 ms doubling to one second."""

    def __init__(
        self,
        target: str,
        credentials: Credentials,
        life: SessionLife,
        outbox: Outbox,
        listener: Listener,
        *,
        client: str,
        resumable: bool,
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._life = life
        self._outbox = outbox
        self._listener = listener
        self._client = client
        self._resumable = resumable
        self._call: _Call | None = None
        self._closing = False
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to connect, in a task of its own."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="quintet-session")

    def break_stream(self) -> None:
        """Gives the present stream up, not orderly; a new one is opened."""
        if self._call is not None:
            self._call.cancel()

    async def close(self) -> None:
        """Orderly end: what the outbox holds is sent, the stream half-closed, its end awaited up to 5 s."""
        self._closing = True
        self._hurry.set()
        self._outbox.wake()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while not self._closing:
            opened, error = await self._one_stream()
            self._outbox.clear()
            self._judge(error)
            self._listener.stream_broken(error)
            if opened or isinstance(error, SessionLapsedError):
                backoff_s = BACKOFF_FIRST_S
            await self._pause(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    def _judge(self, error: QuintetError) -> None:
        """The end of a stream is the end of its session when the session cannot be resumed."""
        if self._closing:
            self._life.end()
        elif not self._resumable or isinstance(error, SessionLapsedError | SessionNotFoundError):
            self._life.lapse()

    async def _pause(self, backoff_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_s):
                await self._hurry.wait()

    async def _one_stream(self) -> tuple[bool, QuintetError]:
        """Opens a stream and serves it to its end. Returns whether it was opened, and why it ended."""
        opened = False
        try:
            metadata = self._credentials.metadata()
            async with open_channel(self._target, self._credentials) as channel:
                call = _session_call(channel, metadata)
                try:
                    await self._open(call)
                    opened = True
                    self._call = call
                    return opened, await self._serve(call)
                finally:
                    self._call = None
                    call.cancel()
        except grpc.aio.AioRpcError as error:
            return opened, error_of_rpc(error)
        except QuintetError as error:
            return opened, error
        except TimeoutError:
            return opened, UnavailableError("the core did not open the session in time")
        except asyncio.CancelledError:
            # A call that was cancelled, here or by the core, raises this too.
            if _is_cancelled():
                raise
            return opened, UnavailableError("the stream was cancelled")
        except (OSError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            return opened, UnavailableError(f"the stream broke: {error}")

    async def _open(self, call: _Call) -> None:
        sent_at = asyncio.get_running_loop().time()
        resumed_session = self._life.session
        open_request = SessionOpen(
            client=self._client,
            resumable=self._resumable,
            resume_session=resumed_session,
            resume_secret=self._life.secret,
        )
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await call.write(SessionRequest(open=open_request))
            response = await call.read()
        if not isinstance(response, SessionResponse):
            raise UnavailableError("the core ended the stream")
        opened = _opened_of(response)
        if resumed_session and resumed_session != self._life.session:
            raise SessionLapsedError("the session lapsed while it was being resumed")
        if resumed_session and not opened.resumed:
            self._life.lapse()
        self._life.begin(opened, sent_at)
        self._listener.stream_opened(opened)
        self._listener.stream_results(response.results)

    async def _serve(self, call: _Call) -> QuintetError:
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read(call))
        writer = loop.create_task(self._write(call))
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            # Half-closed, or broken under the writer: what the core has answered is still to be read.
            await asyncio.wait({reader}, timeout=CLOSE_TIMEOUT_S)
            return _end_of(reader, writer)
        finally:
            await _stop(reader, writer)

    async def _read(self, call: _Call) -> QuintetError:
        listener = self._listener
        while True:
            response = await call.read()
            if isinstance(response, SessionResponse):
                listener.stream_results(response.results)
                if response.HasField("closing"):
                    self._closing_announced(response.closing)
            else:
                return UnavailableError("the core ended the stream")

    def _closing_announced(self, closing: SessionClosing) -> None:
        if closing.reason in (REASON_SESSION_LAPSED, REASON_SESSION_NOT_FOUND):
            raise SessionLapsedError(closing.message)
        self._listener.stream_closing(closing)

    async def _write(self, call: _Call) -> None:
        """Writes whatever has come while the last write was under way. Ends by half-closing when told to close."""
        outbox = self._outbox
        while outbox or not self._closing:
            await outbox.wait_filled()
            for request in outbox.take():
                await call.write(request)
        await call.done_writing()


def _session_call(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> _Call:
    stub: Any = SessionServiceStub(channel)
    call: _Call = stub.Session(metadata=metadata)
    return call


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _opened_of(response: SessionResponse) -> SessionOpened:
    if response.HasField("closing"):
        raise _error_of_closing(response.closing)
    if not response.HasField("opened"):
        raise UnavailableError("the core's first response does not open the session")
    return response.opened


def _error_of_closing(closing: SessionClosing) -> QuintetError:
    if closing.reason:
        return error_of_failure(Failure(reason=closing.reason, message=closing.message))
    return DrainingError(closing.message)


def _end_of(reader: asyncio.Task[QuintetError], writer: asyncio.Task[None]) -> QuintetError:
    """Why the stream ended. The reader knows best: it sees the call's status."""
    if reader.done() and not reader.cancelled() and reader.exception() is None:
        return reader.result()
    for task in (reader, writer):
        error = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(error, grpc.aio.AioRpcError):
            return error_of_rpc(error)
        if isinstance(error, QuintetError):
            return error
        if error is not None:
            _log.warning("session stream broke: %r", error)
    return UnavailableError("the stream broke")


async def _stop(*tasks: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[QuintetError]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
