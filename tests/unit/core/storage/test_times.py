"""Delays, times to live and deduplication windows: exact to the millisecond of the partition's clock."""

from __future__ import annotations

from quintet_core.domain.job import JobState, LeaseTerms, NewJob
from quintet_core.domain.outcomes import Enqueued, Released

from tests.support.redis_server import RedisConnection
from tests.support.store import Clock, Reason, reason_of
from tests.unit.core.storage.verbs import Verbs


async def test_a_delayed_job_comes_when_its_time_has_come(verbs: Verbs, clock: Clock) -> None:
    await verbs.put(b"later", delay_ms=1000, rank=-1)
    await verbs.put(b"now")
    assert await verbs.payloads() == [b"now"]
    clock.advance(999)
    assert await verbs.take_all() == []
    clock.advance(1)
    assert await verbs.payloads() == [b"later"]


async def test_a_delayed_job_has_the_place_of_its_rank_and_age(verbs: Verbs, clock: Clock) -> None:
    await verbs.put(b"older", delay_ms=1000)
    await verbs.put(b"younger")
    clock.advance(1000)
    assert await verbs.payloads() == [b"older", b"younger"]


async def test_due_work_is_carried_out_without_anyone_asking(verbs: Verbs, clock: Clock) -> None:
    delayed = await verbs.put(delay_ms=1000)
    clock.advance(1000)
    assert await verbs.store.settle_due(verbs.partition, 100) is False
    kinds = [event.kind for event in await verbs.events() if event.job_id == delayed]
    assert kinds == [1, 9]


async def test_an_expired_job_is_not_there(verbs: Verbs, clock: Clock) -> None:
    job_id = await verbs.put(time_to_live_ms=1000)
    clock.advance(999)
    assert await verbs.state(job_id) is JobState.READY
    clock.advance(1)
    assert reason_of(await verbs.acknowledge(job_id)) is Reason.JOB_NOT_FOUND
    assert reason_of(await verbs.get(job_id)) is Reason.JOB_NOT_FOUND
    assert (await verbs.count()).ready == 0
    assert await verbs.take_all() == []


async def test_a_delayed_job_can_expire_before_its_time(verbs: Verbs, clock: Clock) -> None:
    await verbs.put(delay_ms=2000, time_to_live_ms=1000)
    clock.advance(3000)
    assert await verbs.take_all() == []
    assert [event.kind for event in await verbs.events()][-1] == 10


async def test_a_leased_job_outlives_its_time_but_does_not_come_back(verbs: Verbs, clock: Clock) -> None:
    await verbs.put(time_to_live_ms=1000)
    job = await verbs.take(terms=LeaseTerms(60_000))
    clock.advance(5000)
    assert await verbs.state(job.id) is JobState.LEASED
    assert await verbs.release(job) == Released(None)
    assert reason_of(await verbs.get(job.id)) is Reason.JOB_NOT_FOUND


async def test_a_returned_job_still_expires(verbs: Verbs, clock: Clock) -> None:
    job_id = await verbs.put(time_to_live_ms=1000)
    await verbs.release(await verbs.take())
    clock.advance(1000)
    assert reason_of(await verbs.get(job_id)) is Reason.JOB_NOT_FOUND


async def test_a_clock_that_steps_back_harms_nothing(verbs: Verbs, redis: RedisConnection, clock: Clock) -> None:
    job_id = await verbs.put(delay_ms=1000)
    clock.advance(1000)
    assert await verbs.state(job_id) is JobState.READY
    # Redis's own TIME is years before the clock that the partition has seen.
    assert int(redis.command("TIME")[0]) * 1000 < clock.now
    events = await verbs.events()
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)


async def test_a_key_names_the_first_job_within_its_window(verbs: Verbs, clock: Clock) -> None:
    first = await verbs.put(b"first", deduplication_key="k", deduplication_window_ms=1000)
    again = await verbs.put_all([NewJob(b"second", deduplication_key="k")])
    assert again == Enqueued([first], [first])
    clock.advance(1000)
    later = await verbs.put(b"third", deduplication_key="k", deduplication_window_ms=1000)
    assert later != first
    assert await verbs.payloads() == [b"first", b"third"]


async def test_a_key_is_remembered_for_five_minutes_and_longer_than_its_job(verbs: Verbs, clock: Clock) -> None:
    first = await verbs.put(deduplication_key="k")
    await verbs.acknowledge(await verbs.take())
    clock.advance(299_999)
    assert await verbs.put(deduplication_key="k") == first
    clock.advance(1)
    assert await verbs.put(deduplication_key="k") != first


async def test_keys_of_different_queues_are_different_keys(verbs: Verbs) -> None:
    one, two = verbs.siblings(2)
    assert await verbs.put(queue=one, deduplication_key="k") != await verbs.put(queue=two, deduplication_key="k")


async def test_a_key_twice_in_one_batch_is_one_job(verbs: Verbs) -> None:
    answer = await verbs.put_all(
        [NewJob(b"1", deduplication_key="k"), NewJob(b"2"), NewJob(b"3", deduplication_key="k")]
    )
    assert answer.ids[0] == answer.ids[2] != answer.ids[1]
    assert answer.deduplicated == [answer.ids[0]]
    assert await verbs.payloads() == [b"1", b"2"]


async def test_forgotten_keys_are_swept_and_others_are_not(verbs: Verbs, clock: Clock, redis: RedisConnection) -> None:
    await verbs.put(deduplication_key="short", deduplication_window_ms=1000)
    await verbs.put(deduplication_key="long", deduplication_window_ms=5000)
    clock.advance(1000)
    assert await verbs.store.sweep(verbs.partition) is False
    (kept,) = redis.command("HKEYS", f"{{p{verbs.partition:02d}}}:dedup")
    assert kept.endswith(b"long")
