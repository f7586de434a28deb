"""What a core waits with, several times over one Redis: a pipeline, parked dequeues, sessions, wake-ups by pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.job import Job, LeaseTerms, NewJob
from quintet_core.domain.limits import Limits
from quintet_core.domain.outcomes import Awaited, Dequeued
from quintet_core.maintenance.due import DueTimers
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.fan_out import FanOut
from quintet_core.storage.link import Address, Link, connect, into
from quintet_core.storage.pipeline import Ordered, Pipeline
from quintet_core.storage.records import unpack_leased
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.wakes import WakeSubscriber
from quintet_core.waiting.awaits import Await, Awaiter, Awaits
from quintet_core.waiting.dequeues import Dequeue, Dequeues, Handle
from quintet_core.waiting.sessions import Sessions

from tests.support.redis_server import PARTITIONS

NAMESPACE = "n"
SIGNING_KEY = b"the same for all replicas of one Redis"
SESSION_TTL_MS = 10_000
LEASE_MS = 3_600_000


class Waiter:
    """One dequeue that may wait, and its answer."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        self.handle: Handle | None = None
        self.answer: asyncio.Future[Dequeued | Refusal] = asyncio.get_running_loop().create_future()
        self.answers = 0

    def take(self, answer: Dequeued | Refusal) -> None:
        """As `done` of a dequeue; a second answer is the test's failure."""
        self.answers += 1
        assert self.answers == 1, "answered twice"
        self.answer.set_result(answer)

    @property
    def parked(self) -> bool:
        """Whether it has no answer yet."""
        return not self.answer.done()

    async def jobs(self) -> list[Job]:
        """The jobs it was given. Fails when it was refused."""
        answer = await self.answer
        assert isinstance(answer, Dequeued), answer
        return list(map(unpack_leased, answer.jobs))

    async def job(self) -> Job:
        """The one job it was given."""
        (job,) = await self.jobs()
        return job

    async def reason(self) -> Reason | None:
        """Why it was refused; None when it was not."""
        answer = await self.answer
        return answer.reason if isinstance(answer, Refusal) else None


class Told:
    """One wait that takes nothing, and its answer."""

    def __init__(self) -> None:
        self.handle: Awaiter | None = None
        self.answer: asyncio.Future[Awaited | Refusal] = asyncio.get_running_loop().create_future()

    @property
    def waits(self) -> bool:
        """Whether it has no answer yet."""
        return not self.answer.done()

    async def ready(self) -> bool:
        """What it was told. Fails when it was refused."""
        answer = await self.answer
        assert isinstance(answer, Awaited), answer
        return answer.ready

    async def reason(self) -> Reason | None:
        """Why it was refused; None when it was not."""
        answer = await self.answer
        return answer.reason if isinstance(answer, Refusal) else None


class Replica:
    """A core without its doors. Made by `open_replica`."""

    def __init__(self, path: str, name: bytes, partitions: int) -> None:
        self.path = path
        self.observers = FanOut()
        self.pipeline = Pipeline(name, self.observers, 30.0, Limits())
        self.store = RedisStore(self.pipeline, partitions)
        self.dequeues = Dequeues(self.store, Limits())
        self.awaits = Awaits(self.store, Limits())
        self.sessions = Sessions(self.store, Limits(), SESSION_TTL_MS, lambda: SIGNING_KEY)
        self.timers = DueTimers(self.store)
        self.batches: list[int] = []
        self.link: Link | None = None
        self.heard = asyncio.Event()
        terms = RedisTerms(Address(path=path), partitions, 30.0)
        self.wakes = WakeSubscriber(terms, name, self.observers.on_woken, self._on_gap)
        self.observers.wakes += [self.dequeues.on_woken, self.awaits.on_woken]
        self.observers.clocks.append(self.timers.on_clock)
        self.observers.batches.append(lambda operations, _calls, _seconds: self.batches.append(operations))

    def _on_gap(self) -> None:
        self.heard.set()
        self.review_all()

    def review_all(self) -> None:
        """As the core does when notices may have been lost."""
        self.dequeues.review_all()
        self.awaits.review_all()

    async def connect(self) -> None:
        """Attach the pipeline to a new connection."""
        self.link = await connect(Address(path=self.path), self._on_lost)
        self.pipeline.attach(self.link)

    def _on_lost(self) -> None:
        self.pipeline.detach(refusal(Reason.UNAVAILABLE))

    async def do(self, verb: Callable[..., None], *arguments: Any, **named: Any) -> Any:
        """Await a verb in the callback style."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        verb(*arguments, **named, done=into(future))
        return await future

    def wait(
        self,
        *queues: str,
        wait_ms: int = -1,
        jobs_max: int = 1,
        allow_missing: bool = True,
        terms: LeaseTerms | None = None,
        order: Ordered | None = None,
    ) -> Waiter:
        """Begin a dequeue."""
        waiter = Waiter(queues)
        terms = terms or LeaseTerms(LEASE_MS)
        request = Dequeue(NAMESPACE, list(queues), terms, jobs_max, wait_ms, allow_missing)
        waiter.handle = self.dequeues.dequeue(request, waiter.take, order)
        return waiter

    def await_jobs(self, *queues: str, wait_ms: int = -1, allow_missing: bool = True) -> Told:
        """Begin a wait that takes nothing. Answered twice, it fails."""
        told = Told()
        request = Await(NAMESPACE, list(queues), wait_ms, allow_missing)
        told.handle = self.awaits.await_jobs(request, told.answer.set_result)
        return told

    def submit(self, queue: str, *payloads: bytes, **fields: Any) -> asyncio.Future[Any]:
        """Begin an enqueue of jobs in one call; the future has its outcome."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        jobs = [NewJob(payload, **fields) for payload in payloads or (b"x",)]
        self.store.enqueue(NAMESPACE, queue, jobs, True, into(future))
        return future

    async def put(self, queue: str, *payloads: bytes, **fields: Any) -> list[int]:
        """Enqueue jobs; their ids."""
        ids: list[int] = (await self.submit(queue, *payloads, **fields)).ids
        return ids

    async def take(self, *queues: str, **fields: Any) -> list[Job]:
        """What can be taken at once."""
        return await self.wait(*queues, wait_ms=0, **fields).jobs()

    async def ready(self, queue: str) -> int:
        """Jobs of a queue that can be taken; 0 for one there is not."""
        counts = await self.do(self.store.count, NAMESPACE, queue)
        return 0 if isinstance(counts, Refusal) else counts.ready

    async def settled(self) -> None:
        """Whatever was submitted, and what it led to, has been answered."""
        while True:
            before = len(self.batches)
            await self.do(self.store.count, NAMESPACE, "")
            await asyncio.sleep(0)
            if len(self.batches) == before + 1 and not self.pipeline.queued:
                return


@asynccontextmanager
async def open_replica(
    path: str, name: bytes = b"replica0", partitions: int = PARTITIONS, listens: bool = True
) -> AsyncIterator[Replica]:
    """A replica on the Redis at a unix socket, whose database must be prepared. `listens`: to other replicas."""
    replica = Replica(path, name, partitions)
    await replica.connect()
    if listens:
        replica.wakes.start()
        await replica.heard.wait()
    try:
        yield replica
    finally:
        if listens:
            await replica.wakes.close()
        await replica.timers.close()
        if replica.link is not None:
            replica.link.abort()
