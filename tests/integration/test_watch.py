"""Watching rows, through the API and through the client, against a real core."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import table_service_pb2 as t
from quintet_client import Client, InvalidArgumentError, OffsetTrimmedError, RowChange, TableSettings, Watch

from tests.support.api import Api, open_api, refused
from tests.support.stack import CorePart, RedisPart

CODE = grpc.StatusCode


@pytest.fixture
def table(queue: str) -> str:
    """A table name that no other test has."""
    return f"table-{queue}"


@pytest.fixture
async def client(core: CorePart) -> AsyncIterator[Client]:
    async with Client(core.target) as client:
        yield client


@pytest.fixture
def own_core() -> Iterator[CorePart]:
    """A core of the test's own, not started; few watches, and a log that is cut at once."""
    # Short-named: the path of a unix socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="quintet-"))
    redis = RedisPart(folder)
    core = CorePart(folder, redis)
    core.environment = {"QUINTET_WATCHES_MAX": "2", "QUINTET_EVENTS_KEEP_MS": "0", "QUINTET_EVENTS_TAIL": "2"}
    try:
        redis.start()
        yield core
    finally:
        core.kill9()
        redis.kill9()
        shutil.rmtree(folder, ignore_errors=True)


async def write(client: Client, table: str, *keys: bytes) -> int:
    """Put rows one after another; the version of the last."""
    for key in keys:
        version = (await client.put_row(table, key, b"v")).version
    return version


async def take(watch: Watch, count: int) -> list[RowChange]:
    """The next changes of a watch."""
    taken: list[RowChange] = []
    async for change in watch:
        taken.append(change)
        if len(taken) == count:
            break
    return taken


async def restart(core: CorePart, end: Callable[[], object] | None = None) -> None:
    """End the core (kill -9) and start it, from this thread: it would die with another."""
    await asyncio.to_thread(end or core.kill9)
    core.start(wait=False)
    await asyncio.to_thread(core.wait_ready)


class TestTheApi:
    async def test_tells_where_it_begins_then_changes_and_how_far_they_reach(
        self, api: Api, client: Client, table: str
    ) -> None:
        before = await write(client, table, b"before")
        call = api.tables.WatchRows(t.WatchRowsRequest(tables=[table]))
        first = await call.read()
        (start,) = first.offsets
        assert not first.changes
        assert start.after_offset == before
        last = await write(client, table, b"1", b"2")
        changes: list[Any] = []
        while start.after_offset < last:
            response = await call.read()
            changes += response.changes
            (start,) = response.offsets or (start,)
        assert [(change.key, change.table, change.offset) for change in changes] == [
            (b"1", table, last - 1),
            (b"2", table, last),
        ]
        call.cancel()

    async def test_tells_the_progress_of_tables_where_nothing_happens(
        self, api: Api, client: Client, table: str
    ) -> None:
        call = api.tables.WatchRows(t.WatchRowsRequest(namespace=table))
        offsets = {told.partition: told.after_offset for told in (await call.read()).offsets}
        last = await write(client, table, b"elsewhere")
        partition = (await client.get_table(table)).partition
        while offsets[partition] < last:
            response = await call.read()
            assert not response.changes
            offsets |= {told.partition: told.after_offset for told in response.offsets}
        call.cancel()

    @pytest.mark.parametrize(
        ("request_", "reason"),
        [
            (t.WatchRowsRequest(namespace="x" * 256), "LIMIT_EXCEEDED"),
            (t.WatchRowsRequest(tables=["x" * 4097]), "LIMIT_EXCEEDED"),
            (t.WatchRowsRequest(tables=[str(number) for number in range(1001)]), "LIMIT_EXCEEDED"),
            (t.WatchRowsRequest(key_prefix=b"x" * 4097), "LIMIT_EXCEEDED"),
            (t.WatchRowsRequest(starts=[e.PartitionOffset(partition=99)]), "INVALID_ARGUMENT"),
            (t.WatchRowsRequest(starts=[e.PartitionOffset(after_offset=-1)]), "INVALID_ARGUMENT"),
            (t.WatchRowsRequest(starts=[e.PartitionOffset(after_offset=2**53)]), "OFFSET_TRIMMED"),
            (
                t.WatchRowsRequest(tables=["t"], starts=[e.PartitionOffset(partition=number) for number in range(16)]),
                "INVALID_ARGUMENT",
            ),
        ],
    )
    async def test_refuses_what_breaks_a_rule(self, api: Api, request_: t.WatchRowsRequest, reason: str) -> None:
        assert (await refused(api.tables.WatchRows(request_).read())).reason == reason

    async def test_forgets_who_left(self, core: CorePart, api: Api) -> None:
        calls = [api.tables.WatchRows(t.WatchRowsRequest()) for _ in range(3)]
        for call in calls:
            await call.read()
        assert core.metrics()["quintet_core_watches"] >= 3
        for call in calls:
            call.cancel()
        while core.metrics()["quintet_core_watches"] > 0:
            await asyncio.sleep(0.01)

    async def test_counts_what_it_tells(self, core: CorePart, client: Client, table: str) -> None:
        before = core.metrics()["quintet_core_watch_events_total"]
        begun = 'quintet_core_operations_total{outcome="ok",verb="watch_rows"}'
        streams = core.metrics().get(begun, 0)
        async with client.watch(table) as watch:
            await write(client, table, b"1", b"2")
            await take(watch, 3)
        assert core.metrics()["quintet_core_watch_events_total"] >= before + 3
        assert core.metrics()["quintet_core_tail_connected"] in (0, 1)
        assert core.metrics()[begun] > streams


