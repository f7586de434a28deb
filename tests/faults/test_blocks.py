"""Blocks of a log read while it grows and while parts are killed: each offset once, and what Redis holds at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1.event_pb2 import Event
from quintet_client import Client, UnavailableError

from tests.support.api import Api, open_api
from tests.support.blocks import events_of
from tests.support.stack import Part, Stack

PARTITIONS = 16
JOBS = 100
PUTS = 600


async def fill(client: Client, queue: str, puts: int) -> None:
    """Large entries, and many of them."""
    gate = asyncio.Semaphore(30)

    async def put() -> None:
        async with gate:
            try:
                await client.enqueue_many(queue, [b""] * JOBS)
            except UnavailableError:
                await asyncio.sleep(0.02)

    await asyncio.gather(*(put() for _ in range(puts)))


class Reading:
    """One partition read from its beginning, range after range, whatever happens in between."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.events: list[Event] = []
        self.blocks = 0

    @property
    def after(self) -> int:
        """The last offset that was read."""
        return self.events[-1].offset if self.events else 0

    async def read(self, api: Api, through: int) -> None:
        """Up to an offset. Goes on behind the last block that came."""
        while self.after < through:
            try:
                await self._read_once(api, through)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.02)

    async def _read_once(self, api: Api, through: int) -> None:
        request = e.ReadBlocksRequest(partition=self.partition, after_offset=self.after, through_offset=through)
        async for block in api.events.ReadBlocks(request):
            assert block.first_offset == self.after + 1
            self.events += events_of(block, self.partition, PARTITIONS)
            self.blocks += 1


async def restart(part: Part, end: Callable[[], object]) -> None:
    """End a part and start it, from this thread: it would die with another."""
    await asyncio.to_thread(end)
    part.start(wait=False)
    await asyncio.to_thread(part.wait_ready)


async def log_of(api: Api, partition: int, through: int) -> list[Event]:
    """The same by ReadEvents."""
    found: list[Event] = []
    while len(found) < through:
        request = e.ReadEventsRequest(partition=partition, after_offset=len(found), events_max=10_000)
        found += (await api.events.ReadEvents(request)).events
    return found[:through]


@pytest.mark.parametrize("killed", ["redis", "core"])
async def test_hold_the_log_whoever_is_killed_in_between(stack: Stack, queue: str, killed: str) -> None:
    part = stack.redis if killed == "redis" else stack.core
    async with Client(stack.core.target, patience_s=30) as client, open_api(stack.core.target) as api:
        opened = await client.open_consumer(f"reader of {queue}")
        await fill(client, queue, PUTS)
        partition = (await client.get_queue(queue)).partition
        assert opened.partitions[partition].committed_offset == opened.partitions[partition].first_offset - 1
        through = (await client.list_partitions())[partition].last_offset
        reading = Reading(partition)
        work = asyncio.ensure_future(reading.read(api, through))
        writing = asyncio.ensure_future(fill(client, queue, PUTS // 4))
        for _ in range(3):
            blocks = reading.blocks
            while reading.blocks == blocks and not work.done():
                await asyncio.sleep(0)
            await restart(part, part.kill9)
        await asyncio.gather(work, writing)
        through = (await client.list_partitions())[partition].last_offset
        await reading.read(api, through)
        assert [event.offset for event in reading.events] == list(range(1, through + 1))
        assert reading.events == await log_of(api, partition, through)
