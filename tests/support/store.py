"""A RedisStore on a real Redis, for tests: awaited verbs, and a clock that only moves when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.limits import Limits
from quintet_core.storage import keys
from quintet_core.storage.link import Address, Link, connect, into
from quintet_core.storage.pipeline import Pipeline
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.table_store import TableStore

from tests.support.redis_server import RedisConnection

__all__ = ["START_MS", "Clock", "OpenStore", "Reason", "Recorder", "open_store", "reason_of"]

REPLICA = b"replica0"

# Far ahead of Redis's TIME: a partition uses the later of that and the last time it saw, so here it stands still.
START_MS = 2_000_000_000_000


class Recorder:
    """The pipeline's observer: keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.clocks: list[tuple[int, int, int | None]] = []
        self.woken: list[tuple[bytes, int]] = []
        self.listeners: list[Callable[[int, int, int | None], None]] = []
        """Told of clocks too."""

    def on_batch(self, operations: int, calls: int, seconds: float) -> None:
        """Keep the sizes."""
        self.batches.append((operations, calls))

    def on_clock(self, partition: int, now_ms: int, due_at_ms: int | None) -> None:
        """Keep it."""
        self.clocks.append((partition, now_ms, due_at_ms))
        for listener in self.listeners:
            listener(partition, now_ms, due_at_ms)

    def on_woken(self, name_key: bytes, ready: int) -> None:
        """Keep it."""
        self.woken.append((name_key, ready))


class Clock:
    """The clock of every partition. Time passes by `advance` alone, until Redis's TIME overtakes START_MS in 2033."""

    def __init__(self, redis: RedisConnection, partitions: int) -> None:
        self._redis = redis
        self._partitions = partitions
        self.now = START_MS
        self.advance(0)

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self.now += by_ms
        self._redis.commands(
            [("HSET", keys.partition_tag(number) + ":meta", "clock", self.now) for number in range(self._partitions)]
        )


@dataclass
class OpenStore:
    """A store, and what it stands on."""

    store: RedisStore
    tables: TableStore
    pipeline: Pipeline
    link: Link
    recorder: Recorder
    lost: list[None] = field(default_factory=list)

    async def do(self, verb: Callable[..., None], *arguments: Any, **named: Any) -> Any:
        """Await a verb in the callback style."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        verb(*arguments, **named, done=into(future))
        return await future


@asynccontextmanager
async def open_store(path: str, partitions: int, reply_timeout_s: float = 30.0) -> AsyncIterator[OpenStore]:
    """A store over one connection to the Redis at a unix socket. The database must be prepared."""
    recorder = Recorder()
    pipeline = Pipeline(REPLICA, recorder, reply_timeout_s, Limits())
    store, tables = RedisStore(pipeline, partitions), TableStore(pipeline, partitions)
    opened = OpenStore(store, tables, pipeline, None, recorder)  # type: ignore[arg-type]

    def on_lost() -> None:
        opened.lost.append(None)
        pipeline.detach(refusal(Reason.UNAVAILABLE))

    opened.link = await connect(Address(path=path), on_lost)
    pipeline.attach(opened.link)
    try:
        yield opened
    finally:
        opened.link.abort()


def reason_of(answer: Any) -> Reason | None:
    """The reason of a refusal; None for anything else."""
    return answer.reason if isinstance(answer, Refusal) else None
