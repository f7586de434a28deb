"""Who is next: lowest rank, then insertion order, across all the queues asked."""

from __future__ import annotations

import asyncio
import random

import pytest
from quintet_core.domain.job import Placement
from quintet_core.domain.outcomes import Dequeued
from quintet_core.storage.records import rank_bytes, unpack_leased
from quintet_core.storage.redis_store import Best, Worse

from tests.support.store import Clock, Reason, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, Verbs

RANKS = [-(2**63), -(2**63) + 1, -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]


async def test_jobs_of_one_rank_come_in_the_order_they_were_put(verbs: Verbs) -> None:
    for payload in (b"1", b"2", b"3"):
        await verbs.put(payload)
    assert await verbs.payloads() == [b"1", b"2", b"3"]


async def test_every_int64_rank_counts_exactly(verbs: Verbs) -> None:
    for rank in random.Random(1).sample(RANKS, len(RANKS)):
        await verbs.put(str(rank).encode(), rank=rank)
    taken = await verbs.take_all()
    assert [job.rank for job in taken] == RANKS


async def test_the_best_job_of_several_queues_comes_first(verbs: Verbs) -> None:
    one, two, three = verbs.siblings(3)
    await verbs.put(b"second", queue=one, rank=0)
    await verbs.put(b"fourth", queue=one, rank=5)
    await verbs.put(b"first", queue=two, rank=-1)
    await verbs.put(b"third", queue=three, rank=0)
    taken = await verbs.take_all(one, two, three, one)
    assert [(job.payload, job.queue) for job in taken] == [
        (b"first", two),
        (b"second", one),
        (b"third", three),
        (b"fourth", one),
    ]


async def test_no_more_jobs_come_than_were_asked_for(verbs: Verbs) -> None:
    for _ in range(5):
        await verbs.put()
    assert [len(await verbs.take_all(jobs_max=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_job_that_comes_back_has_its_old_place(verbs: Verbs) -> None:
    for payload in (b"1", b"2", b"3"):
        await verbs.put(payload)
    first = await verbs.take()
    await verbs.release(first)
    assert await verbs.payloads() == [b"1", b"2", b"3"]


async def test_a_job_released_to_the_tail_goes_behind_all_of_its_rank_but_no_further(verbs: Verbs) -> None:
    for payload, rank in ((b"1", 0), (b"2", 0), (b"worse", 1)):
        await verbs.put(payload, rank=rank)
    await verbs.release(await verbs.take(), placement=Placement.TAIL)
    await verbs.put(b"3")
    assert await verbs.payloads() == [b"2", b"1", b"3", b"worse"]


async def test_a_lease_that_ran_out_returns_to_the_place_it_came_from(verbs: Verbs, clock: Clock) -> None:
    for payload in (b"1", b"2"):
        await verbs.put(payload)
    await verbs.take()
    clock.advance(60_000)
    assert await verbs.payloads() == [b"1", b"2"]


async def test_a_dequeue_takes_nothing_worse_than_its_bound(verbs: Verbs) -> None:
    await verbs.put(b"job", rank=3)
    worse = await verbs.dequeue(bound=rank_bytes(2) + b"\xff" * 8)
    better = await verbs.dequeue(bound=rank_bytes(3) + b"\xff" * 8)
    assert isinstance(worse, Worse)
    assert isinstance(better, Dequeued)
    assert [unpack_leased(job).payload for job in better.jobs] == [b"job"]


async def test_best_tells_the_place_that_a_bound_is_made_of(verbs: Verbs) -> None:
    one, two = verbs.siblings(2)
    await verbs.put(b"a", queue=one, rank=2)
    await verbs.put(b"b", queue=two, rank=1)
    best = await verbs.opened.do(verbs.store.best, NAMESPACE, [one, two], False, False)
    assert isinstance(best, Best)
    assert best.index == 1
    taken = await verbs.dequeue(one, two, bound=best.place)
    assert [unpack_leased(job).payload for job in taken.jobs] == [b"b"]


async def test_an_unknown_queue_is_named_unless_it_may_be_missing(verbs: Verbs) -> None:
    one, two = verbs.siblings(2)
    await verbs.put(b"job", queue=two)
    refused = await verbs.dequeue(one, two)
    assert reason_of(refused) is Reason.QUEUE_NOT_FOUND
    assert refused.metadata == {"index": "0"}
    taken = await verbs.dequeue(one, two, allow_missing=True)
    assert [job.queue for job in taken.jobs] == [two]


@pytest.mark.parametrize("batch", [1, 7, 300])
async def test_many_dequeues_in_one_batch_keep_the_order(verbs: Verbs, batch: int) -> None:
    ranks = [random.Random(batch).randrange(5) for _ in range(batch)]
    await asyncio.gather(*(verbs.put(b"%d" % rank, rank=rank) for rank in ranks))
    answers = await asyncio.gather(*(verbs.take_all(jobs_max=1 + number % 3) for number in range(batch)))
    found = [job for answer in answers for job in answer]
    assert [job.rank for job in found] == sorted(ranks)
    assert [(job.rank, job.id) for job in found] == sorted((job.rank, job.id) for job in found)
