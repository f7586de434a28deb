"""How long a session is known to live.

A heartbeat's result means that the session lives its time to live from the moment the heartbeat was *sent*. When that
moment passes without a newer result, the core may have given the session's leases to others: the session is then
taken as lapsed, whatever the core says later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quintet.v1.session_service_pb2 import SessionOpened


class SessionLife:
    """The deadline of the current session, on the event loop's monotonic clock. `on_lapsed` fires once per session."""

    def __init__(self, on_lapsed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lapsed = on_lapsed
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.session = 0
        self.secret = b""
        self.ttl_s = 10.0

    @property
    def alive(self) -> bool:
        """Whether there is a session whose leases may be relied on."""
        return self.session != 0 and self._loop.time() < self._deadline

    @property
    def heartbeat_interval_s(self) -> float:
        """Seconds from one heartbeat to the next."""
        return self.ttl_s / 3

    def begin(self, opened: SessionOpened, sent_at: float) -> None:
        """A session was opened or resumed by a request sent at `sent_at`."""
        self.session = opened.session
        self.secret = opened.secret
        self.ttl_s = max(opened.session_ttl_ms, 1) / 1000
        self._deadline = 0.0
        self.renew(sent_at)

    def renew(self, sent_at: float) -> None:
        """A heartbeat sent at `sent_at` was answered."""
        self._deadline = max(self._deadline, sent_at + self.ttl_s)
        self._stop_timer()
        self._timer = self._loop.call_at(self._deadline, self.lapse)

    def lapse(self) -> None:
        """The session is gone. Does nothing without one."""
        if self.end():
            self._on_lapsed()

    def end(self) -> bool:
        """Forgets the session without firing `on_lapsed`. Returns whether there was one."""
        had_session = self.session != 0
        self._stop_timer()
        self.session, self.secret, self._deadline = 0, b"", 0.0
        return had_session

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
