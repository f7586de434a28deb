"""Queues as wholes: policies, pauses, counts, listings, bulk work, deletion."""

from __future__ import annotations

import asyncio

import pytest
from quintet_core.domain.job import JobState, NewJob
from quintet_core.domain.queue import PauseDirection, QueueCounts, QueueSettings
from quintet_core.storage.redis_store import Scope

from tests.support.partition_state import PartitionState
from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS, Clock, Reason, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, Verbs, owned

SETTINGS = QueueSettings(
    structure=1,
    jobs_max=10,
    payload_bytes_max=20,
    rank_range=(-(2**63), 2**63 - 1),
    lease_ms=1,
    attempts_max=2,
    backoff_ms=3,
    backoff_max_ms=4,
    dead_letter_queue="lettres mortes",
    content_type="text/plain",
)


async def test_a_queue_keeps_its_settings(verbs: Verbs) -> None:
    await verbs.opened.do(verbs.store.create_queue, NAMESPACE, "q", SETTINGS)
    queue = await verbs.queue()
    assert (queue.namespace, queue.name, queue.settings) == (NAMESPACE, "q", SETTINGS)
    assert (queue.created_at_ms, queue.partition) == (START_MS, verbs.partition)
    assert (queue.paused, queue.paused_until_ms) == (PauseDirection.NONE, 0)
    assert (await verbs.update()).settings == QueueSettings()
    assert (await verbs.queue()).settings == QueueSettings()


async def test_a_queue_is_created_once(verbs: Verbs) -> None:
    await verbs.create()
    assert reason_of(await verbs.create()) is Reason.QUEUE_EXISTS


async def test_what_is_not_there_is_not_found(verbs: Verbs) -> None:
    store = verbs.store
    answers = [
        await verbs.put_all([NewJob(b"")], create=False),
        await verbs.dequeue(),
        await verbs.count(),
        await verbs.queue(),
        await verbs.update(),
        await verbs.pause(3),
        await verbs.resume(),
        await verbs.delete_queue(),
        await store.purge_step(NAMESPACE, "q", JobState.READY),
        await store.redrive_step(NAMESPACE, "q", JobState.DEAD, "", 1, False, None),
        await verbs.opened.do(store.list_jobs, NAMESPACE, "q", JobState.READY, 1, None, True),
    ]
    assert {reason_of(answer) for answer in answers} == {Reason.QUEUE_NOT_FOUND}


async def test_the_name_of_a_queue_is_any_text_and_namespaces_keep_apart(verbs: Verbs) -> None:
    names = ["", " ", "q\n", "ü" * 2048, "{p00}", "q", "Q"]
    for name in names:
        await verbs.put(name.encode(), queue=name)
    await verbs.opened.do(verbs.store.enqueue, "other", "q", [NewJob(b"not mine")], True)
    for name in names:
        (job,) = await verbs.take_all(name)
        assert job.payload == name.encode()


async def test_a_full_queue_takes_no_more_but_names_known_jobs(verbs: Verbs) -> None:
    await verbs.create(jobs_max=2)
    known = await verbs.put(deduplication_key="k")
    refused = await verbs.put_all([NewJob(b""), NewJob(b"")])
    assert reason_of(refused) is Reason.QUEUE_FULL
    assert refused.metadata == {"max": "2"}
    await verbs.put(delay_ms=1000)
    assert reason_of(await verbs.put_all([NewJob(b"")])) is Reason.QUEUE_FULL
    assert await verbs.put(deduplication_key="k") == known
    await verbs.take()
    await verbs.put()


async def test_expired_jobs_fill_no_queue(verbs: Verbs, clock: Clock) -> None:
    await verbs.create(jobs_max=1)
    await verbs.put(time_to_live_ms=1000)
    clock.advance(1000)
    await verbs.put()


