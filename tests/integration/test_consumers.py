"""Named consumers by the API, against a real core and a real Redis: opened, listed, forgotten, shut out by an epoch."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q

from tests.support.api import Api, open_api, refused
from tests.support.core import running_core

CODE = grpc.StatusCode
LOGS = [e.LOG_EVENTS, e.LOG_METRICS]


@pytest.fixture
def consumer() -> str:
    """A name that no other test has."""
    return f"consumer-{uuid.uuid4().hex[:8]}"


async def open_consumer(api: Api, consumer: str, **fields: Any) -> Any:
    return await api.events.OpenConsumer(e.OpenConsumerRequest(consumer=consumer, **fields))


async def commit(api: Api, consumer: str, offset: int, epoch: int, partition: int = 0, **fields: Any) -> int:
    request = e.CommitOffsetRequest(consumer=consumer, partition=partition, offset=offset, epoch=epoch, **fields)
    return int((await api.events.CommitOffset(request)).committed_offset)


async def fill(api: Api, queue: str) -> tuple[int, int]:
    """Some events; a partition that has some, and its last offset."""
    await api.put(queue, *[b""] * 9)
    found = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions
    fullest = max(found, key=lambda each: each.last_offset)
    return fullest.partition, fullest.last_offset


class TestOpening:
    async def test_makes_a_consumer_that_begins_with_the_oldest_record(self, api: Api, consumer: str) -> None:
        opened = await open_consumer(api, consumer)
        assert opened.epoch > 0
        assert [each.partition for each in opened.partitions] == list(range(16))
        for each in opened.partitions:
            assert (each.committed_offset, each.epoch) == (each.first_offset - 1, opened.epoch)
        request = e.ListPartitionsRequest(consumer=consumer)
        assert (await api.events.ListPartitions(request)).partitions == opened.partitions

    async def test_makes_one_that_begins_with_the_next_or_where_it_is_told(
        self, api: Api, queue: str, consumer: str
    ) -> None:
        partition, last = await fill(api, queue)
        opened = await open_consumer(
            api, consumer, from_latest=True, starts=[e.PartitionOffset(partition=partition, after_offset=last - 3)]
        )
        for each in opened.partitions:
            behind = 3 if each.partition == partition else 0
            assert each.committed_offset == each.last_offset - behind

    async def test_again_goes_on_where_it_was_under_a_later_epoch(self, api: Api, queue: str, consumer: str) -> None:
        partition, last = await fill(api, queue)
        first = await open_consumer(api, consumer)
        assert await commit(api, consumer, last, first.epoch, partition) == last
        second = await open_consumer(api, consumer, from_latest=True)
        assert second.epoch > first.epoch
        assert second.partitions[partition].committed_offset == last
        refusal = await refused(commit(api, consumer, last, first.epoch, partition))
        assert (refusal.code, refusal.reason) == (CODE.FAILED_PRECONDITION, "STALE_EPOCH")
        assert await commit(api, consumer, last, second.epoch, partition) == last

    async def test_anew_goes_back(self, api: Api, queue: str, consumer: str) -> None:
        partition, last = await fill(api, queue)
        first = await open_consumer(api, consumer, from_latest=True)
        assert first.partitions[partition].committed_offset == last
        start = e.PartitionOffset(partition=partition, after_offset=last - 5)
        second = await open_consumer(api, consumer, starts=[start], from_latest=True, reset=True)
        assert second.partitions[partition].committed_offset == last - 5

    async def test_gives_an_epoch_above_those_that_were_committed_with(self, api: Api, consumer: str) -> None:
        await commit(api, consumer, 0, 4711, partition=9)
        opened = await open_consumer(api, consumer)
        assert opened.epoch > 4711
        assert (await refused(commit(api, consumer, 0, 4711, partition=9))).reason == "STALE_EPOCH"

    async def test_after_the_consumer_was_forgotten_gives_no_epoch_twice(self, api: Api, consumer: str) -> None:
        first = await open_consumer(api, consumer)
        await api.events.DeleteConsumer(e.DeleteConsumerRequest(consumer=consumer))
        assert (await open_consumer(api, consumer)).epoch > first.epoch

    async def test_by_two_at_once_leaves_one_of_them(self, api: Api, consumer: str) -> None:
        for _ in range(10):
            opened = await asyncio.gather(*(open_consumer(api, consumer) for _ in range(4)), return_exceptions=True)
            epochs = [each.epoch for each in opened if not isinstance(each, BaseException)]
            for each in opened:
                if isinstance(each, grpc.aio.AioRpcError):
                    assert each.code() is CODE.FAILED_PRECONDITION
            assert len(set(epochs)) == len(epochs)
            for partition in range(16):
                taken = [epoch for epoch in epochs if not await is_stale(api, consumer, epoch, partition)]
                assert taken == [max(epochs)]

    @pytest.mark.parametrize("reset", [False, True])
    async def test_where_the_log_holds_nothing_changes_nothing(
        self, api: Api, queue: str, consumer: str, reset: bool
    ) -> None:
        partition, last = await fill(api, queue)
        if reset:
            await open_consumer(api, consumer)
        before = (await api.events.ListPartitions(e.ListPartitionsRequest(consumer=consumer))).partitions
        beyond = e.PartitionOffset(partition=partition, after_offset=last + 1)
        refusal = await refused(open_consumer(api, consumer, starts=[beyond], reset=reset))
        assert (refusal.reason, refusal.metadata["last_offset"]) == ("INVALID_ARGUMENT", str(last))
        assert (await api.events.ListPartitions(e.ListPartitionsRequest(consumer=consumer))).partitions == before

    @pytest.mark.parametrize(
        "fields",
        [
            {"consumer": ""},
            {"consumer": "c" * 256},
            {"starts": [e.PartitionOffset(partition=16)]},
            {"starts": [e.PartitionOffset(after_offset=-1)]},
            {"log": 9},
        ],
    )
    async def test_with_what_cannot_be_is_refused(self, api: Api, fields: dict[str, Any]) -> None:
        refusal = await refused(open_consumer(api, **{"consumer": "c", **fields}))
        assert refusal.code is CODE.INVALID_ARGUMENT

    async def test_keeps_the_log_from_its_start_on(self) -> None:
        with running_core(QUINTET_EVENTS_TAIL="1", QUINTET_EVENTS_KEEP_MS="0") as core:
            async with open_api(core.target) as api:
                opened = await open_consumer(api, "keeper")
                for _ in range(10):
                    await api.put("q")
                partition = (await api.queues.GetQueue(q.GetQueueRequest(queue="q"))).queue.partition
                await commit(api, "keeper", 4, opened.epoch, partition)
                assert await first_kept_beyond(api, partition, 1) == 5
                await api.events.DeleteConsumer(e.DeleteConsumerRequest(consumer="keeper"))
                assert await first_kept_beyond(api, partition, 5) == 11
                start = e.PartitionOffset(partition=partition, after_offset=9)
                refusal = await refused(open_consumer(api, "late", starts=[start]))
                assert (refusal.code, refusal.reason) == (CODE.OUT_OF_RANGE, "OFFSET_TRIMMED")


async def first_kept_beyond(api: Api, partition: int, offset: int) -> int:
    """The first offset that is held, when it is beyond another: each answer comes later than the last."""
    while True:
        held = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions[partition]
        if held.first_offset > offset:
            return int(held.first_offset)


async def is_stale(api: Api, consumer: str, epoch: int, partition: int) -> bool:
    try:
        await commit(api, consumer, 0, epoch, partition)
    except grpc.aio.AioRpcError:
        return True
    return False


class TestListing:
    async def test_tells_how_far_behind_each_is(self, api: Api, queue: str, consumer: str) -> None:
        opened = await open_consumer(api, consumer, from_latest=True)
        await fill(api, queue)
        now = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions
        lags = [each.last_offset - was.last_offset for each, was in zip(now, opened.partitions, strict=True)]
        assert max(lags) >= 9
        listed = (await api.events.ListConsumers(e.ListConsumersRequest())).consumers
        (found,) = [each for each in listed if each.consumer == consumer]
        assert (found.epoch, found.lag, found.lag_max) == (opened.epoch, sum(lags), max(lags))
        assert [each.consumer for each in listed] == sorted(each.consumer for each in listed)


class TestForgetting:
    async def test_is_done_once(self, api: Api, consumer: str) -> None:
        await open_consumer(api, consumer)
        request = e.DeleteConsumerRequest(consumer=consumer)
        await api.events.DeleteConsumer(request)
        refusal = await refused(api.events.DeleteConsumer(request))
        assert (refusal.code, refusal.reason) == (CODE.NOT_FOUND, "CONSUMER_NOT_FOUND")
        held = (await api.events.ListPartitions(e.ListPartitionsRequest(consumer=consumer))).partitions
        assert {each.committed_offset for each in held} == {-1}


class TestTheLogs:
    async def test_have_consumers_of_their_own(self, api: Api, consumer: str) -> None:
        await open_consumer(api, consumer, log=e.LOG_METRICS)
        for log in LOGS:
            listed = (await api.events.ListConsumers(e.ListConsumersRequest(log=log))).consumers
            assert (consumer in {each.consumer for each in listed}) is (log == e.LOG_METRICS)
        assert (await refused(api.events.DeleteConsumer(e.DeleteConsumerRequest(consumer=consumer)))).reason == (
            "CONSUMER_NOT_FOUND"
        )


async def test_one_consumer_more_than_may_be_is_refused() -> None:
    with running_core(QUINTET_CONSUMERS_MAX="2") as core:
        async with open_api(core.target) as api:
            await open_consumer(api, "one")
            await commit(api, "two", 0, 1)
            for call in (open_consumer(api, "three"), commit(api, "three", 0, 1)):
                refusal = await refused(call)
                assert (refusal.reason, refusal.metadata["max"]) == ("LIMIT_EXCEEDED", "2")
            await open_consumer(api, "one")
            assert await commit(api, "two", 0, 2) == 0


class TestOffsetsByTime:
    async def test_part_what_is_older_from_what_is_not(self, api: Api, queue: str) -> None:
        for _ in range(30):
            await api.put(queue)
        partition, last = await fill(api, queue)
        request = e.ReadEventsRequest(partition=partition, events_max=10_000)
        events = (await api.events.ReadEvents(request)).events
        times = sorted({event.at_ms for event in events})
        for at_ms in (0, *times, times[-1] + 1, 2**53):
            found = (await api.events.FindOffsets(e.FindOffsetsRequest(at_ms=at_ms))).offsets
            assert [each.partition for each in found] == list(range(16))
            older = [event.offset for event in events if event.at_ms < at_ms]
            assert found[partition].after_offset == max(older, default=0)
        assert events[-1].offset == last

    async def test_before_time_began_are_refused(self, api: Api) -> None:
        refusal = await refused(api.events.FindOffsets(e.FindOffsetsRequest(at_ms=-1)))
        assert refusal.code is CODE.INVALID_ARGUMENT
