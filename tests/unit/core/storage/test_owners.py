"""Sessions and owners: leases that last as long as their holder."""

from __future__ import annotations

from typing import Any

from quintet_core.domain.job import JobState, Placement
from quintet_core.domain.outcomes import Acknowledged

from tests.support.partition_state import PartitionState
from tests.support.redis_server import RedisConnection
from tests.support.store import Clock, Reason, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, OTHER_OWNER, OWNER, SESSION, SESSION_TTL_MS, Verbs, owned

DAY_MS = 86_400_000


async def heartbeat(verbs: Verbs, *sessions: bytes, ttl_ms: int = SESSION_TTL_MS) -> Any:
    """What the partition says of each session."""
    return await verbs.opened.do(verbs.store.heartbeat, verbs.partition, sessions or (SESSION,), ttl_ms)


async def test_closing_an_owner_returns_its_jobs_and_nobody_elses(verbs: Verbs) -> None:
    for payload in (b"mine", b"other", b"timed"):
        await verbs.put(payload)
    await verbs.take(terms=owned())
    await verbs.take(terms=owned(OTHER_OWNER))
    await verbs.take()
    assert await verbs.store.close_owner(verbs.partition, SESSION, OWNER) == 1
    (job,) = await verbs.take_all()
    assert (job.payload, job.attempts, job.failure_reason) == (b"mine", 2, "owner closed")
    assert await verbs.store.close_owner(verbs.partition, SESSION, OWNER) == 0


async def test_a_returned_job_goes_where_its_dequeue_said(verbs: Verbs) -> None:
    for payload in (b"1", b"2", b"3"):
        await verbs.put(payload)
    await verbs.take(terms=owned(on_close=Placement.TAIL))
    await verbs.take(terms=owned(on_close=Placement.ORIGINAL))
    await verbs.store.close_owner(verbs.partition, SESSION, OWNER)
    assert await verbs.payloads() == [b"2", b"3", b"1"]


async def test_jobs_that_the_owner_still_answers_for_stay_leased(verbs: Verbs) -> None:
    for _ in range(3):
        await verbs.put()
    first, second, _ = await verbs.take_all(terms=owned())
    kept = [first.id, second.id, 999_999]
    assert await verbs.store.close_owner(verbs.partition, SESSION, OWNER, kept=kept) == 1
    assert await verbs.acknowledge(first) == Acknowledged()
    assert await verbs.state(second.id) is JobState.LEASED


async def test_a_thousand_leases_are_released_in_steps(verbs: Verbs) -> None:
    for _ in range(500):
        await verbs.put(attempts_max=1)
    await verbs.take_all(terms=owned(), jobs_max=500)
    assert await verbs.store.close_owner(verbs.partition, SESSION, OWNER) == 500
    assert (await verbs.count()).dead == 500


async def test_a_closed_session_returns_all_and_never_comes_back(verbs: Verbs) -> None:
    await verbs.put(b"1")
    await verbs.put(b"2")
    await verbs.take(terms=owned())
    await verbs.take(terms=owned(OTHER_OWNER))
    assert await verbs.store.close_session(verbs.partition, SESSION) == 2
    assert reason_of(await verbs.dequeue(terms=owned())) is Reason.SESSION_LAPSED
    assert await heartbeat(verbs) == [-1]
    assert await verbs.payloads() == [b"1", b"2"]


async def test_a_session_is_known_where_it_holds_something(verbs: Verbs) -> None:
    assert await heartbeat(verbs) == [0]
    await verbs.put()
    await verbs.take(terms=owned())
    assert await heartbeat(verbs, SESSION, b"stranger") == [1, 0]


async def test_a_session_that_is_heard_of_in_time_goes_on(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=owned())
    for _ in range(5):
        clock.advance(SESSION_TTL_MS - 1)
        assert await heartbeat(verbs) == [1]
        assert await verbs.store.lapse(verbs.partition) is False
    assert await verbs.acknowledge(job) == Acknowledged()


async def test_a_silent_session_lapses_and_its_jobs_come_back(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=owned())
    clock.advance(SESSION_TTL_MS)
    assert await heartbeat(verbs) == [-1]
    assert reason_of(await verbs.dequeue(terms=owned())) is Reason.SESSION_LAPSED
    assert await verbs.store.lapse(verbs.partition) is True
    assert await verbs.store.lapse(verbs.partition) is False
    again = await verbs.take()
    assert (again.id, again.attempts) == (job.id, 2)
    assert reason_of(await verbs.acknowledge(job)) is Reason.STALE_LEASE


async def test_a_lapse_in_steps_ends_with_the_last_lease(verbs: Verbs, clock: Clock) -> None:
    for _ in range(450):
        await verbs.put()
    await verbs.take_all(terms=owned(), jobs_max=450)
    clock.advance(SESSION_TTL_MS)
    steps = 0
    while await verbs.store.lapse(verbs.partition):
        steps += 1
    assert steps == 3
    assert (await verbs.count()).ready == 450
    assert await heartbeat(verbs) == [-1]


async def test_a_lapsed_session_is_remembered_for_a_day(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    await verbs.take(terms=owned())
    await verbs.store.close_session(verbs.partition, SESSION)
    clock.advance(DAY_MS - 1)
    await verbs.store.sweep(verbs.partition)
    assert await heartbeat(verbs) == [-1]
    clock.advance(1)
    await verbs.store.sweep(verbs.partition)
    assert await heartbeat(verbs) == [0]


async def test_nothing_is_left_of_owners_when_all_is_done(verbs: Verbs, redis: RedisConnection) -> None:
    for _ in range(4):
        await verbs.put(attempts_max=1)
    one, two, three, _ = await verbs.take_all(terms=owned())
    await verbs.acknowledge(one)
    await verbs.release(two, delay_ms=1000)
    await verbs.delete(three.id)
    await verbs.store.purge_step(NAMESPACE, "q", JobState.LEASED)
    found = PartitionState(redis, verbs.partition)
    found.check()
    assert "owned" not in found.raw
