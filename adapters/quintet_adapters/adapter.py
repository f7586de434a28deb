"""What all connections of one adapter process share: the session, the metrics, and the end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from quintet_client.session import Session

from quintet_adapters.metrics import AdapterMetrics

NO_OWNER: Final = 0


class Member(Protocol):
    """A connection, as the adapter sees it."""

    def flush(self) -> None:
        """Write what has gathered."""

    def go_on(self) -> None:
        """The session takes requests again."""

    def session_connected(self) -> None:
        """The session is connected again."""

    def leases_lost(self) -> None:
        """Every owner lease is gone."""

    def finish(self) -> None:
        """Take nothing new, answer what is under way, close."""

    def abort(self) -> None:
        """Close at once."""


class Adapter:
    """One protocol's service: keeps track of connections."""

    def __init__(self, session: Session, metrics: AdapterMetrics, connections_max: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.session = session
        self.metrics = metrics
        self.connections_max = connections_max
        self.submits = {
            "enqueue": session.submit_enqueue,
            "dequeue": session.submit_dequeue,
            "acknowledge": session.submit_acknowledge,
            "release": session.submit_release,
            "delete": session.submit_delete,
            "get_job": session.submit_get_job,
            "count": session.submit_count,
            "create_queue": session.submit_create_queue,
            "delete_queue": session.submit_delete_queue,
            "list_queues": session.submit_list_queues,
            "await_jobs": session.submit_await_jobs,
        }
        self._members: set[Member] = set()
        self._spare_owners: list[int] = []
        self._unflushed: list[Member] = []
        self._held: deque[Member] = deque()
        self._disconnected: list[Member] = []
        self._empty = asyncio.Event()
        self._empty.set()
        self._finishing = False
        session.on_leases_lost(self._leases_lost)
        session.on_connected(self._session_connected)
        metrics.connections.set_function(lambda: float(len(self._members)))
        metrics.session_connected.set_function(lambda: float(session.connected))
        metrics.in_flight.set_function(lambda: float(session.in_flight))

    # Connections.

    def may_join(self) -> bool:
        """Whether one more connection may be served. If not, it is counted as refused."""
        if len(self._members) < self.connections_max and not self._finishing:
            return True
        self.metrics.refused.count += 1
        return False

    def join(self, member: Member) -> None:
        """Counts a connection in."""
        self.metrics.opened.count += 1
        self.enlist(member)

    def enlist(self, member: Member) -> None:
        """Takes part in the adapter's end, without being a connection."""
        self._members.add(member)
        self._empty.clear()

    def leave(self, member: Member) -> None:
        """Counts a connection out."""
        self._members.discard(member)
        if not self._members:
            self._empty.set()

    def flush_soon(self, member: Member) -> None:
        """Calls `member.flush` once this tick's results are in. A member asks once per flush."""
        if not self._unflushed:
            self.loop.call_soon(self._flush_all)
        self._unflushed.append(member)

    def _flush_all(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for member in unflushed:
            member.flush()

    def hold(self, member: Member) -> None:
        """Calls `member.go_on` when the session takes requests again, in order of arrival here."""
        if not self._held:
            self.session.on_writable(self._session_writable)
        self._held.append(member)

    def _session_writable(self) -> None:
        for _ in range(len(self._held)):
            if not self.session.writable:
                break
            self._held.popleft().go_on()
        if self._held:
            self.session.on_writable(self._session_writable)

    def tell_connected(self, member: Member) -> None:
        """Calls `member.session_connected` once, when the session is connected again."""
        self._disconnected.append(member)

    def _session_connected(self) -> None:
        members, self._disconnected = self._disconnected, []
        for member in members:
            member.session_connected()

    # Owners.

    def take_owner(self, *, own: bool) -> int:
        """An owner for a connection; `own`: not used by another before, to be closed with the connection."""
        if own or not self._spare_owners:
            return self.session.new_owner()
        return self._spare_owners.pop()

    def give_owner_back(self, owner: int) -> None:
        """An owner that holds nothing may serve the next connection: it need not be closed in the core."""
        self._spare_owners.append(owner)

    def _leases_lost(self) -> None:
        self.metrics.leases_lost.count += 1
        for member in tuple(self._members):
            member.leases_lost()

    # The end.

    async def finish(self) -> None:
        """Every connection takes nothing new, answers what is under way and closes."""
        self._finishing = True
        for member in tuple(self._members):
            member.finish()
        await self._empty.wait()

    async def close(self) -> None:
        """Closes what is left at once, then the session, which releases every lease."""
        self._finishing = True
        for member in tuple(self._members):
            member.abort()
        await self.session.close()
