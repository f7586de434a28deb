"""The PUB: changes of rows, from the core's watch to whoever has subscribed.

While nobody is connected nothing is watched. The first subscriber is let in when the watch stands, so that it hears of
every change made after its subscription has arrived (libzmq sends that behind the handshake); from then on the watch
resumes where it was, without a gap or a repeat, through any restart of the core, until the last subscriber has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Protocol

import zmq
import zmq.backend
from quintet.v1.event_pb2 import Event
from quintet.v1.table_service_pb2 import WatchRowsResponse
from quintet_client.errors import OffsetTrimmedError, QuintetError
from quintet_kit.logs import get_logger

from quintet_adapters.metrics import ZmqKvMetrics
from quintet_adapters.protocols.zmq_kv import Notification, notification
from quintet_adapters.transports.zeromq.sockets import close, has_input, on_readable

_TRY_AGAIN_S: Final = 1.0
_IDLE_S: Final = 2.0
_LINGER_MS: Final = 1000
_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE) | _NOBLOCK


class Watch(Protocol):
    """`quintet_client.watch.Watch`."""

    @property
    def stands(self) -> bool:
        """Whether it is settled from where on changes are told."""

    def responses(self) -> AsyncIterator[WatchRowsResponse]:
        """Changes, from where this watch was."""

    async def close(self) -> None:
        """Ends it."""


class Notifications:
    """Publishes what the watch tells, while somebody is there to hear it."""

    def __init__(
        self, metrics: ZmqKvMetrics, opened: zmq.Socket[bytes], new_watch: Callable[[], Watch], waiting_max: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = opened
        self._new_watch = new_watch
        self._send: Callable[[bytes, int], object] = zmq.backend.Socket.send.__get__(opened)
        self._running: asyncio.Task[None] | None = None
        self._stands = False
        # Of those that gave up waiting some are still here; who is let in although gone does no harm.
        self._when_open: deque[Callable[[], None]] = deque(maxlen=waiting_max)
        self._subscribers = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ended = False
        self._metrics = metrics

    def start(self) -> None:
        """Begins to take in subscriptions."""
        on_readable(self._loop, self._socket, self._take_subscriptions)
        self._take_subscriptions()

    def call_when_open(self, callback: Callable[[], None]) -> None:
        """The doorkeeper's: subscribers come in when the watch stands."""
        if self._stands:
            callback()
        elif not self._ended:
            self._when_open.append(callback)
            self._ensure_watch()

    def count_subscribers(self, subscribers: int) -> None:
        """So many are connected."""
        self._subscribers = subscribers
        if subscribers:
            self._ensure_watch()
        elif self._idle is None and self._running is not None:
            self._idle = self._loop.call_later(_IDLE_S, self._stop_when_idle)

    async def close(self) -> None:
        """Watches no longer; what was published has a moment to leave."""
        self._ended = True
        if self._idle is not None:
            self._idle.cancel()
        await self._stop()
        close(self._loop, self._socket, _LINGER_MS)

    def abort(self) -> None:
        """Closes the socket at once."""
        self._ended = True
        if self._running is not None:
            self._running.cancel()
        close(self._loop, self._socket)

    def _take_subscriptions(self) -> None:
        has_input(self._socket)

    # The watch.

    def _ensure_watch(self) -> None:
        if self._running is None and not self._ended:
            self._running = self._loop.create_task(self._run())

    def _stop_when_idle(self) -> None:
        self._idle = None
        if not self._subscribers and not self._when_open:
            self._begin_stop()

    def _begin_stop(self) -> None:
        self._stands = False
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    async def _stop(self) -> None:
        running = self._running
        self._begin_stop()
        if running is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def _run(self) -> None:
        watch: Watch | None = None
        try:
            while True:
                try:
                    watch = watch or self._new_watch()
                    await self._follow(watch)
                except OffsetTrimmedError as error:
                    self._metrics.gaps.count += 1
                    self._stands = False
                    get_logger().error("notifications_lost", reason=error.message)
                    continue
                except (QuintetError, OSError) as error:
                    get_logger().error("watch_failed", reason=str(error))
                except Exception:
                    get_logger().exception("watch_failed")
                await asyncio.sleep(_TRY_AGAIN_S)
        finally:
            if watch is not None:
                await watch.close()

    async def _follow(self, watch: Watch) -> None:
        async for response in watch.responses():
            if not self._stands and watch.stands:
                self._open()
            if response.changes:
                self._publish(response.changes)

    def _open(self) -> None:
        self._stands = True
        while self._when_open:
            self._when_open.popleft()()

    def _publish(self, changes: Iterable[Event]) -> None:
        for change in changes:
            frames = notification(change)
            if frames is not None:
                self._send_frames(frames)

    def _send_frames(self, frames: Notification) -> None:
        """Never waits: a subscriber that is too slow misses some, as PUB has it."""
        send = self._send
        table, code, key = frames
        send(table, _MORE)
        send(code, _MORE)
        send(key, _NOBLOCK)
        self._metrics.published.count += 1
