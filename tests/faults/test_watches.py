"""A hundred watches of one table under updates: nothing is lost and nothing repeated by any restart."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from quintet_client import Client, RowChange, RowNotFoundError, UnavailableError, Watch
from quintet_client.event import kind_of

from tests.support.row_watcher import last_offsets, whole_log
from tests.support.stack import Part, Stack

WATCHES = 100
WRITERS = 50
TABLE = "watched"


class Hearing:
    """One watch, and what it heard, checked as it comes."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.heard: list[RowChange] = []
        self.task = asyncio.ensure_future(self._hear())

    async def _hear(self) -> None:
        async for change in self.watch:
            assert not self.heard or change.offset > self.heard[-1].offset, "told again"
            self.heard.append(change)

    async def until(self, offset: int) -> None:
        """Return when everything up to there was told."""
        while max(self.watch.offsets.values()) < offset:
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Hear no more."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def update(client: Client, stop: asyncio.Event, numbers: itertools.count[int]) -> None:
    """Puts, some of which expire, and deletes; whatever comes of each."""
    while not stop.is_set():
        number = next(numbers)
        try:
            if number % 7:
                await client.put_row(TABLE, b"%d" % (number % 500), b"%d" % number, ttl_ms=300 + number % 500)
            else:
                await client.delete_row(TABLE, b"%d" % (number % 500))
        except UnavailableError:
            await asyncio.sleep(0.01)
        except RowNotFoundError:
            pass


async def restart(part: Part, end: Callable[[], object]) -> None:
    """End a part and start it, from this thread: it would die with another."""
    await asyncio.to_thread(end)
    part.start(wait=False)
    await asyncio.to_thread(part.wait_ready)


def told(stack: Stack) -> list[tuple[int, str, bytes]]:
    """What the log says of the table."""
    log = whole_log(stack.core.target)
    return [(event.offset, kind_of(event.kind), event.key) for events in log.values() for event in events
            if event.table == TABLE]  # fmt: skip


@pytest.mark.parametrize("round_", range(2))
async def test_by_the_hundred_lose_nothing_and_repeat_nothing(stack: Stack, round_: int) -> None:
    core, redis = stack.core, stack.redis
    ends: list[tuple[Part, Callable[[], object]]] = [
        (core, core.kill9), (redis, redis.kill9), (core, core.terminate), (redis, redis.terminate), (core, core.kill9),
    ]  # fmt: skip
    async with AsyncExitStack() as open_ones:
        client = await open_ones.enter_async_context(Client(stack.core.target, patience_s=30))
        for each in await client.list_partitions():
            # Somebody wants it all: what is told is compared with the log, however long this takes.
            await client.commit_offset("test", each.partition, 0)
        await client.put_row(TABLE, b"first", b"")
        partition = (await client.get_table(TABLE)).partition
        watches = [client.watch(TABLE) for _ in range(WATCHES)]
        await asyncio.gather(*(watch.__aenter__() for watch in watches))
        begun = [watch.offsets[partition] for watch in watches]
        hearings = [Hearing(watch) for watch in watches]
        stop, numbers = asyncio.Event(), itertools.count(round_ * 1_000_000)
        writers = [asyncio.ensure_future(update(client, stop, numbers)) for _ in range(WRITERS)]
        for part, end in ends:
            await asyncio.sleep(0.4)
            await restart(part, end)
        await asyncio.sleep(0.4)
        stop.set()
        await asyncio.gather(*writers)
        last = (await asyncio.to_thread(last_offsets, stack.core.target))[partition]
        await asyncio.gather(*(hearing.until(last) for hearing in hearings))
        await asyncio.gather(*(hearing.end() for hearing in hearings))
    log = await asyncio.to_thread(told, stack)
    assert log
    for start, hearing in zip(begun, hearings, strict=True):
        heard = [(change.offset, change.kind, change.key) for change in hearing.heard]
        assert [each for each in heard if each[0] <= last] == [each for each in log if start < each[0] <= last]
