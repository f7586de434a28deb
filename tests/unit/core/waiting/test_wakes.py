"""No wake is lost, whatever happens at once: several replicas over one Redis with real publish/subscribe.

Nothing is reviewed here, so a waiter that is parked while a job is ready stays parked for good, and is found.
QUINTET_TEST_STEPS sets how many steps a run has (default 400).
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack

import pytest
from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.job import Job
from quintet_core.storage.records import unpack_leased
from quintet_core.storage.redis_store import Scope

from tests.support.redis_server import RedisConnection, RedisServer
from tests.support.replica import NAMESPACE, Replica, Waiter, open_replica

STEPS = int(os.environ.get("QUINTET_TEST_STEPS", "400"))
REPLICAS = 3
QUEUES = ["q0", "q1", "q2", "q3"]
SETTLED_SECONDS_MAX = 20.0


class Run:
    """Random dequeues and enqueues, and what came of them."""

    def __init__(self, replicas: list[Replica], random_: random.Random) -> None:
        self.replicas = replicas
        self.random = random_
        self.waiters: list[Waiter] = []
        self.abandoned: list[Waiter] = []
        self.enqueues: list[asyncio.Future[object]] = []
        self.releases = 0

    def step(self) -> None:
        """One thing somebody does."""
        deeds = (self._put, self._wait, self._wait_for_several, self._wait_a_little, self._end_one, self._abandon_one)
        self.random.choices(deeds, (30, 26, 16, 10, 12, 6))[0]()

    def _replica(self) -> Replica:
        return self.random.choice(self.replicas)

    def _put(self) -> None:
        count, rank = self.random.choice((1, 1, 1, 2, 5)), self.random.choice((0, 0, -1, 1))
        self.enqueues.append(self._replica().submit(self.random.choice(QUEUES), *[b"x"] * count, rank=rank))

    def _wait(self) -> None:
        jobs_max = self.random.choice((1, 1, 1, 3))
        self.waiters.append(self._replica().wait(self.random.choice(QUEUES), jobs_max=jobs_max))

    def _wait_for_several(self) -> None:
        names = self.random.sample(QUEUES, self.random.choice((2, 3, 4)))
        self.waiters.append(self._replica().wait(*names))

    def _wait_a_little(self) -> None:
        wait_ms = self.random.choice((0, 1, 2, 5))
        self.waiters.append(self._replica().wait(self.random.choice(QUEUES), wait_ms=wait_ms))

    def _end_one(self) -> None:
        parked = [waiter for waiter in self.waiters if waiter.parked]
        if parked:
            handle = self.random.choice(parked).handle
            assert handle is not None
            handle.cancel()

    def _abandon_one(self) -> None:
        parked = [waiter for waiter in self.waiters if waiter.parked]
        if parked:
            waiter = self.random.choice(parked)
            assert waiter.handle is not None
            waiter.handle.abandon()
            self.waiters.remove(waiter)
            self.abandoned.append(waiter)

    def taken(self) -> list[Job]:
        """What was given to anybody."""
        answers = [waiter.answer.result() for waiter in self.waiters if not waiter.parked]
        return [job for answer in answers if not isinstance(answer, Refusal) for job in map(unpack_leased, answer.jobs)]

    async def stuck(self) -> set[str]:
        """Queues with jobs that can be taken and somebody who waits for them."""
        waited_for = {queue for waiter in self.waiters if waiter.parked for queue in waiter.queues}
        return {queue for queue in waited_for if await self.replicas[0].ready(queue)}

    async def settle(self) -> None:
        """Return once nobody waits for what there is. Fails when somebody does for good."""
        await asyncio.gather(*self.enqueues)
        async with asyncio.timeout(SETTLED_SECONDS_MAX):
            while await self.stuck():
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_comes_at_once_no_waiter_is_forgotten_and_no_job_given_twice(
    redis_server: RedisServer, redis: RedisConnection, seed: int
) -> None:
    random_ = random.Random(seed)
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(open_replica(redis_server.path, b"replica%d" % number))
            for number in range(REPLICAS)
        ]
        run = Run(replicas, random_)
        for _ in range(STEPS):
            run.step()
            if random_.random() < 0.3:
                await asyncio.sleep(random_.choice((0, 0, 0.0005, 0.002)))
        await run.settle()
        await every_job_is_given_once(run)


async def every_job_is_given_once(run: Run) -> None:
    put = [job_id for future in run.enqueues for job_id in future.result().ids]  # type: ignore[attr-defined]
    for waiter in run.waiters:
        if waiter.parked and waiter.handle is not None:
            waiter.handle.cancel()
    reasons = [await waiter.reason() for waiter in run.waiters]
    assert set(reasons) <= {None, Reason.CANCELLED}
    assert not any(waiter.answers for waiter in run.abandoned)
    for replica in run.replicas:
        await replica.settled()  # what was abandoned goes back
    assert [replica.dequeues.parked for replica in run.replicas] == [0] * REPLICAS
    left: list[Job] = []
    while jobs := await run.replicas[0].take(*QUEUES, jobs_max=100):
        left += jobs
    given = run.taken() + left
    assert sorted(job.id for job in given) == sorted(put)
    assert {job.attempts for job in given} <= {1}


async def test_what_goes_back_and_forth_wakes_whoever_waits_elsewhere(
    redis_server: RedisServer, redis: RedisConnection
) -> None:
    """One job, many takers that put it back: it never rests while somebody waits."""
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(open_replica(redis_server.path, b"replica%d" % number))
            for number in range(REPLICAS)
        ]
        waiters = [replica.wait("q") for _ in range(20) for replica in replicas]
        await replicas[0].put("q")
        for _ in range(len(waiters)):
            done, _ = await asyncio.wait([w.answer for w in waiters], return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            served = next(waiter for waiter in waiters if waiter.answer in done)
            waiters.remove(served)
            (job,) = await served.jobs()
            await replicas[0].do(
                replicas[0].store.release,
                job.id,
                Scope.of(NAMESPACE, None),
                job.lease.token if job.lease else None,
                delay_ms=0,
                placement=1,
                failure_reason="",
                undo_attempt=True,
            )
        assert not waiters