async def test_ranks_and_payloads_keep_to_what_the_queue_allows(verbs: Verbs) -> None:
    await verbs.create(rank_range=(-1, 2**63 - 2), payload_bytes_max=3)
    for rank in (-1, 0, 2**63 - 2):
        await verbs.put(b"123", rank=rank)
    for rank in (-2, 2**63 - 1):
        out_of_range = await verbs.put_all([NewJob(b"", rank=rank)])
        assert reason_of(out_of_range) is Reason.RANK_OUT_OF_RANGE
        assert out_of_range.metadata == {"min": "-1", "max": str(2**63 - 2)}
    refused = await verbs.put_all([NewJob(b"123"), NewJob(b"1234")])
    assert reason_of(refused) is Reason.PAYLOAD_TOO_LARGE
    assert refused.metadata == {"max": "3"}
    assert (await verbs.count()).ready == 3


async def test_of_several_broken_policies_the_first_is_told(verbs: Verbs) -> None:
    """The order of TaskFlux: size, rank, payload."""
    await verbs.create(jobs_max=1, rank_range=(0, 9), payload_bytes_max=2)
    both = [NewJob(b"123", rank=10)]
    assert reason_of(await verbs.put_all(both)) is Reason.RANK_OUT_OF_RANGE
    await verbs.put(b"1")
    assert reason_of(await verbs.put_all(both)) is Reason.QUEUE_FULL


async def test_the_size_limit_counts_ready_and_delayed_jobs_alone(verbs: Verbs) -> None:
    await verbs.create(jobs_max=1)
    await verbs.put(b"1")
    await verbs.take()
    await verbs.put(b"2", delay_ms=60_000)
    assert reason_of(await verbs.put_all([NewJob(b"3")])) is Reason.QUEUE_FULL


async def test_a_queue_paused_inwards_takes_nothing(verbs: Verbs) -> None:
    await verbs.put(b"1")
    assert (await verbs.pause(PauseDirection.IN)).paused is PauseDirection.IN
    assert reason_of(await verbs.put_all([NewJob(b"2")])) is Reason.QUEUE_PAUSED
    assert await verbs.payloads() == [b"1"]


async def test_a_queue_paused_outwards_gives_nothing(verbs: Verbs) -> None:
    one, two = verbs.siblings(2)
    await verbs.put(b"1", queue=one)
    await verbs.put(b"2", queue=two)
    await verbs.pause(PauseDirection.OUT, queue=one)
    assert await verbs.payloads(one, two) == [b"2"]
    await verbs.resume(one)
    assert await verbs.payloads(one, two) == [b"1"]


