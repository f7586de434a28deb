"""Tables while processes come and go: what a restart leaves as it was, and what two cores make of one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import table_service_pb2 as t
from quintet.v1.event_pb2 import Event, EventKind
from quintet.v1.table_pb2 import Row, TableSettings

from tests.support.api import Api, open_api, refused
from tests.support.cores import Cores

CODE = grpc.StatusCode
HOUR_MS = 3_600_000


class World(Cores):
    """One Redis and two cores on it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = self.core(), self.core()

    def kill9(self) -> None:
        """Everything, at once."""
        for part in (self.one, self.two, self.redis):
            part.kill9()

    def start(self) -> None:
        """Redis and the first core."""
        self.redis.start()
        self.one.start()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    try:
        world.start()
        yield world
    finally:
        world.close()


async def put(api: Api, key: bytes, value: bytes = b"v", ttl_ms: int = 0, **fields: Any) -> t.PutRowResponse:
    """A row of the table "t"."""
    change = t.TTL_CHANGE_SET if ttl_ms else t.TTL_CHANGE_KEEP
    request = t.PutRowRequest(
        table="t", key=key, value=value, ttl_change=change, ttl_ms=ttl_ms, create_if_missing=True, **fields
    )
    response: t.PutRowResponse = await api.tables.PutRow(request)
    return response


async def get(api: Api, key: bytes) -> Row:
    """A row of the table "t"."""
    row: Row = (await api.tables.GetRow(t.GetRowRequest(table="t", key=key))).row
    return row


async def events(api: Api) -> list[Event]:
    """All of the partition of the table "t"."""
    partition = (await api.tables.GetTable(t.GetTableRequest(table="t"))).table.partition
    response = await api.events.ReadEvents(e.ReadEventsRequest(partition=partition, events_max=10_000))
    return list(response.events)


async def ends(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call until it is not refused any more; its answer."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() is not CODE.UNAVAILABLE:
                raise
            await asyncio.sleep(0.02)


async def test_rows_and_their_deadlines_are_as_they_were_after_everything_was_killed(world: World) -> None:
    async with open_api(world.one.target) as api:
        lasting = await put(api, b"lasting", b"value")
        timed = await put(api, b"timed", b"value", HOUR_MS)
        settings = TableSettings(rows_max=10)
        await api.tables.UpdateTable(t.UpdateTableRequest(table="t", settings=settings))
    world.kill9()
    world.start()
    async with open_api(world.one.target) as api:
        assert await get(api, b"lasting") == Row(key=b"lasting", value=b"value", version=lasting.version)
        assert await get(api, b"timed") == Row(
            key=b"timed", value=b"value", version=timed.version, expires_at_ms=timed.expires_at_ms
        )
        told = (await api.tables.GetTable(t.GetTableRequest(table="t"))).table
        assert (told.rows, told.settings) == (2, settings)
        # Versions go on, whatever was killed.
        assert (await put(api, b"lasting")).version > timed.version


async def test_a_row_whose_time_ends_while_everything_is_down_is_gone_and_told_afterwards(world: World) -> None:
    async with open_api(world.one.target) as api:
        timed = await put(api, b"k", b"value", 300)
    world.kill9()
    world.redis.start()
    world.two.start()
    async with open_api(world.two.target) as api:
        while not any(event.kind == EventKind.EVENT_KIND_ROW_EXPIRED for event in await events(api)):
            await asyncio.sleep(0.02)
        assert (await refused(get(api, b"k"))).reason == "ROW_NOT_FOUND"
        (expired,) = (event for event in await events(api) if event.kind == EventKind.EVENT_KIND_ROW_EXPIRED)
        assert (expired.key, expired.at_ms >= timed.expires_at_ms) == (b"k", True)


async def test_the_rows_of_a_deleted_table_go_although_the_core_that_deleted_it_died(world: World) -> None:
    async with open_api(world.one.target) as api:
        for start in range(0, 1000, 100):
            writes = [t.RowWrite(put=t.RowPut(key=b"%d" % number)) for number in range(start, start + 100)]
            await api.tables.WriteRows(t.WriteRowsRequest(table="t", writes=writes, create_if_missing=True))
        partition = (await api.tables.GetTable(t.GetTableRequest(table="t"))).table.partition
        assert (await api.tables.DeleteTable(t.DeleteTableRequest(table="t"))).rows == 1000
    world.one.kill9()
    world.two.start()
    async with open_api(world.two.target) as api:
        request = e.ReadEventsRequest(partition=partition, events_max=10_000)
        deleted = 0
        while deleted < 1000:
            await asyncio.sleep(0.02)
            told = (await api.events.ReadEvents(request)).events
            deleted = sum(event.kind == EventKind.EVENT_KIND_ROW_DELETED for event in told)
        assert deleted == 1000


async def test_redis_being_away_is_told_and_passes(world: World) -> None:
    async with open_api(world.one.target) as api:
        stored = await put(api, b"k")
        world.redis.kill9()
        assert (await refused(get(api, b"k"))).reason == "UNAVAILABLE"
        world.redis.start()
        assert (await ends(lambda: get(api, b"k"))).version == stored.version


async def test_two_cores_see_each_others_writes_and_let_one_of_two_writers_win(world: World) -> None:
    world.two.start()
    async with open_api(world.one.target) as one, open_api(world.two.target) as two:
        stored = await put(one, b"k", b"one")
        assert (await get(two, b"k")).value == b"one"
        for _ in range(20):
            answers = await asyncio.gather(
                *(put(api, b"k", b"next", expected_version=stored.version) for api in (one, two, one, two)),
                return_exceptions=True,
            )
            (stored,) = [answer for answer in answers if isinstance(answer, t.PutRowResponse)]
            assert (await get(one, b"k")).version == (await get(two, b"k")).version == stored.version
