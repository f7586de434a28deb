"""Heartbeats of a session: what keeps it alive, and what learns that it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from quintet.v1.session_service_pb2 import SessionResult

from quintet_client.errors import error_of_failure
from quintet_client.session_life import SessionLife
from quintet_client.verbs import OnResult


class Heartbeats:
    """Sends a heartbeat every third of the session's time to live, while started.

    `send` sends one and calls back with its result; `on_alive` is called for each that succeeds.
    """

    def __init__(self, life: SessionLife, send: Callable[[OnResult], None], on_alive: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._life = life
        self._send = send
        self._on_alive = on_alive
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The stream is open."""
        self._next_in(self._life.heartbeat_interval_s)

    def stop(self) -> None:
        """Nothing may be sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_in(self, delay_s: float) -> None:
        self.stop()
        self._timer = self._loop.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._next_in(self._life.heartbeat_interval_s)
        self._send(partial(self._answered, self._loop.time()))

    def _answered(self, sent_at: float, result: SessionResult) -> None:
        if not result.HasField("failure"):
            self._life.renew(sent_at)
            self._on_alive()
        elif not error_of_failure(result.failure).retryable:
            self._life.lapse()
        elif self._timer is not None:
            # The core cannot reach its store: ask again well before the session's time is up.
            self._next_in(self._life.heartbeat_interval_s / 4)
