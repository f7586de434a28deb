"""A load to look at: queues of different characters and two tables, for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from quintet_client import Client, LeasedJob, NewJob, QueueSettings, QuintetError, TableSettings

_TICK_S = 0.2
_BATCH_MAX = 100
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Character:
    """What a queue is like. Shares are of the whole rate, times in seconds."""

    queue: str
    share: float
    workers: int
    service_s: tuple[float, float]
    settings: QueueSettings = field(default_factory=QueueSettings)
    burst_s: float = 0.0
    """Jobs come all at once, so often; 0: evenly."""
    fails: float = 0.0
    """Share of deliveries that fail; of poison jobs (one in fifty) all do."""
    delay_ms: tuple[int, int] = (0, 0)


CHARACTERS = (
    Character("orders", 0.45, 8, (0.002, 0.02)),
    Character("mails", 0.25, 6, (0.005, 0.03), burst_s=6.0),
    Character("webhooks", 0.12, 6, (0.005, 0.1), QueueSettings(attempts_max=3, backoff_ms=300), fails=0.25),
    Character("thumbnails", 0.06, 2, (0.1, 0.4)),
    Character("reminders", 0.12, 4, (0.002, 0.01), delay_ms=(500, 6000)),
)
_POISON_EVERY = 50


class SyntheticLoad:
    """Jobs at about `rate` a second over all queues, until told to stop; then what workers hold is given back."""

    def __init__(self, target: str, rate: int, seed: int = 1) -> None:
        self._target = target
        self._rate = rate
        self._chance = random.Random(seed)  # noqa: S311  # a load, not a secret
        self.jobs = 0
        """Enqueued so far."""

    async def run(self, stop: asyncio.Event) -> None:
        """Raises QuintetError when the core refuses."""
        async with Client(self._target, name="synthetic load") as client:
            for character in CHARACTERS:
                await client.create_queue(character.queue, character.settings)
            await client.create_table("stock", TableSettings(events_carry_values=True))
            await client.create_table("carts")
            async with asyncio.TaskGroup() as group:
                for character in CHARACTERS:
                    group.create_task(self._produce(client, character, stop))
                    group.create_task(
                        client.run_worker(
                            character.queue,
                            handler=self._handler(character),
                            concurrency=character.workers,
                            grace_s=_STOP_S,
                            stop=stop,
                        )
                    )
                group.create_task(self._keep_stock(client, stop))

    async def _produce(self, client: Client, character: Character, stop: asyncio.Event) -> None:
        every_s = character.burst_s or _TICK_S
        owed = 0.0
        while not stop.is_set():
            owed += self._rate * character.share * every_s
            while owed >= 1:
                jobs = [self._job(character) for _ in range(min(int(owed), _BATCH_MAX))]
                await client.enqueue_many(character.queue, jobs)
                self.jobs += len(jobs)
                owed -= len(jobs)
            await _sleep(stop, every_s)

    def _job(self, character: Character) -> NewJob:
        return NewJob(
            payload=self._chance.randbytes(self._chance.randint(20, 400)),
            rank=self._chance.randint(0, 3),
            delay_ms=self._chance.randint(*character.delay_ms),
        )

    def _handler(self, character: Character) -> Callable[[LeasedJob], Awaitable[None]]:
        async def handle(job: LeasedJob) -> None:
            await asyncio.sleep(self._chance.uniform(*character.service_s))
            is_poison = character.fails > 0 and job.id % _POISON_EVERY == 0
            if is_poison or self._chance.random() < character.fails:
                await job.release(failure_reason="the other side answered 503")

        return handle

    async def _keep_stock(self, client: Client, stop: asyncio.Event) -> None:
        articles = 0
        while not stop.is_set():
            articles += 1
            key = f"article-{articles % 200}".encode()
            await client.put_row("stock", key, str(self._chance.randint(0, 999)).encode())
            await client.put_row("carts", f"cart-{articles}".encode(), b"[]", ttl_ms=self._chance.randint(500, 8000))
            if articles % 7 == 0:
                await _ignore_missing(client.delete_row("stock", f"article-{articles // 2 % 200}".encode()))
            await _sleep(stop, 5 / max(self._rate, 10))


class LoadThread:
    """A load in a thread of its own for the length of a block, at whose end it has stopped.

    What went wrong in it is raised there."""

    def __init__(self, load: SyntheticLoad) -> None:
        self._load = load
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="synthetic-load")
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ended: Future[None] | None = None

    @property
    def jobs(self) -> int:
        """Enqueued so far."""
        return self._load.jobs

    def has_failed(self) -> bool:
        """Whether it has ended before its time."""
        return self._ended is not None and self._ended.done()

    def __enter__(self) -> Self:
        self._ended = self._executor.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._executor.shutdown(wait=True)
        self._loop.close()
        assert self._ended is not None
        self._ended.result()

    def _run(self) -> None:
        self._loop.run_until_complete(self._load.run(self._stop))


async def _ignore_missing(delete: Awaitable[object]) -> None:
    try:
        await delete
    except QuintetError as error:
        if error.reason != "ROW_NOT_FOUND":
            raise


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
