"""Waits for a ready job that take none: who is told when, at what cost, and how they end."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from quintet_core.domain.errors import CallerError, Reason, refusal
from quintet_core.domain.limits import Limits
from quintet_core.domain.queue import PauseDirection
from quintet_core.storage.keys import name_key
from quintet_core.waiting.awaits import REVIEW_S, Await, Awaits

from tests.support.redis_server import RedisConnection, RedisServer
from tests.support.replica import NAMESPACE, Replica, Told, open_replica


async def readies(told: list[Told]) -> list[bool]:
    return [await each.ready() for each in told]


async def empty(replica: Replica, *queues: str) -> None:
    """Queues that exist and hold nothing."""
    for queue in queues:
        await replica.put(queue)
        await replica.take(queue)


class TestBeingTold:
    async def test_comes_at_once_where_there_is_a_job_and_takes_none(self, replica: Replica) -> None:
        await replica.put("q")
        assert await replica.await_jobs("q").ready()
        assert await replica.await_jobs("q", wait_ms=0).ready()
        assert await replica.ready("q") == 1

    async def test_comes_with_a_job(self, replica: Replica) -> None:
        told = replica.await_jobs("q")
        await replica.settled()
        assert told.waits
        await replica.put("q")
        assert await told.ready()

    async def test_comes_from_another_replica(self, replica: Replica, other: Replica) -> None:
        told = replica.await_jobs("q")
        await replica.settled()
        await other.put("q")
        assert await told.ready()

    async def test_comes_to_thousands_at_once_for_the_price_of_one(self, replica: Replica) -> None:
        told = [replica.await_jobs("q") for _ in range(5000)]
        await replica.settled()
        before = sum(replica.batches)
        await replica.put("q")
        assert all(await readies(told))
        assert sum(replica.batches) - before < 10
        assert replica.awaits.awaiting == 0

    async def test_comes_with_a_job_in_any_of_the_queues(self, replica: Replica) -> None:
        told = [replica.await_jobs("a", "b", "c", "b") for _ in range(3)]
        await replica.settled()
        await replica.put("c")
        assert all(await readies(told))
        assert replica.awaits.awaiting == 0
        assert await replica.await_jobs("a", "b", "c", wait_ms=0).ready()

    async def test_waits_for_a_job_that_is_delayed_leased_or_paused(self, replica: Replica) -> None:
        await replica.put("delayed", delay_ms=3_600_000)
        await replica.put("paused")
        await replica.do(replica.store.pause, NAMESPACE, "paused", PauseDirection.OUT, 0)
        await empty(replica, "leased")
        told = replica.await_jobs("delayed", "paused", "leased")
        assert not await replica.await_jobs("delayed", "paused", "leased", wait_ms=0).ready()
        assert told.waits
        await replica.do(replica.store.resume, NAMESPACE, "paused")
        assert await told.ready()

    async def test_comes_with_the_end_of_a_delay(self, replica: Replica) -> None:
        await replica.put("q", delay_ms=30)
        assert await replica.await_jobs("q").ready()

    async def test_keeps_no_dequeue_from_a_job(self, replica: Replica) -> None:
        """Whoever waits for the job itself is woken as if nobody else waited."""
        told, taker, behind = replica.await_jobs("q"), replica.wait("q"), replica.wait("q")
        await replica.settled()
        await replica.put("q", b"1")
        assert (await taker.job()).payload == b"1"
        await replica.settled()
        assert told.waits
        assert behind.parked
        await replica.put("q", b"2", b"3")
        assert (await behind.job()).payload == b"2"
        assert await told.ready()

    async def test_is_of_a_look_that_was_sent_after_it_came(self, replica: Replica) -> None:
        """What an owner took before it waits is not shown to it as ready."""
        await replica.put("q")
        first = replica.await_jobs("q")
        taker = replica.wait("q", wait_ms=0)
        second = replica.await_jobs("q")
        assert await first.ready()
        assert len(await taker.jobs()) == 1
        await replica.settled()
        assert second.waits


class TestTheEnd:
    async def test_comes_with_the_time(self, replica: Replica) -> None:
        told = [replica.await_jobs("q", wait_ms=20) for _ in range(10)]
        assert await readies(told) == [False] * 10
        assert replica.awaits.awaiting == 0

    async def test_comes_at_once_when_asked_to(self, replica: Replica) -> None:
        assert not await replica.await_jobs("q", "r", wait_ms=0).ready()

    async def test_by_cancelling_is_told_once(self, replica: Replica) -> None:
        told = replica.await_jobs("q", "r")
        assert told.handle is not None
        told.handle.cancel()
        told.handle.cancel(Reason.OWNER_CLOSED)
        told.handle.abandon()
        assert await told.reason() is Reason.CANCELLED
        await replica.settled()
        assert replica.awaits.awaiting == 0

    async def test_by_abandoning_is_told_to_nobody(self, replica: Replica) -> None:
        gone, stays = replica.await_jobs("q"), replica.await_jobs("q")
        assert gone.handle is not None
        gone.handle.abandon()
        await replica.put("q")
        assert await stays.ready()
        assert gone.waits

    async def test_comes_to_all_when_the_replica_closes(self, replica: Replica) -> None:
        told = [replica.await_jobs("q"), replica.await_jobs("q", "r")]
        replica.awaits.close(refusal(Reason.DRAINING))
        told.append(replica.await_jobs("q"))
        assert [await each.reason() for each in told] == [Reason.DRAINING] * 3
        assert replica.awaits.awaiting == 0

    @pytest.mark.parametrize("by", ["replica", "other"])
    async def test_comes_with_the_end_of_a_queue_that_must_exist(
        self, replica: Replica, other: Replica, by: str
    ) -> None:
        await empty(replica, "q")
        strict = [replica.await_jobs("q", allow_missing=False) for _ in range(3)]
        lenient = replica.await_jobs("q")
        await replica.settled()
        deleter = {"replica": replica, "other": other}[by]
        await deleter.do(deleter.store.delete_queue, NAMESPACE, "q")
        assert [await each.reason() for each in strict] == [Reason.QUEUE_NOT_FOUND] * 3
        await replica.put("q")
        assert await lenient.ready()

    @pytest.mark.parametrize("wait_ms", [-1, 0])
    async def test_comes_at_once_for_a_queue_that_is_missing_and_must_not_be(
        self, replica: Replica, wait_ms: int
    ) -> None:
        await empty(replica, "q")
        told = replica.await_jobs("q", "missing", wait_ms=wait_ms, allow_missing=False)
        assert await told.reason() is Reason.QUEUE_NOT_FOUND


class TestNoticesThatAreLost:
    async def test_are_made_up_for_by_reviews_of_every_queue_in_its_time(self, deaf: Replica, other: Replica) -> None:
        names = [f"q{number}" for number in range(12)]
        told = [deaf.await_jobs(name) for name in names]
        await deaf.settled()
        for name in names:
            await other.put(name)
        assert all(each.waits for each in told)
        for _ in range(int(REVIEW_S) + 1):
            deaf.awaits.review_some(1.0)
        assert all(await readies(told))

    async def test_are_made_up_for_when_they_are_heard_again(
        self, replica: Replica, other: Replica, redis: RedisConnection
    ) -> None:
        told = replica.await_jobs("q")
        await replica.settled()
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        await other.put("q")
        assert await told.ready()

    async def test_with_redis_itself_are_made_up_for_when_it_is_back(self, replica: Replica, other: Replica) -> None:
        """Who takes nothing is in no doubt, and waits on; also who comes in between."""
        before = replica.await_jobs("q")
        await replica.settled()
        replica.awaits.on_woken(name_key(NAMESPACE, "q"), 1)
        assert replica.link is not None
        replica.link.abort()
        between = replica.await_jobs("q")
        assert await replica.await_jobs("q", wait_ms=0).reason() is Reason.UNAVAILABLE
        await other.put("q")
        assert before.waits
        assert between.waits
        await replica.connect()
        replica.review_all()
        assert await before.ready()
        assert await between.ready()

    async def test_at_the_very_return_of_redis_are_not_lost(self, replica: Replica, other: Replica) -> None:
        """A look that was refused a moment before is sent again."""
        assert replica.link is not None
        replica.link.abort()
        while replica.pipeline.refusing is None:
            await asyncio.sleep(0)
        told = replica.await_jobs("q")
        await other.put("q")
        await replica.connect()
        replica.review_all()
        assert await told.ready()

    async def test_other_refusals_are_told(self, replica: Replica) -> None:
        told = replica.await_jobs("q")
        await replica.settled()
        replica.pipeline.detach(refusal(Reason.NOT_DURABLE))
        replica.review_all()
        assert await told.reason() is Reason.NOT_DURABLE


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_comes_at_once_nobody_waits_for_what_is_there(
    redis_server: RedisServer, redis: RedisConnection, seed: int
) -> None:
    """Nothing is reviewed here: who is not told of a job that stays is not told for good, and found."""
    random_, queues = random.Random(seed), ("q0", "q1", "q2", "q3")
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(open_replica(redis_server.path, b"replica%d" % number))
            for number in range(3)
        ]
        told: list[tuple[list[str], Told]] = []
        puts: list[asyncio.Future[Any]] = []
        takers = []
        for _ in range(400):
            replica, act = random_.choice(replicas), random_.random()
            if act < 0.25:
                puts.append(replica.submit(random_.choice(queues), *[b"x"] * random_.choice((1, 2))))
            elif act < 0.6:
                names = random_.sample(queues, random_.choice((1, 1, 2)))
                told.append((names, replica.await_jobs(*names, wait_ms=random_.choice((-1, -1, 5)))))
            elif act < 0.9:
                takers.append(replica.wait(random_.choice(queues), wait_ms=random_.choice((0, 0, 2))))
            elif told and (handle := random_.choice(told)[1].handle) is not None:
                handle.cancel()
            if random_.random() < 0.3:
                await asyncio.sleep(random_.choice((0, 0.0005, 0.002)))
        await asyncio.gather(*puts, *(taker.answer for taker in takers))
        async with asyncio.timeout(20):
            for names, each in told:
                while each.waits and any([await replicas[0].ready(name) for name in names]):
                    await asyncio.sleep(0.005)
        assert {await each.reason() for _, each in told if not each.waits} <= {None, Reason.CANCELLED}
        assert sum(replica.awaits.awaiting for replica in replicas) == sum(each.waits for _, each in told)


class TestBounds:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"wait_ms": -2}, Reason.INVALID_ARGUMENT),
            ({"wait_ms": 2**32}, Reason.INVALID_ARGUMENT),
            ({"queues": []}, Reason.INVALID_ARGUMENT),
            ({"queues": ["q"] * 1001}, Reason.LIMIT_EXCEEDED),
            ({"queues": ["x" * 4097]}, Reason.LIMIT_EXCEEDED),
            ({"namespace": "x" * 256}, Reason.LIMIT_EXCEEDED),
        ],
    )
    async def test_are_kept(self, replica: Replica, fields: dict[str, Any], reason: Reason) -> None:
        with pytest.raises(CallerError) as raised:
            replica.awaits.await_jobs(Await(**{"namespace": NAMESPACE, "queues": ["q"], **fields}), _never)
        assert raised.value.refusal.reason is reason
        assert replica.awaits.awaiting == 0

    async def test_are_kept_by_all_that_wait(self, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replica.awaits, "_limits", Limits(awaiting_max=2))
        told = [replica.await_jobs("q") for _ in range(2)]
        assert await replica.await_jobs("q").reason() is Reason.TOO_MANY_IN_FLIGHT
        await replica.put("q")
        assert all(await readies(told))
        assert await replica.await_jobs("q").ready()

    async def test_are_settings(self, replica: Replica) -> None:
        narrow = Awaits(replica.store, Limits(wait_ms_max=10, queues_per_dequeue_max=1))
        for request in (Await(NAMESPACE, ["q"], wait_ms=11), Await(NAMESPACE, ["q", "r"])):
            with pytest.raises(CallerError):
                narrow.await_jobs(request, _never)


def _never(outcome: object) -> None:
    raise AssertionError(f"answered with {outcome}")
