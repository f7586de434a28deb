"""The newest snapshots a core knows: read from the log as it grows, whatever becomes of the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.event import Log
from quintet_core.domain.job import NewJob
from quintet_core.domain.queue import QueueSettings
from quintet_core.domain.snapshot import MetricKind, ProcessSnapshot, Snapshot
from quintet_core.storage import library
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.snapshot_store import Left, Taken
from quintet_core.watching.series import LABEL_CHARACTERS_MAX, QueueSeries, label
from quintet_core.watching.snapshots import IDLE_MS, Known, NewestSnapshots

from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer, prepare
from tests.support.store import Clock, OpenStore, open_store

SLOT_MS = 1000
NAMESPACE = "n"


class Core:
    """What one core does for its snapshots, slot by slot."""

    def __init__(self, opened: OpenStore, clock: Clock) -> None:
        self.opened, self.clock = opened, clock
        self.newest = NewestSnapshots(opened.store, SLOT_MS)

    async def slot(self, most: int = 1000) -> list[Taken | None]:
        """The next one, written and read."""
        self.clock.advance(SLOT_MS)
        taken: list[Taken | None] = [await self.take(partition, most) for partition in range(PARTITIONS)]
        await self.newest.read_slot(taken)
        return taken

    async def take(self, partition: int, most: int = 1000) -> Taken:
        """What is left of the slot in a partition."""
        while True:
            taken = await self.opened.store.take_snapshots(partition, SLOT_MS, most)
            assert isinstance(taken, Taken), taken
            if taken.left is not Left.MORE:
                return taken

    async def put(self, *queues: str, jobs: int = 1) -> None:
        """Jobs for each queue."""
        for queue in queues:
            new = [NewJob(b"x") for _ in range(jobs)]
            answer = await self.opened.do(self.opened.store.enqueue, NAMESPACE, queue, new, True)
            assert not isinstance(answer, Refusal)

    async def delete(self, queue: str) -> None:
        """With all that is in it."""
        await self.opened.do(self.opened.store.delete_queue, NAMESPACE, queue)

    def known(self) -> dict[str, Snapshot]:
        """By name."""
        return {each.name: each.unpack() for each in self.newest.known()}


@pytest.fixture
async def core(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Core]:
    async with open_store(redis_server.path, PARTITIONS) as opened:
        yield Core(opened, Clock(redis, PARTITIONS))


async def test_the_newest_of_everything_is_known(core: Core) -> None:
    await core.put("a", "b", jobs=2)
    await core.slot()
    await core.put("a")
    await core.slot()
    known = core.known()
    assert set(known) == {"a", "b"}
    a = known["a"]
    assert (a.kind, a.namespace, a.ready, a.interval_ms, a.totals[0]) == (MetricKind.QUEUE, NAMESPACE, 3, SLOT_MS, 3)
    assert a.rates[0] == 1.0
    assert known["b"].rates[0] == 0.0
    assert core.newest.totals()["job_enqueued"] == 5


async def test_a_first_snapshot_has_no_rates(core: Core) -> None:
    await core.put("a")
    await core.slot()
    assert core.known()["a"].rates == ()
    assert core.known()["a"].rate(0) == 0.0


async def test_who_begins_later_reads_back_to_what_is_idle(core: Core) -> None:
    await core.opened.do(core.opened.store.create_queue, NAMESPACE, "idle", QueueSettings())
    for _ in range(40):
        await core.slot()
    later = Core(core.opened, core.clock)
    await later.slot()
    assert later.known()["idle"].held == 0


async def test_a_log_that_was_cut_is_read_from_where_it_goes_on(core: Core) -> None:
    await core.put("a")
    await core.slot()
    for _ in range(5):
        core.clock.advance(SLOT_MS)
        for partition in range(PARTITIONS):
            await core.take(partition)
    for partition in range(PARTITIONS):
        await core.opened.store.trim_log(partition, Log.METRICS, 1, 1)
    await core.slot()
    await core.slot()
    assert core.known()["a"].at_ms == core.clock.now


async def test_a_redis_that_was_emptied_is_read_anew(core: Core, redis: RedisConnection) -> None:
    await core.put("a", "b", "c")
    for _ in range(3):
        await core.slot()
    prepare(redis)
    core.clock.advance(0)
    await core.put("d")
    await core.slot()
    assert "d" in core.known()
    partition = core.opened.store.partition_of(NAMESPACE, "d")
    assert all(core.opened.store.partition_of(NAMESPACE, name) != partition or name == "d" for name in core.known())


async def test_a_deleted_queue_is_forgotten_soon_when_it_held_jobs(core: Core) -> None:
    await core.put("a", "b")
    await core.slot()
    await core.delete("a")
    for _ in range(9):
        await core.slot()
    assert set(core.known()) == {"a", "b"}
    await core.slot()
    await core.slot()
    assert set(core.known()) == {"b"}


async def test_what_waits_for_its_turn_is_not_forgotten(core: Core) -> None:
    names = [f"queue-{number}" for number in range(400)]
    await core.put(*names)
    for _ in range(120):
        await core.slot(most=1)
    assert set(core.known()) == set(names)


@pytest.mark.parametrize("garbage", [b"x", b"\x01" * 174, b"\x01" * 200, b"\xff" * 175])
async def test_records_that_cannot_be_read_are_passed_by(core: Core, redis: RedisConnection, garbage: bytes) -> None:
    await core.put("a")
    await core.slot()
    partition = core.opened.store.partition_of(NAMESPACE, "a")
    tag = partition_tag(partition)
    last = int(redis.command("HGET", f"{tag}:meta", "metric")) + 1
    redis.command("XADD", f"{tag}:metrics", f"{last}-0", "t", core.clock.now, "n", b"", "e", garbage)
    redis.command("HSET", f"{tag}:meta", "metric", last)
    await core.slot()
    await core.slot()
    await core.slot()
    assert core.known()["a"].at_ms == core.clock.now


async def test_processes_are_known_until_they_are_silent(core: Core) -> None:
    told = ProcessSnapshot("core", "r", core.clock.now, 0, {"x": 1.0})
    await core.opened.store.append_process(told)
    await core.slot()
    (known,) = core.newest.processes()
    assert (known.process, known.replica, known.values) == ("core", "r", {"x": 1.0})
    for _ in range(12):
        await core.slot()
    assert core.newest.processes() == []


async def test_a_process_that_tells_nonsense_is_passed_by(core: Core) -> None:
    for nonsense in (b"", b"{", b"[]", b'{"values": 3}', b"\xff"):
        await core.opened.store.ask(0, "append_process", 1000, nonsense)
    await core.opened.store.append_process(ProcessSnapshot("core", "r", core.clock.now, 0, {}))
    await core.slot()
    assert [each.replica for each in core.newest.processes()] == ["r"]


class TestFollowers:
    """Are told of what each slot wrote."""

    async def test_of_the_namespaces_that_they_see(self, core: Core) -> None:
        mine, others = core.newest.follow(lambda seen: seen == NAMESPACE), core.newest.follow(lambda seen: seen == "m")
        await core.put("a", "b")
        await core.slot()
        told = await mine.take()
        assert isinstance(told, list)
        assert {each.name for each in told if isinstance(each, Known)} == {"a", "b"}
        assert not others.pending

    async def test_who_is_slow_is_told_the_newest(self, core: Core) -> None:
        follower = core.newest.follow(lambda _: True)
        await core.put("a")
        for _ in range(5):
            await core.slot()
        taken = await follower.take()
        assert isinstance(taken, list)
        (told,) = taken
        assert isinstance(told, Known)
        assert told.at_ms == core.clock.now

    async def test_waits_until_there_is_something(self, core: Core) -> None:
        follower = core.newest.follow(lambda _: True)
        waiting = asyncio.ensure_future(follower.take())
        await core.slot()
        assert not waiting.done()
        await core.put("a")
        await core.slot()
        told = await waiting
        assert isinstance(told, list)
        assert len(told) == 1

    async def test_ends_with_its_core(self, core: Core) -> None:
        follower = core.newest.follow(lambda _: True)
        waiting = asyncio.ensure_future(follower.take())
        await asyncio.sleep(0)
        core.newest.close_all(refusal(Reason.DRAINING))
        ended = await waiting
        assert isinstance(ended, Refusal)
        assert ended.reason is Reason.DRAINING

    async def test_who_left_is_told_no_more(self, core: Core) -> None:
        follower = core.newest.follow(lambda _: True)
        core.newest.leave(follower)
        await core.put("a")
        await core.slot()
        assert not follower.pending


class TestSeries:
    """What is shown to Prometheus."""

    async def test_are_of_the_fullest_and_of_the_busiest(self, core: Core) -> None:
        for size in range(1, 9):
            await core.put(f"full-{size}", jobs=size * 20)
        await core.put("busy-1", "busy-2")
        await core.slot()
        for _ in range(2):
            await core.put("busy-1", "busy-2", jobs=3)
            await core.slot()
        series = QueueSeries(core.newest, 4)
        assert {each.name for each in series.shown.queues} == {"full-8", "full-7", "busy-1", "busy-2"}
        assert series.shown.unlisted == 6

    async def test_are_chosen_again_in_each_slot(self, core: Core) -> None:
        await core.put("a", jobs=5)
        await core.slot()
        series = QueueSeries(core.newest, 10)
        assert dict(series.queue_jobs())[NAMESPACE, "a", "ready"] == 5
        await core.put("a")
        assert dict(series.queue_jobs())[NAMESPACE, "a", "ready"] == 5
        await core.slot()
        assert dict(series.queue_jobs())[NAMESPACE, "a", "ready"] == 6
        assert dict(series.queue_events())[NAMESPACE, "a", "job_enqueued"] == 6
        assert dict(series.queue_oldest_ready_ages())[NAMESPACE, "a"] == 2 * SLOT_MS / 1000

    async def test_may_be_none(self, core: Core) -> None:
        await core.put("a")
        await core.slot()
        series = QueueSeries(core.newest, 0)
        assert list(series.queue_jobs()) == []
        assert series.shown.unlisted == 1

    def test_names_are_cut_without_making_two_one(self) -> None:
        short = "n" * LABEL_CHARACTERS_MAX
        long = [short + end for end in ("a", "b", "")]
        labels = {label(name) for name in long}
        assert len(labels) == 3
        assert label(short) == short
        assert {len(each) for each in labels} == {LABEL_CHARACTERS_MAX, LABEL_CHARACTERS_MAX + 1}
        assert label(label(long[0])) != label(long[0]), "a name that looks like a cut one is cut itself"


def test_the_core_reads_back_as_far_as_the_functions_leave_out() -> None:
    assert f"local IDLE_MS = {IDLE_MS}\n" in library.source()
