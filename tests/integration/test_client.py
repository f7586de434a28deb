"""Every verb of the client, once or more, against a real core and a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from quintet_client import (
    Client,
    Event,
    JobNotFoundError,
    JobState,
    LeasedJob,
    LimitExceededError,
    NewJob,
    NotLeasedError,
    PauseDirection,
    Placement,
    QueueExistsError,
    QueueFullError,
    QueueNotFoundError,
    QueuePausedError,
    QueueSettings,
    QueueStructure,
    RankOutOfRangeError,
    StaleLeaseError,
)

from tests.support.stack import CorePart


@pytest.fixture
async def client(core: CorePart) -> AsyncIterator[Client]:
    async with Client(core.target, name="tests") as client:
        yield client


async def test_jobs_come_by_rank_then_in_order(client: Client, queue: str) -> None:
    ids = await client.enqueue_many(queue, [NewJob(b"c", rank=5), NewJob(b"a", rank=-5), NewJob(b"b", rank=-5)])
    jobs = await client.dequeue(queue, jobs_max=10)
    assert [job.payload for job in jobs] == [b"a", b"b", b"c"]
    assert [job.id for job in jobs] == [ids[1], ids[2], ids[0]]


async def test_a_job_carries_what_was_given_to_it(client: Client, queue: str) -> None:
    job_id = await client.enqueue(
        queue,
        b"\x00\xff",
        rank=2**62,
        attributes={"trace": "1"},
        content_type="application/x",
        attempts_max=7,
        time_to_live_ms=3_600_000,
        deduplication_key="k",
    )
    job = await client.get_job(job_id)
    assert (job.payload, job.rank, job.attributes, job.content_type) == (
        b"\x00\xff",
        2**62,
        {"trace": "1"},
        "application/x",
    )
    assert (job.state, job.attempts, job.attempts_max, job.deduplication_key) == (JobState.READY, 0, 7, "k")
    assert job.expires_at_ms == job.enqueued_at_ms + 3_600_000
    assert await client.enqueue(queue, b"other", deduplication_key="k") == job_id
    assert (await client.get_job(job_id, without_payload=True)).payload == b""


async def test_many_jobs_are_put_in_order(client: Client, queue: str) -> None:
    payloads = [str(number).encode() for number in range(1050)]
    ids = await client.enqueue_many(queue, payloads)
    assert ids == sorted(ids)
    listed = [job.payload async for job in client.list_jobs(queue, page_size=400)]
    assert listed == payloads


async def test_a_wait_ends_with_the_first_job(client: Client, queue: str) -> None:
    waiting = asyncio.ensure_future(client.dequeue(queue, wait_ms=-1))
    await asyncio.sleep(0)
    job_id = await client.enqueue(queue, b"x")
    assert [job.id for job in await waiting] == [job_id]


async def test_a_wait_ends_empty(client: Client, queue: str) -> None:
    assert await client.dequeue(queue, wait_ms=20) == []


async def test_a_cancelled_wait_takes_no_job(client: Client, queue: str) -> None:
    waiting = asyncio.ensure_future(client.dequeue(queue, wait_ms=-1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    job_id = await client.enqueue(queue, b"x")
    assert (await client.dequeue(queue, wait_ms=-1))[0].id == job_id


async def test_the_best_job_of_several_queues_is_taken(client: Client, queue: str) -> None:
    queues = [f"{queue}-{number}" for number in range(5)]
    for rank, name in enumerate(reversed(queues)):
        await client.enqueue(name, name.encode(), rank=rank)
    taken = [(await client.dequeue(*queues))[0].queue for _ in queues]
    assert taken == list(reversed(queues))


async def test_an_acknowledged_job_is_gone(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue)
    await client.acknowledge(job)
    with pytest.raises(JobNotFoundError):
        await client.acknowledge(job)


async def test_a_lease_of_before_is_stale(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    [first] = await client.dequeue(queue)
    assert await client.release(first, delay_ms=0) is JobState.READY
    with pytest.raises(NotLeasedError):
        await client.acknowledge(first)
    [second] = await client.dequeue(queue)
    with pytest.raises(StaleLeaseError):
        await client.acknowledge(first)
    assert second.attempts == 2
    assert second.lease is not None
    await client.acknowledge(second.id, second.lease.token)


async def test_a_released_job_keeps_its_place_or_goes_to_the_tail(client: Client, queue: str) -> None:
    await client.enqueue_many(queue, [b"1", b"2"])
    [job] = await client.dequeue(queue)
    await client.release(job, delay_ms=0)
    [job] = await client.dequeue(queue)
    assert job.payload == b"1"
    await client.release(job, delay_ms=0, placement=Placement.TAIL, failure_reason="later")
    assert [each.payload for each in await client.peek(queue, jobs_max=5)] == [b"2", b"1"]
    assert (await client.get_job(job.id)).failure_reason == "later"


async def test_a_release_can_delay(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue)
    assert await client.release(job, delay_ms=60_000, undo_attempt=True) is JobState.DELAYED
    assert (await client.peek(queue, state=JobState.DELAYED))[0].attempts == 0


async def test_a_lease_can_be_extended(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue, lease_ms=1000)
    assert job.lease is not None
    assert await client.extend(job, 60_000) > job.lease.deadline_at_ms


async def test_a_job_can_be_deleted_in_any_state(client: Client, queue: str) -> None:
    job_id = await client.enqueue(queue, b"x", delay_ms=60_000)
    assert await client.delete(job_id) is JobState.DELAYED
    with pytest.raises(JobNotFoundError):
        await client.get_job(job_id)


async def test_dead_jobs_are_redriven(client: Client, queue: str) -> None:
    await client.create_queue(queue, QueueSettings(attempts_max=1))
    await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue)
    assert await client.release(job, failure_reason="boom") is JobState.DEAD
    assert (await client.count(queue)).dead == 1
    assert await client.redrive(queue, failure_reason_contains="nothing such") == 0
    assert await client.redrive(queue, failure_reason_contains="oom", reset_attempts=True) == 1
    assert (await client.dequeue(queue))[0].attempts == 1


async def test_a_queue_can_be_purged(client: Client, queue: str) -> None:
    await client.enqueue_many(queue, [b"x"] * 3)
    await client.enqueue(queue, b"y", delay_ms=60_000)
    assert await client.purge(queue, states=[JobState.DELAYED]) == 1
    assert await client.purge(queue) == 3
    assert (await client.count(queue)).total == 0


async def test_a_paused_queue_neither_takes_nor_gives(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    paused = await client.pause(queue, duration_ms=60_000)
    assert paused.paused is PauseDirection.BOTH
    assert paused.paused_until_ms > 0
    with pytest.raises(QueuePausedError):
        await client.enqueue(queue, b"y")
    assert await client.dequeue(queue) == []
    assert (await client.resume(queue)).paused is None
    assert len(await client.dequeue(queue)) == 1


async def test_a_queue_is_made_changed_listed_and_deleted(client: Client, queue: str) -> None:
    settings = QueueSettings(
        structure=QueueStructure.HEAP,
        jobs_max=2,
        payload_bytes_max=10,
        rank_range=(-1, 1),
        lease_ms=5000,
        attempts_max=3,
        backoff_ms=100,
        content_type="text/plain",
    )
    assert (await client.create_queue(queue, settings)).settings == settings
    with pytest.raises(QueueExistsError):
        await client.create_queue(queue)
    with pytest.raises(RankOutOfRangeError):
        await client.enqueue(queue, b"x", rank=2)
    await client.enqueue_many(queue, [b"1", b"2"])
    with pytest.raises(QueueFullError):
        await client.enqueue(queue, b"3")
    changed = await client.update_queue(queue, QueueSettings(jobs_max=0))
    assert changed.settings.jobs_max == 0
    assert (await client.get_queue(queue)).counts.ready == 2
    assert [each.name async for each in client.list_queues(prefix=queue)] == [queue]
    assert await client.delete_queue(queue) == 2
    with pytest.raises(QueueNotFoundError):
        await client.get_queue(queue)


async def test_an_unknown_queue_is_an_error_where_it_may_not_be_made(client: Client, queue: str) -> None:
    with pytest.raises(QueueNotFoundError):
        await client.enqueue(queue, b"x", create_if_missing=False)
    with pytest.raises(QueueNotFoundError):
        await client.dequeue(queue, allow_missing=False)


async def test_a_request_that_breaks_a_rule_is_refused_on_either_way(client: Client) -> None:
    with pytest.raises(LimitExceededError) as on_session:
        await client.enqueue("q" * 5000, b"x")
    with pytest.raises(LimitExceededError) as on_call:
        await client.purge("q" * 5000)
    assert on_session.value.metadata == on_call.value.metadata
    assert on_call.value.metadata["limit"] == "queue"


async def test_every_change_is_an_event_once_and_in_order(client: Client, queue: str) -> None:
    before = {each.partition: each.last_offset for each in await client.list_partitions()}
    job_id = await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue)
    await client.acknowledge(job)
    kinds = []
    async for event in client.subscribe(after_offsets=before):
        if event.queue == queue:
            kinds.append(event.kind)
            assert event.job_id in (0, job_id)
            partition, offset = event.partition, event.offset
        if event.kind == "job_acknowledged" and event.job_id == job_id:
            break
    assert kinds == ["queue_created", "job_enqueued", "job_dequeued", "job_acknowledged"]
    read = await client.read_events(partition, after_offset=offset - 4)
    assert [event.kind for event in read if event.queue == queue] == kinds
    assert await client.commit_offset("tests", partition, offset) == offset
    committed = {each.partition: each.committed_offset for each in await client.list_partitions(consumer="tests")}
    assert committed[partition] == offset


async def test_a_subscription_starts_with_what_comes_next(client: Client, queue: str) -> None:
    await client.enqueue(queue, b"before")

    async def next_of_queue() -> Event:
        # What other tests have left behind is still being deleted.
        return await anext(event async for event in client.subscribe() if event.queue == queue)

    first = asyncio.ensure_future(next_of_queue())
    while not first.done():
        await client.enqueue(queue, b"after")
        await asyncio.wait({first}, timeout=0.05)
    assert first.result().kind == "job_enqueued"
    assert first.result().payload_bytes == len(b"after")


async def test_the_core_says_how_it_is(client: Client) -> None:
    durability = await client.durability()
    assert durability.durable
    assert durability.append_fsync == "always"
    info = await client.info()
    assert info.ready
    assert info.sessions >= 1
    assert info.partitions > 0


async def test_namespaces_are_apart(core: CorePart, client: Client, queue: str) -> None:
    await client.enqueue(queue, b"x")
    async with Client(core.target, namespace="elsewhere") as other:
        assert await other.dequeue(queue) == []


async def test_a_worker_fed_by_many_ends_with_everything_done(client: Client, queue: str) -> None:
    payloads = {str(number).encode() for number in range(300)}
    seen: set[bytes] = set()
    stop = asyncio.Event()

    async def handle(job: LeasedJob) -> None:
        if job.payload == b"7" and job.attempts == 1:
            raise ValueError("once")
        seen.add(job.payload)
        if seen == payloads:
            stop.set()

    working = asyncio.ensure_future(client.run_worker(queue, handler=handle, concurrency=20, stop=stop))
    await client.enqueue_many(queue, sorted(payloads))
    await working
    assert (await client.count(queue)).total == 0


async def test_a_core_that_is_killed_and_comes_back_is_found_again(core: CorePart, client: Client, queue: str) -> None:
    job_id = await client.enqueue(queue, b"x")
    [job] = await client.dequeue(queue, lease_ms=600_000)
    await asyncio.to_thread(core.restart)
    await client.acknowledge(job)
    with pytest.raises(JobNotFoundError):
        await client.get_job(job_id)
