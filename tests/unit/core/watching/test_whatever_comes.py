"""Whatever comes at once, each watch is told all that it asked for, once and in order: held against the log itself."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Event
from quintet_core.watching import watcher as watcher_module
from quintet_core.watching.interest import EventInterest, Interest, RowInterest

from tests.support.followed import NAMESPACE, Followed, Listener, open_followed
from tests.support.redis_server import RedisConnection, RedisServer

PARTITIONS = 4
STEPS = 150
TABLES = ("t", "u", "v", "w", "x")
QUEUES = ("t", "q")
PREFIXES = (b"", b"", b"a", b"ab", b"b")


@dataclass
class Run:
    """Listeners of one core, and writers at two."""

    followed: Followed
    other: Followed
    redis: RedisConnection
    random: random.Random
    listeners: list[tuple[Interest, dict[int, int], Listener]] = field(default_factory=list)
    writing: list[asyncio.Future[object]] = field(default_factory=list)

    async def step(self) -> None:
        """One of what may happen."""
        act = self.random.choices(
            (self._put, self._enqueue, self._open, self._take, self._close, self._cut, self._pass),
            (40, 10, 10, 25, 2, 3, 10),
        )[0]
        await act()

    def _writer(self) -> Followed:
        return self.random.choice((self.followed, self.other))

    async def _put(self) -> None:
        keys = [
            self.random.choice((b"a", b"ab", b"b", b"")) + b"%d" % self.random.randrange(50)
            for _ in range(self.random.choice((1, 1, 5, 40)))
        ]
        self.writing.append(self._writer().put_together(self.random.choice(TABLES), *keys))

    async def _enqueue(self) -> None:
        queue, count = self.random.choice(QUEUES), self.random.choice((1, 20))
        self.writing.append(asyncio.ensure_future(self._writer().enqueue(queue, count)))

    async def _open(self) -> None:
        tables = frozenset(self.random.sample(TABLES, self.random.randrange(3)))
        interest: Interest = RowInterest(NAMESPACE, tables, self.random.choice(PREFIXES))
        partitions = {self.followed.partition(table) for table in tables} or set(range(PARTITIONS))
        if self.random.random() < 0.2:
            interest, partitions = EventInterest(NAMESPACE.__eq__), set(range(PARTITIONS))
        ends = await self.other.ends(*partitions)
        starts = {
            partition: self.random.randint(max(0, end - 60), end)
            for partition, end in ends.items()
            if self.random.random() < 0.7
        }
        opened = await self.followed.watches.open(interest, partitions, starts)
        if not isinstance(opened, Refusal):
            self.listeners.append((interest, dict(opened.cursors), Listener(self.followed.watches, opened)))

    async def _take(self) -> None:
        if self.listeners:
            _, _, listener = self.random.choice(self.listeners)
            taking = asyncio.ensure_future(listener.take())
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.wait((taking,))

    async def _close(self) -> None:
        if self.listeners:
            self.listeners.pop(self.random.randrange(len(self.listeners)))[2].close()

    async def _cut(self) -> None:
        """The live reader's connection, and whoever else's; operations are connected again."""
        await asyncio.gather(*self.writing, return_exceptions=True)
        self.redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for each in (self.followed, self.other):
            while each.pipeline.refusing is None:
                await asyncio.sleep(0)
            await each.connect()

    async def _pass(self) -> None:
        for _ in range(self.random.choice((1, 10))):
            await self.other.ends(0)

    async def check(self) -> None:
        """Everybody hears the rest; then what each heard is what the log says."""
        await asyncio.gather(*self.writing, return_exceptions=True)
        ends = await self.other.ends(*range(PARTITIONS))
        log: dict[int, list[Event]] = {}
        for partition in range(PARTITIONS):
            read = await self.other.store.read_events(partition, 0, 1_000_000)
            assert not isinstance(read, Refusal)
            log[partition] = read[0]
            assert len(read[0]) == ends[partition]
        for interest, begun, listener in self.listeners:
            await listener.hear({partition: ends[partition] for partition in begun})
            for partition, start in begun.items():
                heard = [event.offset for event in listener.events if event.partition == partition]
                assert heard == [
                    event.offset for event in log[partition] if event.offset > start and _in(interest, event)
                ]


def _in(interest: Interest, event: Event) -> bool:
    number = 2**31 if event.table else 1
    return interest.wants(number, event.namespace, event.table or event.queue) and interest.takes(event)


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_comes_every_watch_is_told_all_of_it_once(
    redis_server: RedisServer, redis: RedisConnection, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "BUFFER_BYTES_MAX", random.Random(seed).choice((500, 5000, 1 << 20)))
    async with (
        open_followed(redis_server.path, PARTITIONS) as followed,
        open_followed(redis_server.path, PARTITIONS) as other,
    ):
        run = Run(followed, other, redis, random.Random(seed))
        for _ in range(STEPS):
            await run.step()
        await run.check()
        assert len(run.listeners) > 3