class TestTheClient:
    async def test_is_told_of_every_kind_of_change(self, client: Client, table: str) -> None:
        async with client.watch(table) as watch:
            await client.create_table(table, TableSettings(events_carry_values=True))
            await client.put_row(table, b"a", b"1")
            await client.put_row(table, b"b", b"22", ttl_ms=20)
            changes = await take(watch, 4)
            await client.update_table(table, TableSettings())
            await client.put_row(table, b"a", b"333")
            await client.delete_row(table, b"a")
            await client.put_row(table, b"c", b"")
            await client.delete_table(table)
            changes += await take(watch, 6)
        assert [(change.kind, change.key, change.value, change.detail) for change in changes] == [
            ("table_created", b"", None, ""),
            ("row_put", b"a", b"1", ""),
            ("row_put", b"b", b"22", ""),
            ("row_expired", b"b", None, ""),
            ("table_updated", b"", None, ""),
            ("row_put", b"a", None, ""),
            ("row_deleted", b"a", None, ""),
            ("row_put", b"c", None, ""),
            ("table_deleted", b"", None, "1"),
            ("row_deleted", b"c", None, "table deleted"),
        ]
        assert changes[2].expires_at_ms > changes[2].at_ms
        assert changes[5].value_bytes == 3

    async def test_hears_of_keys_with_its_prefix(self, client: Client, table: str) -> None:
        await write(client, table, b"first")
        async with client.watch(table, key_prefix=b"user/") as watch:
            await write(client, table, b"user/1", b"other", b"user/2", b"use")
            await write(client, table, b"user/")
            assert [change.key for change in await take(watch, 3)] == [b"user/1", b"user/2", b"user/"]

    async def test_goes_on_at_every_point_where_it_left_off(self, client: Client, table: str) -> None:
        async with client.watch(table) as watch:
            start = watch.offsets
            await write(client, table, *(b"%d" % number for number in range(20)))
            seen = await take(watch, 21)
        for count in range(1, 21):
            earlier = client.watch(table, after_offsets=start)
            head = await take(earlier, count)
            later = client.watch(table, after_offsets=earlier.offsets)
            assert head + await take(later, 21 - count) == seen
            assert await take(earlier, 21 - count) == seen[count:]

    async def test_goes_on_after_a_restart_of_the_core(self, core: CorePart, client: Client, table: str) -> None:
        async with client.watch(table) as watch:
            await write(client, table, b"1")
            await restart(core)
            await write(client, table, b"2")
            assert [change.key for change in await take(watch, 3)] == [b"", b"1", b"2"]

    async def test_goes_on_at_a_core_that_took_over(self, core: CorePart, client: Client, table: str) -> None:
        """A core that stops in order says so."""
        async with client.watch(table) as watch:
            await write(client, table, b"1")
            await restart(core, core.terminate)
            await write(client, table, b"2")
            assert [change.key for change in await take(watch, 3)] == [b"", b"1", b"2"]

    async def test_by_the_hundred_all_hear_everything(self, client: Client, table: str) -> None:
        watches = [client.watch(table) for _ in range(100)]
        await asyncio.gather(*(watch.__aenter__() for watch in watches))
        await write(client, table, *(b"%d" % number for number in range(50)))
        heard = await asyncio.gather(*(take(watch, 51) for watch in watches))
        assert all(each == heard[0] for each in heard)
        await asyncio.gather(*(watch.close() for watch in watches))

    async def test_is_told_of_a_broken_rule(self, client: Client) -> None:
        with pytest.raises(InvalidArgumentError):
            await take(client.watch(after_offsets={99: 0}), 1)


class TestItsBounds:
    async def test_are_kept(self, own_core: CorePart) -> None:
        own_core.start()
        async with open_api(own_core.target) as api:
            calls = [api.tables.WatchRows(t.WatchRowsRequest()) for _ in range(2)]
            for call in calls:
                await call.read()
            answer = await refused(api.tables.WatchRows(t.WatchRowsRequest()).read())
            assert (answer.code, answer.reason) == (CODE.RESOURCE_EXHAUSTED, "TOO_MANY_IN_FLIGHT")
            calls[0].cancel()
            while own_core.metrics()["quintet_core_watches"] > 1:
                await asyncio.sleep(0.01)
            await api.tables.WatchRows(t.WatchRowsRequest()).read()

    async def test_of_the_log_are_told(self, own_core: CorePart) -> None:
        """What was missed is gone: it is said, and watching again begins anew."""
        own_core.start()
        async with Client(own_core.target) as client:
            watch = client.watch("t")
            async with watch:
                await write(client, "t", b"1")
                await take(watch, 2)
                partition = (await client.get_table("t")).partition
                await write(client, "t", *(b"%d" % number for number in range(10)))
            while (await client.list_partitions())[partition].first_offset < 5:
                await asyncio.sleep(0.02)
            with pytest.raises(OffsetTrimmedError):
                await take(watch, 1)
            assert not watch.stands
            async with watch:
                await write(client, "t", b"anew")
                assert [change.key for change in await take(watch, 1)] == [b"anew"]

    async def test_of_the_cores_life_are_told(self, own_core: CorePart) -> None:
        own_core.start()
        async with open_api(own_core.target) as api:
            call = api.tables.WatchRows(t.WatchRowsRequest())
            await call.read()
            stopping = asyncio.ensure_future(asyncio.to_thread(own_core.terminate))
            answer = await refused(call.read())
            assert (answer.code, answer.reason) == (CODE.UNAVAILABLE, "DRAINING")
            assert await stopping == 0
