"""The duty of snapshots: every partition in every slot, and one that cannot be read keeps no other."""

from __future__ import annotations

import asyncio

import pytest
from quintet_core.domain.job import NewJob
from quintet_core.domain.snapshot import ProcessSnapshot
from quintet_core.maintenance.snapshots import SnapshotDuty, SnapshotTerms, Surroundings
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.snapshot_store import Left, Taken

from tests.support.redis_server import PARTITIONS, RedisConnection
from tests.support.snapshot_record import PROCESS, QUEUE, read_metrics
from tests.support.store import Clock, OpenStore

SLOT_MS = 1000


class Around:
    """What the duty stands in."""

    def __init__(self, opened: OpenStore, interval_ms: int = SLOT_MS) -> None:
        self.ready = True
        self.slots: list[list[Taken | None]] = []
        self.failures: list[str] = []
        self.slot_done = asyncio.Event()
        around = Surroundings(lambda: self.ready, self._describe, self._on_slot, self.failures.append)
        self.duty = SnapshotDuty(opened.store, SnapshotTerms(interval_ms, 1000), around)

    @staticmethod
    def _describe(now_ms: int, interval_ms: int) -> ProcessSnapshot:
        return ProcessSnapshot("core", "r", now_ms, interval_ms, {"now": now_ms})

    async def _on_slot(self, taken: list[Taken | None]) -> None:
        self.slots.append(taken)
        self.slot_done.set()


async def put(opened: OpenStore, *queues: str) -> None:
    for queue in queues:
        await opened.do(opened.store.enqueue, "n", queue, [NewJob(b"x")], True)


def told(redis: RedisConnection) -> list[str]:
    """Queues in all logs."""
    return [
        record.name
        for partition in range(PARTITIONS)
        for record in read_metrics(redis, partition)
        if record.kind == QUEUE
    ]


async def test_all_partitions_and_the_process_are_written(
    opened: OpenStore, redis: RedisConnection, clock: Clock
) -> None:
    names = [f"queue-{number}" for number in range(200)]
    await put(opened, *names)
    around = Around(opened)
    await around.duty.take()
    assert sorted(told(redis)) == sorted(names)
    (taken,) = around.slots
    assert [step.left for step in taken if step is not None] == [Left.NOTHING] * PARTITIONS
    process = [record for record in read_metrics(redis, 0) if record.kind == PROCESS]
    assert len(process) == 1
    assert taken[0] is not None
    assert taken[0].last_offset >= process[0].offset
    assert around.failures == []


async def test_a_partition_that_is_damaged_keeps_no_other(
    opened: OpenStore, redis: RedisConnection, clock: Clock
) -> None:
    names = [f"queue-{number}" for number in range(50)]
    await put(opened, *names)
    damaged = opened.store.partition_of("n", names[0])
    redis.command("SET", f"{partition_tag(damaged)}:snapshots", "x")
    around = Around(opened)
    await around.duty.take()
    assert sorted(told(redis)) == sorted(name for name in names if opened.store.partition_of("n", name) != damaged)
    assert [step is None for step in around.slots[0]] == [number == damaged for number in range(PARTITIONS)]
    assert around.failures == ["snapshot"]


async def test_it_goes_on_by_itself_slot_by_slot(opened: OpenStore, redis: RedisConnection) -> None:
    around = Around(opened, interval_ms=20)
    await put(opened, "q")
    around.duty.start()
    while len(around.slots) < 5:
        around.slot_done.clear()
        await around.slot_done.wait()
    await around.duty.close()
    partition = opened.store.partition_of("n", "q")
    slots = [record.at_ms // 20 for record in read_metrics(redis, partition) if record.kind == QUEUE]
    assert len(slots) >= 4
    assert len(slots) == len(set(slots))
    assert around.failures == []


@pytest.mark.parametrize("interval_ms", [0, 20])
async def test_nothing_is_taken_without_an_interval_or_before_the_core_is_ready(
    opened: OpenStore, redis: RedisConnection, interval_ms: int
) -> None:
    around, running = Around(opened, interval_ms), Around(opened, interval_ms=20)
    around.ready = interval_ms == 0
    around.duty.start()
    running.duty.start()
    while len(running.slots) < 5:
        running.slot_done.clear()
        await running.slot_done.wait()
    await around.duty.close()
    await running.duty.close()
    assert around.slots == []
