"""A hundred watches of one table at 5000 updates a second, through restarts of the core and of Redis; more by hand:

QUINTET_LOAD_SECONDS=60 QUINTET_LOAD_WATCHES=100 QUINTET_LOAD_UPDATES=5000 pytest tests/load/test_watches.py
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest
from quintet.v1.session_service_pb2 import SessionResult
from quintet.v1.table_service_pb2 import PutRowRequest
from quintet_client import Client, Session, Watch

from tests.support.row_watcher import last_offsets, whole_log
from tests.support.stack import Part, Stack, stack_for_tests

SECONDS = float(os.environ.get("QUINTET_LOAD_SECONDS", "6"))
WATCHES = int(os.environ.get("QUINTET_LOAD_WATCHES", "100"))
UPDATES = int(os.environ.get("QUINTET_LOAD_UPDATES", "5000"))
TABLE = "watched"
OWNERS = 500
IN_FLIGHT_MAX = 2000


@pytest.fixture
def stack() -> Iterator[Stack]:
    yield from stack_for_tests(QUINTET_SESSION_TTL_MS="20000")


class Hearing:
    """One watch, and the offsets it was told, checked as they come."""

    def __init__(self, watch: Watch, partition: int) -> None:
        self.watch = watch
        self.partition = partition
        self.begun = watch.offsets[partition]
        self.offsets: list[int] = []
        self.task = asyncio.ensure_future(self._hear())

    async def _hear(self) -> None:
        last = self.begun
        async for response in self.watch.responses():
            if response.changes:
                offsets = [change.offset for change in response.changes]
                assert offsets[0] > last, "told again"
                assert offsets == sorted(set(offsets)), "out of order"
                last = offsets[-1]
                self.offsets += offsets

    async def until(self, offset: int) -> None:
        """Return when everything up to there was told."""
        while self.watch.offsets[self.partition] < offset:
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.02)


class Updates:
    """Puts at a steady rate, whatever comes of them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answered = self.failed = self.in_flight = 0
        self._owners = [session.new_owner() for _ in range(OWNERS)]
        self._stopping = False

    async def run(self) -> None:
        """Until `stop`. What a stall leaves undone is not made up for."""
        numbers, due, at = itertools.count(), 0.0, time.monotonic()
        while not self._stopping:
            await asyncio.sleep(0.002)
            now = time.monotonic()
            due, at = min(due + (now - at) * UPDATES, IN_FLIGHT_MAX - self.in_flight), now
            for number in itertools.islice(numbers, int(due)):
                request = PutRowRequest(table=TABLE, key=b"%d" % (number % 10_000), value=b"x" * 50)
                self.session.submit_put_row(self._owners[number % OWNERS], request, self._done)
                self.in_flight += 1
            due -= int(due)
        while self.in_flight:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Send no more."""
        self._stopping = True

    def _done(self, result: SessionResult) -> None:
        self.in_flight -= 1
        if result.HasField("failure"):
            self.failed += 1
        else:
            self.answered += 1


async def restart(part: Part, end: Callable[[], object]) -> None:
    """End a part and start it, from this thread: it would die with another."""
    await asyncio.to_thread(end)
    part.start(wait=False)
    await asyncio.to_thread(part.wait_ready)


async def test_lose_nothing_and_repeat_nothing(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    core, redis = stack.core, stack.redis
    async with Client(core.target, patience_s=30) as client:
        for each in await client.list_partitions():
            # Somebody wants it all: what is told is compared with the log, however long this takes.
            await client.commit_offset("test", each.partition, 0)
        await client.create_table(TABLE)
        partition = (await client.get_table(TABLE)).partition
        watches = [client.watch(TABLE) for _ in range(WATCHES)]
        await asyncio.gather(*(watch.__aenter__() for watch in watches))
        hearings = [Hearing(watch, partition) for watch in watches]
        updates = Updates(client.session)
        updating = asyncio.ensure_future(updates.run())
        for part, end in ((core, core.kill9), (redis, redis.kill9), (core, core.terminate)):
            await asyncio.sleep(SECONDS / 4)
            await restart(part, end)
        await asyncio.sleep(SECONDS / 4)
        updates.stop()
        await updating
        last = (await asyncio.to_thread(last_offsets, core.target))[partition]
        await asyncio.gather(*(hearing.until(last) for hearing in hearings))
        for hearing in hearings:
            hearing.task.cancel()
    log = [event.offset for event in (await asyncio.to_thread(whole_log, core.target))[partition]]
    assert updates.answered > 0
    for hearing in hearings:
        assert [offset for offset in hearing.offsets if offset <= last] == [
            offset for offset in log if hearing.begun < offset <= last
        ]
    with capsys.disabled():
        print(f"\n  {updates.answered} updates answered, {updates.failed} failed, {len(log)} told to {WATCHES} watches")