async def test_pauses_add_up_and_end_together(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    await verbs.pause(PauseDirection.IN)
    paused = await verbs.pause(PauseDirection.OUT, 1000)
    assert (paused.paused, paused.paused_until_ms) == (PauseDirection.BOTH, START_MS + 1000)
    clock.advance(999)
    assert await verbs.take_all() == []
    clock.advance(1)
    await verbs.put()
    assert len(await verbs.take_all()) == 2
    assert [event.kind for event in await verbs.events()].count(24) == 1


async def test_a_pause_that_ended_is_not_shown_in_a_listing(verbs: Verbs, clock: Clock) -> None:
    await verbs.create()
    await verbs.pause(PauseDirection.BOTH, 1000)
    clock.advance(1000)
    (listed,) = await verbs.store.list_queues(verbs.partition, NAMESPACE, "", None, 10)  # type: ignore[misc]
    assert (listed.paused, listed.paused_until_ms) == (PauseDirection.NONE, 0)
    await verbs.queue()
    assert [event.kind for event in await verbs.events()].count(24) == 1


async def test_resuming_what_runs_is_no_event(verbs: Verbs) -> None:
    await verbs.create()
    before = len(await verbs.events())
    await verbs.resume()
    assert len(await verbs.events()) == before


async def test_counts_are_of_this_moment(verbs: Verbs, clock: Clock) -> None:
    await verbs.put_all([NewJob(b"", delay_ms=1000), NewJob(b"", attempts_max=1)])
    await verbs.put_all([NewJob(b""), NewJob(b"", time_to_live_ms=1000)])
    await verbs.release(await verbs.take())
    await verbs.take(terms=owned())
    assert await verbs.count() == QueueCounts(ready=1, delayed=1, leased=1, dead=1)
    clock.advance(1000)
    assert await verbs.count() == QueueCounts(ready=1, delayed=0, leased=1, dead=1)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_show_each_job_once(verbs: Verbs, limit: int) -> None:
    ids = [await verbs.put(rank=number % 3) for number in range(6)]
    seen, cursor = [], None
    while True:
        page = await verbs.page(JobState.READY, limit, cursor)
        seen += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
    assert seen == [ids[0], ids[3], ids[1], ids[4], ids[2], ids[5]]


@pytest.mark.parametrize("state", [JobState.READY, JobState.LEASED, JobState.DELAYED])
async def test_a_job_that_stays_is_listed_while_others_move(verbs: Verbs, clock: Clock, state: JobState) -> None:
    ids = [await verbs.put(delay_ms=1000 if state is JobState.DELAYED else 0) for _ in range(6)]
    if state is JobState.LEASED:
        await verbs.take_all()
    page = await verbs.page(state, 2)
    # The cursor's own job goes away, or to the far end.
    if state is JobState.LEASED:
        await verbs.extend(page.jobs[-1], 10**6)
    elif state is JobState.DELAYED:
        await verbs.store.redrive_job(page.jobs[-1].id, Scope.of(NAMESPACE, None), state, False)
        await verbs.release(await verbs.take(), delay_ms=10**6)
    else:
        await verbs.delete(page.jobs[-1].id)
    await verbs.delete(page.jobs[0].id)
    rest = await verbs.page(state, 100, page.cursor)
    assert [job.id for job in rest.jobs][:4] == ids[2:]


async def test_leased_jobs_are_listed_by_deadline_and_dead_ones_by_death(verbs: Verbs, clock: Clock) -> None:
    first, second = await verbs.put(attempts_max=1), await verbs.put(attempts_max=1)
    early, late = await verbs.take_all()
    await verbs.extend(early, 90_000)
    assert [job.id for job in (await verbs.page(JobState.LEASED)).jobs] == [second, first]
    await verbs.release(late)
    clock.advance(1)
    await verbs.release(early)
    assert [job.id for job in (await verbs.page(JobState.DEAD)).jobs] == [second, first]


async def test_purge_empties_one_state(verbs: Verbs) -> None:
    for _ in range(3):
        await verbs.put()
    await verbs.put(delay_ms=1000)
    await verbs.take()
    assert await verbs.store.purge_step(NAMESPACE, "q", JobState.READY) == 2
    assert await verbs.store.purge_step(NAMESPACE, "q", JobState.READY) == 0
    assert await verbs.count() == QueueCounts(ready=0, delayed=1, leased=1, dead=0)


async def kill(verbs: Verbs, *reasons: str) -> list[int]:
    """Dead jobs, one for each reason."""
    ids = [await verbs.put(attempts_max=1) for _ in reasons]
    for reason in reasons:
        await verbs.release(await verbs.take(), failure_reason=reason)
    return ids


async def test_redrive_makes_the_dead_ready(verbs: Verbs) -> None:
    ids = await kill(verbs, "disk full", "bug", "disk slow")
    assert await verbs.store.redrive_step(NAMESPACE, "q", JobState.DEAD, "disk", 9, False, None) == (2, None)
    taken = await verbs.take_all()
    assert [(job.id, job.attempts) for job in taken] == [(ids[0], 2), (ids[2], 2)]


async def test_redrive_can_forget_the_attempts_and_keep_to_a_number(verbs: Verbs) -> None:
    ids = await kill(verbs, "1", "2")
    step = await verbs.store.redrive_step(NAMESPACE, "q", JobState.DEAD, "", 1, True, None)
    assert not isinstance(step, type(None))
    (job,) = await verbs.take_all()
    assert (job.id, job.attempts) == (ids[0], 1)
    assert (await verbs.count()).dead == 1


async def test_redrive_goes_on_behind_its_cursor(verbs: Verbs) -> None:
    await kill(verbs, *(["wanted" if number % 100 == 7 else "other" for number in range(450)]))
    found, cursor, steps = 0, None, 0
    while True:
        step = await verbs.store.redrive_step(NAMESPACE, "q", JobState.DEAD, "wanted", 1000, False, cursor)
        assert isinstance(step, tuple)
        found, cursor, steps = found + step[0], step[1], steps + 1
        if cursor is None:
            break
    assert (found, steps) == (5, 3)


async def test_redriven_delayed_jobs_are_ready_from_now_on(verbs: Verbs, clock: Clock) -> None:
    await verbs.put(delay_ms=50_000)
    assert await verbs.store.redrive_step(NAMESPACE, "q", JobState.DELAYED, "", 9, False, None) == (1, None)
    clock.advance(300)
    await verbs.take()
    assert (await verbs.events())[-1].wait_ms == 300


async def test_a_deleted_queue_is_gone_at_once_and_its_jobs_soon(
    verbs: Verbs, redis: RedisConnection, clock: Clock
) -> None:
    ids = [await verbs.put() for _ in range(250)]
    await verbs.put(delay_ms=1000, time_to_live_ms=2000)
    held = await verbs.take(terms=owned())
    await verbs.take()
    assert await verbs.delete_queue() == 251
    assert reason_of(await verbs.count()) is Reason.QUEUE_NOT_FOUND
    assert reason_of(await verbs.get(ids[5])) is Reason.JOB_NOT_FOUND
    assert reason_of(await verbs.acknowledge(held)) is Reason.JOB_NOT_FOUND
    await verbs.put(b"a new life")
    clock.advance(5000)
    steps = 0
    while await verbs.store.sweep(verbs.partition):
        steps += 1
    assert steps == 2
    found = PartitionState(redis, verbs.partition)
    found.check()
    assert len(found.states()) == 1
    assert await verbs.payloads() == [b"a new life"]
    assert sum(event.detail == "queue deleted" for event in await verbs.events()) == 251


async def test_listed_queues_come_in_the_order_of_their_names(verbs: Verbs) -> None:
    names = sorted(verbs.siblings(5), key=str.encode)
    for name in reversed(names):
        await verbs.create(name)
    listed = await verbs.store.list_queues(verbs.partition, NAMESPACE, "q", None, 3)
    assert [queue.name for queue in listed] == names[:3]  # type: ignore[union-attr]
    rest = await verbs.store.list_queues(verbs.partition, NAMESPACE, "q", names[2], 3)
    assert [queue.name for queue in rest] == names[3:]  # type: ignore[union-attr]
    assert await verbs.store.list_queues(verbs.partition, "other", "", None, 3) == []


async def test_more_due_than_one_call_settles_is_settled_all_the_same(verbs: Verbs, clock: Clock) -> None:
    for _ in range(25):
        await verbs.put_all([NewJob(b"", delay_ms=1000) for _ in range(100)])
    clock.advance(1000)
    assert await verbs.count() == QueueCounts(ready=2500, delayed=0, leased=0, dead=0)


async def test_a_batch_that_writes_more_than_one_command_takes_is_written_whole(
    verbs: Verbs, redis: RedisConnection
) -> None:
    batches = (verbs.put_all([NewJob(b"x", time_to_live_ms=9000)] * 100) for _ in range(30))
    await asyncio.gather(*batches)
    assert (await verbs.count()).ready == 3000
    steps = (verbs.store.purge_step(NAMESPACE, "q", JobState.READY) for _ in range(10))
    assert await asyncio.gather(*steps) == [200] * 10
    taken = await asyncio.gather(*(verbs.take_all(jobs_max=100) for _ in range(11)))
    assert [len(jobs) for jobs in taken] == [100] * 10 + [0]
    await asyncio.gather(*(verbs.acknowledge(job) for jobs in taken for job in jobs[:50]))
    found = PartitionState(redis, verbs.partition)
    found.check()
    assert list(found.states().values()) == [JobState.LEASED] * 500
