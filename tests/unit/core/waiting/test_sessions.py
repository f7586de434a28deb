"""Sessions and owners: what they hold, for how long, and who may take them up again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from quintet_core.domain.errors import CallerError, Reason, Refusal
from quintet_core.domain.job import Job, LeaseTerms
from quintet_core.waiting.sessions import Owner, Session

from tests.support.redis_server import PARTITIONS, RedisConnection
from tests.support.replica import NAMESPACE, SESSION_TTL_MS, Replica, Waiter
from tests.support.store import Clock


class Held:
    """A session on a replica, as a stream would hold it."""

    def __init__(self, replica: Replica, resumable: bool = True) -> None:
        self.replica = replica
        self.lapses = 0
        self.session = replica.sessions.open(resumable, self.on_lapsed)
        self._sequence = 0

    def on_lapsed(self) -> None:
        self.lapses += 1

    async def resume_at(self, replica: Replica) -> Held | Refusal:
        """The same session by another stream."""
        held = Held.__new__(Held)
        held.replica, held.lapses, held._sequence = replica, 0, 0
        secret = self.replica.sessions.secret(self.session)
        resumed = await replica.sessions.resume(self.session.number, secret, held.on_lapsed)
        if isinstance(resumed, Refusal):
            return resumed
        held.session = resumed
        return held

    def wait(self, owner: int, *queues: str, wait_ms: int = -1, jobs_max: int = 1) -> Waiter:
        """A dequeue by an owner, as the stream begins it."""
        whose = self.session.owner(owner)
        for queue in queues:
            self.session.entering(whose, self.replica.store.partition_of(NAMESPACE, queue))
        terms = LeaseTerms(0, self.session.id, whose.key, session_ttl_ms=SESSION_TTL_MS)
        waiter = self.replica.wait(*queues, wait_ms=wait_ms, jobs_max=jobs_max, terms=terms, order=whose)
        assert waiter.handle is not None
        self._sequence += 1
        whose.handles[self._sequence] = waiter.handle
        return waiter

    async def take(self, owner: int, *queues: str, jobs_max: int = 1) -> list[Job]:
        return await self.wait(owner, *queues, wait_ms=0, jobs_max=jobs_max).jobs()

    async def close_owner(self, owner: int) -> Any:
        return await self.replica.do(self.replica.sessions.close_owner, self.session, owner)

    async def keep(self, owner: int, *ids: int) -> Any:
        return await self.replica.do(self.replica.sessions.keep_leases, self.session, owner, ids)

    async def beat(self) -> Refusal | None:
        return await self.replica.sessions.heartbeat(self.session)


async def resumed(held: Held, replica: Replica) -> Held:
    again = await held.resume_at(replica)
    assert isinstance(again, Held), again
    return again


async def ready(replica: Replica, *queues: str) -> list[int]:
    return [await replica.ready(queue) for queue in queues]


@pytest.fixture
def clock(redis: RedisConnection) -> Clock:
    return Clock(redis, PARTITIONS)


@pytest.fixture
def held(clock: Clock, replica: Replica) -> Held:
    return Held(replica)


class TestOwners:
    async def test_hold_their_leases_until_they_close(self, held: Held, replica: Replica) -> None:
        for queue in ("a", "b", "c"):
            await replica.put(queue, b"1", b"2")
            await held.take(1, queue)
        await held.take(2, "a")
        assert await held.close_owner(1) == 3
        assert await ready(replica, "a", "b", "c") == [1, 2, 2]
        assert await held.close_owner(1) == 0

    async def test_that_close_in_the_tick_of_a_dequeue_hold_nothing(self, held: Held, replica: Replica) -> None:
        await replica.put("q")
        waiter = held.wait(1, "q", wait_ms=0)
        closing = asyncio.ensure_future(held.close_owner(1))
        await waiter.answer
        assert await closing == 1
        assert await replica.ready("q") == 1

    async def test_may_be_opened_again_by_their_number(self, held: Held, replica: Replica) -> None:
        await replica.put("q", b"1", b"2")
        await held.take(1, "q")
        closing = asyncio.ensure_future(held.close_owner(1))
        await asyncio.sleep(0)
        job = await held.take(1, "q")
        assert await closing == 1
        assert job[0].payload == b"1"
        assert job[0].attempts == 2
        assert await replica.ready("q") == 1
        assert await held.close_owner(1) == 1

    async def test_end_their_waits_when_they_close(self, held: Held, replica: Replica) -> None:
        waiters = [held.wait(1, "q"), held.wait(1, "a", "b", "c", "d")]
        stays = held.wait(2, "q")
        await replica.settled()
        assert await held.close_owner(1) == 0
        assert [await waiter.reason() for waiter in waiters] == [Reason.OWNER_CLOSED] * 2
        await replica.put("q")
        await stays.job()
        assert replica.dequeues.parked == 0

    async def test_release_more_than_one_step_holds(self, held: Held, replica: Replica) -> None:
        for _ in range(5):
            await replica.put("q", *(b"x" for _ in range(100)))
        for _ in range(5):
            await held.take(1, "q", jobs_max=100)
        assert await held.close_owner(1) == 500
        assert await replica.ready("q") == 500

    @pytest.mark.parametrize("closing", [True, False])
    async def test_keep_what_they_take_while_the_rest_goes_step_by_step(
        self, held: Held, replica: Replica, closing: bool
    ) -> None:
        """Closed and opened again, or asked to keep nothing: what came later is not meant."""
        for _ in range(5):
            await replica.put("q", *(b"early" for _ in range(100)))
            await held.take(1, "q", jobs_max=100)
        await replica.put("q", *(b"late" for _ in range(100)), rank=-1)
        releasing = asyncio.ensure_future(held.close_owner(1) if closing else held.keep(1))
        await asyncio.sleep(0)
        late = await held.take(1, "q", jobs_max=100)
        assert await releasing == 500
        assert {job.payload for job in late} == {b"late"}
        counts = await replica.do(replica.store.count, NAMESPACE, "q")
        assert (counts.leased, counts.ready) == (100, 500)
        assert await held.close_owner(1) == 100

    async def test_keep_the_leases_of_jobs_they_know(self, held: Held, replica: Replica) -> None:
        ids = [*(await replica.put("a", b"1", b"2")), *(await replica.put("b", b"3"))]
        await held.take(1, "a", jobs_max=2)
        await held.take(1, "b")
        assert await held.keep(1, ids[0], 12345) == 2
        assert await ready(replica, "a", "b") == [1, 1]
        assert await held.keep(1) == 1
        assert await held.keep(7) == 0

    async def test_cannot_keep_what_is_no_job(self, held: Held, replica: Replica) -> None:
        await replica.put("q")
        await held.take(1, "q")
        before_any = replica.store.partition_of(NAMESPACE, "q") - PARTITIONS
        assert await held.keep(1, before_any, -(2**63), 0, 2**63 - 1) == 1

    async def test_are_bounded(self, held: Held) -> None:
        held.session.owners_max = 2
        for number in (0, 2**64 - 1, 0):
            held.session.owner(number)
        with pytest.raises(CallerError) as raised:
            held.session.owner(5)
        assert raised.value.refusal.reason is Reason.LIMIT_EXCEEDED
        await held.close_owner(0)
        held.session.owner(5)
        assert held.replica.sessions.owners == 2

    async def test_whose_close_redis_did_not_hear_of_are_closed_by_the_next(self, held: Held, replica: Replica) -> None:
        await replica.put("q")
        await held.take(1, "q")
        assert replica.link is not None
        closing = asyncio.ensure_future(held.close_owner(1))
        await asyncio.sleep(0)
        replica.link.abort()
        answer = await closing
        await replica.connect()
        assert answer == 1 or (answer.reason is Reason.UNAVAILABLE and await held.close_owner(1) in (0, 1))
        assert await replica.ready("q") == 1


class TestSessions:
    async def test_live_by_heartbeats(self, held: Held, replica: Replica, clock: Clock) -> None:
        await replica.put("q")
        await held.take(1, "q")
        for _ in range(3):
            clock.advance(SESSION_TTL_MS - 1)
            assert await held.beat() is None
        clock.advance(SESSION_TTL_MS)
        refused = await held.beat()
        assert refused is not None
        assert refused.reason is Reason.SESSION_LAPSED

    async def test_of_clients_without_heartbeats_live_while_they_are_attached(
        self, replica: Replica, clock: Clock
    ) -> None:
        plain = Held(replica, resumable=False)
        await replica.put("q")
        await plain.take(1, "q")
        for _ in range(3):
            clock.advance(SESSION_TTL_MS - 1)
            await replica.sessions.heartbeat_all()
        assert plain.lapses == 0
        clock.advance(SESSION_TTL_MS)
        await replica.sessions.heartbeat_all()
        assert plain.lapses == 1
        assert replica.sessions.attached == 0

    async def test_that_hold_nothing_do_not_lapse(self, held: Held, clock: Clock) -> None:
        clock.advance(SESSION_TTL_MS * 10)
        assert await held.beat() is None

    async def test_that_lapsed_take_nothing_more(self, held: Held, replica: Replica, clock: Clock) -> None:
        await replica.put("q", b"1", b"2")
        await held.take(1, "q")
        clock.advance(SESSION_TTL_MS)
        assert await held.wait(1, "q").reason() is Reason.SESSION_LAPSED

    async def test_give_back_everything_when_they_close(self, held: Held, replica: Replica) -> None:
        for queue in ("a", "b"):
            await replica.put(queue)
        await held.take(1, "a")
        await held.take(2, "b")
        waiter = held.wait(2, "b")
        await replica.settled()
        await replica.sessions.close(held.session)
        assert await ready(replica, "a", "b") == [1, 1]
        assert waiter.parked
        assert replica.dequeues.parked == 0
        assert replica.sessions.attached == 0

    async def test_that_break_keep_their_leases_and_end_their_waits(self, held: Held, replica: Replica) -> None:
        await replica.put("q", b"1")
        await held.take(1, "q")
        held.wait(1, "q")
        replica.sessions.detach(held.session)
        await replica.put("q", b"2")
        assert await replica.ready("q") == 1
        assert replica.dequeues.parked == 0


class TestResuming:
    async def test_at_another_replica_keeps_leases_and_owners(
        self, held: Held, replica: Replica, other: Replica
    ) -> None:
        ids = [*(await replica.put("a", b"1", b"2")), *(await replica.put("b"))]
        await held.take(1, "a", jobs_max=2)
        await held.take(2, "b")
        replica.sessions.detach(held.session)
        again = await resumed(held, other)
        assert again.session.resumed
        assert await again.keep(1, ids[0]) == 1
        assert await again.close_owner(2) == 1
        assert await again.close_owner(3) == 0
        await other.sessions.close(again.session)
        assert await ready(replica, "a", "b") == [2, 1]

    async def test_needs_the_secret(self, held: Held, replica: Replica, other: Replica) -> None:
        secret = replica.sessions.secret(held.session)
        for number, shown in ((held.session.number, b""), (held.session.number, secret[:-1]), (5, secret)):
            answer = await other.sessions.resume(number, shown, held.on_lapsed)
            assert isinstance(answer, Refusal)
            assert answer.reason is Reason.SESSION_NOT_FOUND

    async def test_of_what_has_lapsed_or_was_closed_is_refused(
        self, held: Held, replica: Replica, other: Replica, clock: Clock
    ) -> None:
        closed = Held(replica)
        await replica.put("q", b"1", b"2")
        await held.take(1, "q")
        await closed.take(1, "q")
        await replica.sessions.close(closed.session)
        clock.advance(SESSION_TTL_MS)
        for session in (held, closed):
            answer = await session.resume_at(other)
            assert isinstance(answer, Refusal)
            assert answer.reason is Reason.SESSION_LAPSED
        assert other.sessions.attached == 0

    async def test_takes_it_from_the_stream_that_still_has_it(self, held: Held, replica: Replica) -> None:
        """Whatever the old stream comes to then is not the end of the session."""
        await replica.put("q")
        await held.take(1, "q")
        waiter = held.wait(1, "other")
        again = await resumed(held, replica)
        assert (held.lapses, again.lapses) == (1, 0)
        await replica.sessions.close(held.session)
        replica.sessions.detach(held.session)
        assert await again.beat() is None
        assert await replica.ready("q") == 0
        assert waiter.parked
        assert replica.dequeues.parked == 0
        assert replica.sessions.attached == 1

    async def test_twice_at_once_leaves_it_with_one(self, held: Held, replica: Replica) -> None:
        replica.sessions.detach(held.session)
        both = await asyncio.gather(resumed(held, replica), resumed(held, replica))
        assert sorted(again.lapses for again in both) == [0, 1]
        assert replica.sessions.attached == 1

    async def test_is_refused_while_redis_is_away(self, held: Held, replica: Replica, deaf: Replica) -> None:
        assert deaf.link is not None
        deaf.pipeline.detach(Refusal(Reason.UNAVAILABLE, ""))
        answer = await held.resume_at(deaf)
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.UNAVAILABLE


def test_owners_are_known_by_eight_bytes() -> None:
    assert Owner(2**64 - 1, set()).key == b"\xff" * 8
    session = Session(b"\0" * 7 + b"\x05", True, lambda: None, set(), resumed=False, owners_max=1)
    assert session.number == 5
