"""EventService.ReadBlocks against a real core and a real Redis: the same as ReadEvents, in another form."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import table_service_pb2 as t
from quintet.v1.event_pb2 import Event
from quintet.v1.job_pb2 import NewJob
from quintet.v1.table_pb2 import TableSettings
from quintet_core.storage import keys

from tests.support.api import Api, open_api, told
from tests.support.blocks import events_of, read_blocks
from tests.support.core import running_core

CODE = grpc.StatusCode
PARTITIONS = 16
NAMESPACES = ("default", "other")


async def partition_of(api: Api, queue: str, namespace: str = "") -> int:
    found = await api.queues.GetQueue(q.GetQueueRequest(namespace=namespace, queue=queue))
    return int(found.queue.partition)


def names_of(partition: int, namespace: str, names: Iterable[str]) -> list[str]:
    """Those of the names that fall into the partition."""
    return [name for name in names if keys.partition_of(keys.name_key(namespace, name), PARTITIONS) == partition]


async def last_offset(api: Api, partition: int) -> int:
    found = await api.events.ListPartitions(e.ListPartitionsRequest())
    return int(found.partitions[partition].last_offset)


async def events(api: Api, partition: int, after: int, through: int) -> list[Event]:
    found: list[Event] = []
    while after < through:
        request = e.ReadEventsRequest(partition=partition, after_offset=after, events_max=min(10_000, through - after))
        page = (await api.events.ReadEvents(request)).events
        found += page
        after = page[-1].offset
    return found


async def mixed_log(api: Api, queue: str) -> tuple[int, int]:
    """Jobs and rows of two namespaces in one partition, with what events carry, in entries of many sizes; the partition
    and its last offset."""
    await api.put(queue)
    partition = await partition_of(api, queue)
    neighbours = names_of(partition, "other", (f"{queue}-{number}" for number in range(200)))
    for name in neighbours:
        await api.queues.CreateQueue(q.CreateQueueRequest(namespace="other", queue=name))
        assert await partition_of(api, name, "other") == partition
    tables = names_of(partition, "default", (f"{queue}-t{number}" for number in range(240)))
    for number, name in enumerate(tables):
        settings = TableSettings(events_carry_values=number % 2 == 0)
        made = await api.tables.CreateTable(t.CreateTableRequest(table=name, settings=settings))
        assert made.table.partition == partition
    for turn in range(10):
        jobs = [NewJob(payload=b"p" * turn, rank=turn - 5)] * (turn + 1)
        enqueues = [
            api.queues.Enqueue(q.EnqueueRequest(namespace=namespace, queue=name, jobs=jobs, create_if_missing=True))
            for namespace, name in (("default", queue), *(("other", name) for name in neighbours))
        ]
        puts = [
            api.tables.PutRow(t.PutRowRequest(table=table, key=b"k%d" % turn, value=b"v" * 10 * turn))
            for table in tables
        ]
        await asyncio.gather(*enqueues, *puts)
        job = await api.take(queue)
        await api.queues.Release(q.ReleaseRequest(id=job.id, any_lease=True, failure_reason="grün"))
    assert neighbours
    assert len(tables) > 1
    return partition, await last_offset(api, partition)


class TestBlocks:
    async def test_hold_what_read_events_tells(self, api: Api, queue: str) -> None:
        partition, last = await mixed_log(api, queue)
        expected = await events(api, partition, 0, last)
        chance = random.Random(7)
        ranges = [(0, last), (0, 1), (last - 1, last), (last, last)]
        ranges += [tuple(sorted(chance.sample(range(last), 2))) for _ in range(40)]  # type: ignore[misc]
        for after, through in ranges:
            blocks = await read_blocks(
                api, partition=partition, after_offset=after, through_offset=through, with_carried=True
            )
            read = [event for block in blocks for event in events_of(block, partition, PARTITIONS)]
            assert read == expected[after:through], (after, through)

    async def test_carry_nothing_when_that_is_not_asked_for(self, api: Api, queue: str) -> None:
        partition, last = await mixed_log(api, queue)
        blocks = await read_blocks(api, partition=partition, through_offset=last)
        assert not any(block.carried for block in blocks)
        read = [event for block in blocks for event in events_of(block, partition, PARTITIONS)]
        expected = await events(api, partition, 0, last)
        assert any(event.HasField("value") for event in expected)
        for event in expected:
            event.ClearField("value")
        assert read == expected

    @pytest.mark.parametrize("namespace", NAMESPACES)
    async def test_of_one_namespace_blank_what_is_in_others(self, api: Api, queue: str, namespace: str) -> None:
        partition, last = await mixed_log(api, queue)
        for after, through in ((0, last), (7, last - 9)):
            blocks = await read_blocks(
                api,
                partition=partition,
                after_offset=after,
                through_offset=through,
                with_carried=True,
                namespace=namespace,
            )
            assert {name for block in blocks for name in block.namespaces} == {namespace}
            read = [event for block in blocks for event in events_of(block, partition, PARTITIONS)]
            expected = [each for each in await events(api, partition, after, through) if each.namespace == namespace]
            assert read == expected

    async def test_are_of_about_a_mebibyte_and_follow_on_one_another(self, api: Api, queue: str) -> None:
        await api.put(queue)
        jobs = [NewJob()] * 100
        for _ in range(20):
            request = q.EnqueueRequest(queue=queue, jobs=jobs)
            await asyncio.gather(*(api.queues.Enqueue(request) for _ in range(15)))
        partition = await partition_of(api, queue)
        last = await last_offset(api, partition)
        blocks = await read_blocks(api, partition=partition, through_offset=last)
        assert len(blocks) > 1
        assert all(len(block.records) < 3 << 20 for block in blocks)
        at = 1
        for block in blocks:
            assert block.first_offset == at
            at += sum(1 for _ in events_of(block, partition, PARTITIONS))
        assert at == last + 1


async def refused_stream(api: Api, **fields: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await read_blocks(api, **fields)
    found = told(raised.value)
    return found.code, found.reason


class TestARangeThatCannotBeRead:
    @pytest.mark.parametrize(
        "fields",
        [
            {"partition": PARTITIONS},
            {"after_offset": -1},
            {"after_offset": 2, "through_offset": 1},
            {"through_offset": 2**53},
            {"through_offset": 2**53 + 1},
            {"log": 7},
        ],
    )
    async def test_is_an_invalid_argument(self, api: Api, fields: dict[str, int]) -> None:
        assert await refused_stream(api, **fields) == (CODE.INVALID_ARGUMENT, "INVALID_ARGUMENT")

    async def test_is_trimmed_when_its_beginning_is(self) -> None:
        with running_core(QUINTET_EVENTS_TAIL="5", QUINTET_EVENTS_KEEP_MS="0") as core:
            async with open_api(core.target) as api:
                for _ in range(20):
                    await api.put("q")
                partition = await partition_of(api, "q")
                while True:
                    found = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions[partition]
                    if found.first_offset > 1:
                        break
                    await asyncio.sleep(0.02)
                refusal = await refused_stream(api, partition=partition, through_offset=found.last_offset)
                assert refusal == (CODE.OUT_OF_RANGE, "OFFSET_TRIMMED")
                kept = await read_blocks(
                    api,
                    partition=partition,
                    after_offset=found.first_offset - 1,
                    through_offset=found.last_offset,
                )
                assert [block.first_offset for block in kept] == [found.first_offset]

    async def test_beyond_the_bound_of_streams_has_to_wait(self) -> None:
        with running_core(QUINTET_BLOCK_STREAMS_MAX="0") as core:
            async with open_api(core.target) as api:
                assert (await refused_stream(api))[1] == "TOO_MANY_IN_FLIGHT"


TOKENS = """
[[token]]
token = "narrow"
namespaces = ["other"]
verbs = ["read_blocks"]
"""


async def test_who_sees_one_namespace_gets_the_rest_blank(tmp_path: Path, queue: str) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TOKENS)
    with running_core(QUINTET_TOKENS_FILE=str(tokens)) as core:
        async with open_api(core.target) as trusted, open_api(core.listening["core-grpc"]) as api:
            partition, last = await mixed_log(trusted, queue)
            expected = [each for each in await events(trusted, partition, 0, last) if each.namespace == "other"]
            request = e.ReadBlocksRequest(partition=partition, through_offset=last, with_carried=True)
            credentials = (("authorization", "Bearer narrow"),)
            blocks = [block async for block in api.events.ReadBlocks(request, metadata=credentials)]
            assert {name for block in blocks for name in block.namespaces} == {"other"}
            read = [event for block in blocks for event in events_of(block, partition, PARTITIONS)]
            assert read == expected
            request.namespace = "default"
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await api.events.ReadBlocks(request, metadata=credentials).read()
            assert told(raised.value).reason == "PERMISSION_DENIED"


async def test_of_metrics_hold_snapshots_and_blank_those_of_others(api: Api, queue: str) -> None:
    await api.put(queue)
    partition = await partition_of(api, queue)
    numbered = [f"{queue}-{number}" for number in range(150)]
    wanted = {(namespace, name) for namespace in NAMESPACES for name in names_of(partition, namespace, numbered)}
    for namespace, name in wanted:
        await api.queues.CreateQueue(q.CreateQueueRequest(namespace=namespace, queue=name))
        assert await partition_of(api, name, namespace) == partition
    assert {namespace for namespace, _ in wanted} == set(NAMESPACES)
    told: set[tuple[str, str]] = set()
    async with asyncio.timeout(60):
        while not wanted <= told:
            await asyncio.sleep(0.1)
            told = {name for name, kind in await snapshots(api, partition) if kind == QUEUE}
    seen = await snapshots(api, partition, namespace="other")
    assert {namespace for (namespace, _), kind in seen if kind} == {"other"}
    assert any(kind == 0 for _, kind in seen)
    assert len(seen) >= len(told)


QUEUE, SNAPSHOT_BYTES = 1, 175


async def snapshots(api: Api, partition: int, **fields: object) -> list[tuple[tuple[str, str], int]]:
    """Name and kind of every snapshot that a partition holds."""
    log = e.LOG_METRICS
    held = (await api.events.ListPartitions(e.ListPartitionsRequest(log=log))).partitions[partition]
    found = []
    for block in await read_blocks(
        api,
        log=log,
        partition=partition,
        after_offset=held.first_offset - 1,
        through_offset=held.last_offset,
        **fields,
    ):
        named = list(zip(block.namespaces, block.names, strict=True))
        names = dict(zip(block.numbers, named, strict=True))
        at = 0
        while at < len(block.records):
            number = int.from_bytes(block.records[at + 1 : at + 5], "big")
            found.append((names.get(number, ("", "")), block.records[at]))
            detail = block.records[at + SNAPSHOT_BYTES - 2 : at + SNAPSHOT_BYTES]
            at += SNAPSHOT_BYTES + int.from_bytes(detail, "big")
        assert at == sum(block.entry_bytes) == len(block.records)
    assert len(found) == held.last_offset - held.first_offset + 1
    return found
