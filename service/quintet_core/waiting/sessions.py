"""Sessions and their owners: who holds owner leases, for how long, and what happens when they go.

A session enters a partition with its first owner lease there, and lapses there `ttl` after its last heartbeat; then any
core releases its leases. A session that has lapsed or was closed never comes back: dequeues under it are refused. What
this replica keeps of a session is only what it needs while the stream is attached here.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message

from quintet_core.domain.errors import Reason, Refusal, exceeded, refusal
from quintet_core.domain.job import LeaseTerms
from quintet_core.domain.limits import Limits
from quintet_core.domain.outcomes import Done
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.redis_store import RedisStore
from quintet_core.waiting.dequeues import Dequeue

HEARTBEATS_PER_TTL = 3
SESSIONS_PER_HEARTBEAT_MAX = 500
LAPSED = -1


class Wait(Protocol):
    """A dequeue or await_jobs that is parked or under way."""

    def cancel(self, why: Reason = Reason.CANCELLED) -> None:
        """Stop waiting, with an answer."""

    def abandon(self) -> None:
        """Stop waiting without one."""


class Owner(Ordered):
    """One owner of a session: its operations are ordered, its waits and leases end with it."""

    __slots__ = ("asked", "closed", "handles", "key", "partitions", "terms")

    def __init__(self, number: int, partitions: set[int]) -> None:
        super().__init__()
        self.key = number.to_bytes(8, "big")
        self.closed = False
        # Waits, parked or under way, by their sequence.
        self.handles: dict[int, Wait] = {}
        # Where it may hold leases.
        self.partitions = partitions
        # Of its last dequeue.
        self.terms: LeaseTerms | None = None
        # The last dequeue it sent, from one queue, and what was made of it.
        self.asked: tuple[Message, Dequeue] | None = None


@dataclass(slots=True, eq=False)
class Session:
    """A session attached to a stream of this replica."""

    id: bytes
    resumable: bool
    on_lapsed: Callable[[], None]
    # Where it may have been entered.
    partitions: set[int]
    resumed: bool
    owners_max: int
    owners: dict[int, Owner] = field(default_factory=dict)
    # Another stream of this replica has resumed it: this one's end is not the session's any more.
    superseded: bool = False

    @property
    def number(self) -> int:
        """The id as the API shows it."""
        return int.from_bytes(self.id, "big")

    def owner(self, number: int) -> Owner:
        """The owner of a number; it opens by its first use. Raises CallerError for one too many."""
        found = self.owners.get(number)
        if found is None:
            if len(self.owners) >= self.owners_max:
                raise exceeded("owners of a session", self.owners_max, len(self.owners) + 1)
            # A resumed owner may hold leases anywhere its session was.
            found = self.owners[number] = Owner(number, set(self.partitions) if self.resumed else set())
        return found

    def entering(self, owner: Owner, partition: int) -> None:
        """The owner is about to take a lease in a partition."""
        owner.partitions.add(partition)
        self.partitions.add(partition)


class Sessions:
    """All sessions attached here. `signing_key` is shared by the cores of one Redis."""

    def __init__(self, store: RedisStore, limits: Limits, ttl_ms: int, signing_key: Callable[[], bytes]) -> None:
        self._store = store
        self._owners_max = limits.owners_max
        self.ttl_ms = ttl_ms
        self._signing_key = signing_key
        self._attached: dict[bytes, Session] = {}

    @property
    def attached(self) -> int:
        """Sessions with a stream."""
        return len(self._attached)

    @property
    def owners(self) -> int:
        """Owners of attached sessions."""
        return sum(len(session.owners) for session in self._attached.values())

    def secret(self, session: Session) -> bytes:
        """What proves to any core that a session is the caller's."""
        return self._sign(session.id)

    def _sign(self, session: bytes) -> bytes:
        return hmac.digest(self._signing_key(), session, "sha256")

    def open(self, resumable: bool, on_lapsed: Callable[[], None]) -> Session:
        """A new session. `on_lapsed` is called when its leases turn out to be gone."""
        session = Session(secrets.token_bytes(8), resumable, on_lapsed, set(), False, self._owners_max)
        self._attached[session.id] = session
        return session

    async def resume(self, number: int, secret: bytes, on_lapsed: Callable[[], None]) -> Session | Refusal:
        """A session of before, leases and all. Refusals: SESSION_NOT_FOUND (not the caller's), SESSION_LAPSED."""
        session_id = number.to_bytes(8, "big")
        if not hmac.compare_digest(self._sign(session_id), secret):
            return refusal(Reason.SESSION_NOT_FOUND)
        self._supersede(session_id)
        session = Session(session_id, True, on_lapsed, set(range(self._store.partitions)), True, self._owners_max)
        standing = await self.heartbeat(session)
        if standing is not None:
            return standing
        # Somebody else may have resumed it meanwhile.
        self._supersede(session_id)
        self._attached[session_id] = session
        return session

    def _supersede(self, session_id: bytes) -> None:
        old = self._attached.pop(session_id, None)
        if old is not None:
            old.superseded = True
            old.on_lapsed()

    # --- heartbeats

    async def heartbeat(self, session: Session) -> Refusal | None:
        """Prolong a session by ttl in every partition it is in. None: it lives. Refusals: SESSION_LAPSED,
        UNAVAILABLE."""
        outcomes = await asyncio.gather(
            *(self._beat(partition, [session.id]) for partition in sorted(session.partitions))
        )
        worst: Refusal | None = None
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                worst = worst or outcome
            elif outcome[0] == LAPSED:
                return refusal(Reason.SESSION_LAPSED)
        return worst

    async def _beat(self, partition: int, sessions: Sequence[bytes]) -> list[int] | Refusal:
        return await self._store.ask(partition, "heartbeat", self.ttl_ms, len(sessions), *sessions)

    async def heartbeat_all(self) -> None:
        """Prolong the attached sessions that need no heartbeats of their clients; those that have lapsed are told so.

        A resumable session lives by the heartbeats of its client alone: silence is its end although the stream is open
        (a frozen process, a network that swallows everything), for its client has then closed whatever held a lease.
        """
        by_partition: dict[int, list[bytes]] = {}
        for session in self._attached.values():
            if session.resumable:
                continue
            for partition in session.partitions:
                by_partition.setdefault(partition, []).append(session.id)
        for partition, sessions in by_partition.items():
            for at in range(0, len(sessions), SESSIONS_PER_HEARTBEAT_MAX):
                chunk = sessions[at : at + SESSIONS_PER_HEARTBEAT_MAX]
                outcome = await self._beat(partition, chunk)
                if not isinstance(outcome, Refusal):
                    self._tell_lapsed(chunk, outcome)

    def _tell_lapsed(self, sessions: Sequence[bytes], standings: Sequence[int]) -> None:
        for session_id, standing in zip(sessions, standings, strict=True):
            if standing == LAPSED and (session := self._attached.pop(session_id, None)):
                session.on_lapsed()

    # --- ends

    def close_owner(self, session: Session, number: int, done: Done[int]) -> None:
        """End an owner: its waits answer OWNER_CLOSED, leases are released. `done` gets how many."""
        owner = session.owners.pop(number, None)
        if owner is None:
            if not session.resumed:
                done(0)
                return
            owner = Owner(number, set(session.partitions))
        owner.closed = True
        for handle in list(owner.handles.values()):
            handle.cancel(Reason.OWNER_CLOSED)
        partitions = owner.partitions

        def released(outcome: int | Refusal) -> None:
            if isinstance(outcome, Refusal):
                # Its leases are still there: to be closed once more, from where they may be.
                session.owners.setdefault(number, Owner(number, set())).partitions |= partitions
            done(outcome)

        self._release(session, owner, (), released)

    def keep_leases(self, session: Session, number: int, ids: Sequence[int], done: Done[int]) -> None:
        """Release the leases of an owner but those of some jobs. `done` gets how many."""
        self._release(session, session.owner(number), ids, done)

    def _release(self, session: Session, owner: Owner, kept: Sequence[int], done: Done[int]) -> None:
        if not owner.partitions:
            done(0)
            return
        # The first operation of each partition is submitted here and now, in the owner's order.
        releases = [
            asyncio.ensure_future(self._store.close_owner(partition, session.id, owner.key, owner, kept))
            for partition in sorted(owner.partitions)
        ]

        def gathered(future: asyncio.Future[list[int | Refusal]]) -> None:
            if future.cancelled():
                return
            outcomes = future.result()
            failed = next((outcome for outcome in outcomes if isinstance(outcome, Refusal)), None)
            done(failed if failed is not None else sum(o for o in outcomes if not isinstance(o, Refusal)))

        asyncio.gather(*releases).add_done_callback(gathered)

    def detach(self, session: Session) -> None:
        """The stream broke and the session may be resumed: waits end, leases stay until it lapses."""
        self._forget(session)

    async def close(self, session: Session) -> None:
        """End a session and release its leases. When Redis is away, they are released as the session lapses."""
        self._forget(session)
        if session.superseded:
            return
        await asyncio.gather(
            *(self._store.close_session(partition, session.id) for partition in sorted(session.partitions))
        )

    def _forget(self, session: Session) -> None:
        if self._attached.get(session.id) is session:
            del self._attached[session.id]
        for owner in session.owners.values():
            for handle in list(owner.handles.values()):
                handle.abandon()
