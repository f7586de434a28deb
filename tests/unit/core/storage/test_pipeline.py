"""The pipeline: what is batched with what, and what everybody is told when things go wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from quintet_core.domain.errors import Refusal, refusal
from quintet_core.domain.job import NewJob
from quintet_core.domain.limits import Limits
from quintet_core.domain.outcomes import Acknowledged, Enqueued
from quintet_core.storage.link import Address, connect, into
from quintet_core.storage.packing import pack
from quintet_core.storage.pipeline import Operation, Ordered, Pipeline
from quintet_core.storage.redis_store import RedisStore

from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer, prepare
from tests.support.store import REPLICA, Clock, OpenStore, Reason, Recorder, open_store, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, Verbs


async def test_a_lone_operation_leaves_at_once(verbs: Verbs) -> None:
    await verbs.put()
    assert verbs.opened.recorder.batches == [(1, 1)]


async def test_what_arrives_meanwhile_is_one_batch(verbs: Verbs) -> None:
    first = asyncio.ensure_future(verbs.put())
    # The first leaves in this tick, the rest come while it is on its way.
    while not verbs.opened.recorder.batches and verbs.opened.pipeline.queued == 0:
        await asyncio.sleep(0)
    while verbs.opened.pipeline.queued:
        await asyncio.sleep(0)
    await asyncio.gather(first, *(verbs.put() for _ in range(50)))
    assert verbs.opened.recorder.batches == [(1, 1), (50, 1)]


async def test_operations_are_grouped_by_partition_and_no_group_is_too_large(verbs: Verbs) -> None:
    elsewhere = next(
        name for name in map(str, range(99)) if verbs.store.partition_of(NAMESPACE, name) != verbs.partition
    )
    await asyncio.gather(*(verbs.put(queue="q" if number % 2 else elsewhere) for number in range(1200)))
    assert verbs.opened.recorder.batches == [(1200, 6)]


async def test_large_payloads_make_smaller_groups(verbs: Verbs) -> None:
    await asyncio.gather(*(verbs.put(bytes(600_000)) for _ in range(4)))
    assert verbs.opened.recorder.batches == [(4, 2)]


async def test_one_owners_operations_take_effect_in_their_order_across_partitions(
    verbs: Verbs, redis: RedisConnection
) -> None:
    """What an owner puts here and there alternates: no later one is carried out in an earlier group."""
    here, there = "q", next(n for n in map(str, range(99)) if verbs.store.partition_of(NAMESPACE, n) != verbs.partition)
    order, store = Ordered(), verbs.store
    futures: list[asyncio.Future[Any]] = []
    for number in range(20):
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        futures.append(future)
        job = NewJob(b"%d" % number)
        store.enqueue(NAMESPACE, here if number % 2 else there, [job], True, into(future), order)
    await asyncio.gather(*futures)
    # Ten pairs: each of the first in a group of its own before the second's.
    assert verbs.opened.recorder.batches == [(20, 20)]


async def test_different_owners_share_groups(verbs: Verbs) -> None:
    there = next(n for n in map(str, range(99)) if verbs.store.partition_of(NAMESPACE, n) != verbs.partition)
    futures: list[asyncio.Future[Any]] = []
    for number in range(20):
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        futures.append(future)
        verbs.store.enqueue(NAMESPACE, "q" if number % 2 else there, [NewJob(b"")], True, into(future), Ordered())
    await asyncio.gather(*futures)
    assert verbs.opened.recorder.batches == [(20, 2)]


async def test_the_observer_hears_of_clock_due_times_and_waking(verbs: Verbs, clock: Clock) -> None:
    recorder = verbs.opened.recorder
    await verbs.dequeue(allow_missing=True, await_jobs=True)
    assert recorder.clocks[-1] == (verbs.partition, clock.now, None)
    recorder.clocks.clear()
    await verbs.put(delay_ms=700)
    assert recorder.clocks == [(verbs.partition, clock.now, clock.now + 700)]
    assert recorder.woken == []
    await verbs.put()
    assert recorder.woken == [(b"\x01nq", 1)]
    await verbs.delete_queue()
    assert recorder.woken[-1] == (b"\x01nq", 0)


async def test_a_queue_that_is_deleted_in_the_batch_that_fed_it_wakes_nobody_for_its_jobs(verbs: Verbs) -> None:
    await verbs.create()
    await verbs.dequeue(await_jobs=True)
    await asyncio.gather(verbs.put(), verbs.delete_queue())
    assert verbs.opened.recorder.woken == [(b"\x01nq", 0)]


async def test_an_answer_that_nobody_can_take_does_not_keep_the_others_from_theirs(
    verbs: Verbs, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("cannot take it")

    verbs.store.enqueue(NAMESPACE, "q", [NewJob(b"1")], True, fail)
    with caplog.at_level(logging.ERROR):
        await verbs.put(b"2")
    assert "answer_not_taken" in caplog.text
    assert await verbs.payloads() == [b"1", b"2"]


async def test_what_redis_does_not_know_is_refused_alone(verbs: Verbs) -> None:
    unknown: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    verbs.opened.pipeline.submit(Operation(verbs.partition, pack("no_such_verb", ["x"]), into(unknown)))
    await verbs.put()
    assert reason_of(await unknown) is Reason.INTERNAL


async def test_a_partition_that_is_not_prepared_is_damaged(verbs: Verbs, redis: RedisConnection) -> None:
    redis.command("DEL", f"{{p{verbs.partition:02d}}}:meta")
    assert reason_of(await verbs.put_all([NewJob(b"")])) is Reason.DAMAGED


async def test_a_missing_library_is_unavailable(own_redis_server: RedisServer) -> None:
    async with open_store(own_redis_server.path, PARTITIONS) as opened:
        answer = await opened.do(opened.store.count, NAMESPACE, "q")
    assert reason_of(answer) is Reason.UNAVAILABLE


@pytest.fixture
def full(own_redis_server: RedisServer) -> Iterator[RedisConnection]:
    """A connection to a prepared server of our own, whose memory can be made too small."""
    with RedisConnection(own_redis_server.path) as connection:
        prepare(connection)
        yield connection


async def test_when_memory_is_full_jobs_go_out_but_not_in(own_redis_server: RedisServer, full: RedisConnection) -> None:
    async with open_store(own_redis_server.path, PARTITIONS) as opened:
        verbs = Verbs(opened, Clock(full, PARTITIONS))
        for _ in range(3):
            await verbs.put()
        first = await verbs.take()
        full.command("CONFIG", "SET", "maxmemory", 1)
        more, taken, acknowledged, counted, created = await asyncio.gather(
            verbs.put_all([NewJob(b"")]), verbs.take(), verbs.acknowledge(first), verbs.count(), verbs.create("new")
        )
        assert reason_of(more) is Reason.MEMORY_FULL
        assert reason_of(created) is Reason.MEMORY_FULL
        assert acknowledged == Acknowledged()
        assert (taken.attempts, counted.leased) == (1, 1)
        full.command("CONFIG", "SET", "maxmemory", 0)
        await verbs.put()
        assert len(await verbs.take_all()) == 2


async def test_a_lost_connection_answers_everyone_exactly_once(own_redis_server: RedisServer) -> None:
    with RedisConnection(own_redis_server.path) as connection:
        prepare(connection)
    async with open_store(own_redis_server.path, PARTITIONS) as opened:
        answers: list[Any] = []
        own_redis_server.freeze()
        for number in range(3000):
            opened.store.enqueue(NAMESPACE, f"q{number % 7}", [NewJob(b"")], True, answers.append)
            if number == 1000:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        own_redis_server.kill()
        while len(answers) < 3000:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert len(answers) == 3000
        assert {reason_of(answer) for answer in answers} == {Reason.UNAVAILABLE}
        assert opened.lost == [None]
        assert reason_of(await opened.do(opened.store.count, NAMESPACE, "q")) is Reason.UNAVAILABLE


async def test_a_server_that_falls_silent_is_given_up(own_redis_server: RedisServer) -> None:
    with RedisConnection(own_redis_server.path) as connection:
        prepare(connection)
    async with open_store(own_redis_server.path, PARTITIONS, reply_timeout_s=0.1) as opened:
        own_redis_server.freeze()
        answer = await opened.do(opened.store.count, NAMESPACE, "q")
        assert reason_of(answer) is Reason.UNAVAILABLE
        assert not opened.link.open
        own_redis_server.thaw()


async def test_operations_go_on_over_a_new_connection(own_redis_server: RedisServer) -> None:
    with RedisConnection(own_redis_server.path) as connection:
        prepare(connection)
    async with open_store(own_redis_server.path, PARTITIONS) as opened:
        put = (NAMESPACE, "q", [NewJob(b"kept")], True)
        assert isinstance(await opened.do(opened.store.enqueue, *put), Enqueued)
        own_redis_server.kill()
        while not opened.lost:
            await asyncio.sleep(0.001)
        own_redis_server.start()
        opened.pipeline.attach(await connect(Address(path=own_redis_server.path), lambda: None))
        counts = await opened.do(opened.store.count, NAMESPACE, "q")
        assert counts.ready == 1


async def test_an_answer_never_comes_before_the_submission_returns() -> None:
    pipeline = Pipeline(REPLICA, Recorder(), 1.0, Limits())
    store, answers = RedisStore(pipeline, PARTITIONS), list[Any]()
    store.count(NAMESPACE, "q", answers.append)
    assert answers == []
    await asyncio.sleep(0)
    assert [reason_of(answer) for answer in answers] == [Reason.UNAVAILABLE]


@pytest.fixture
async def frozen(own_redis_server: RedisServer) -> AsyncIterator[OpenStore]:
    """A store whose server does not answer for now."""
    with RedisConnection(own_redis_server.path) as connection:
        prepare(connection)
    async with open_store(own_redis_server.path, PARTITIONS) as opened:
        own_redis_server.freeze()
        yield opened
        own_redis_server.thaw()


@pytest.mark.parametrize(("bound", "value"), [("_queued_max", 10), ("_queued_bytes_max", 5000)])
async def test_no_more_is_queued_than_is_allowed(
    frozen: OpenStore, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(frozen.pipeline, bound, value)
    answers: list[Any] = []
    for _ in range(100):
        frozen.store.enqueue(NAMESPACE, "q", [NewJob(bytes(1000))], True, answers.append)
    await asyncio.sleep(0)
    assert 0 < len(answers) < 100
    assert {reason_of(answer) for answer in answers} == {Reason.TOO_MANY_IN_FLIGHT}


async def test_detaching_refuses_what_waits_and_what_comes(frozen: OpenStore) -> None:
    answers: list[Any] = []
    frozen.store.count(NAMESPACE, "q", answers.append)
    await asyncio.sleep(0)
    frozen.store.count(NAMESPACE, "q", answers.append)
    frozen.pipeline.detach(refusal(Reason.NOT_DURABLE))
    frozen.store.count(NAMESPACE, "q", answers.append)
    await asyncio.sleep(0)
    # The one on its way is still the link's to answer.
    assert [reason_of(answer) for answer in answers] == [Reason.NOT_DURABLE, Reason.NOT_DURABLE]
    frozen.link.abort()
    while len(answers) < 3:
        await asyncio.sleep(0.001)
    assert reason_of(answers[2]) is Reason.UNAVAILABLE
    assert isinstance(answers[2], Refusal)
