"""Snapshots of queues and tables: what they tell, and that each is written once a slot whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest
from quintet_core.domain.errors import Reason
from quintet_core.domain.job import NewJob
from quintet_core.domain.queue import QueueSettings
from quintet_core.domain.snapshot import ProcessSnapshot
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.snapshot_store import Left, Taken

from tests.support.redis_server import RedisConnection
from tests.support.snapshot_record import PROCESS, QUEUE, TABLE, Record, read_metrics
from tests.support.store import START_MS, Clock, reason_of
from tests.unit.core.storage.tables import Tables
from tests.unit.core.storage.verbs import NAMESPACE, Verbs

SLOT_MS = 1000
IDLE_MS = 60_000
MOST = 1000


class Snapshots:
    """Takes and reads the snapshots of the partition of queue "q"."""

    def __init__(self, redis: RedisConnection, verbs: Verbs) -> None:
        self._redis = redis
        self._store = verbs.store
        self.partition = verbs.partition
        self._read = 0

    @property
    def tag(self) -> str:
        """What the partition's keys begin with."""
        return partition_tag(self.partition) + ":"

    async def step(self, most: int = MOST) -> Taken:
        """One step."""
        taken = await self._store.take_snapshots(self.partition, SLOT_MS, most)
        assert isinstance(taken, Taken), taken
        return taken

    async def finish(self, most: int = MOST) -> Taken:
        """All steps of a slot."""
        taken = await self.step(most)
        while taken.left is Left.MORE:
            taken = await self.step(most)
        return taken

    def written(self) -> list[Record]:
        """Since the last time."""
        found = read_metrics(self._redis, self.partition, self._read)
        self._read = found[-1].offset if found else self._read
        return found

    async def take(self, most: int = MOST) -> list[Record]:
        """What a slot writes."""
        await self.finish(most)
        return self.written()

    async def one(self) -> Record:
        """The only one of a slot."""
        (record,) = await self.take()
        return record


@pytest.fixture
def snapshots(redis: RedisConnection, verbs: Verbs) -> Snapshots:
    return Snapshots(redis, verbs)


async def test_an_empty_partition_has_none(snapshots: Snapshots) -> None:
    assert await snapshots.take() == []


async def test_a_queue_tells_its_jobs_by_state_and_its_events_by_kind(
    verbs: Verbs, snapshots: Snapshots, clock: Clock
) -> None:
    await verbs.opened.do(verbs.store.create_queue, NAMESPACE, "q", QueueSettings(attempts_max=2))
    await verbs.put_all([NewJob(b"x") for _ in range(6)])
    await verbs.put(delay_ms=60_000)
    clock.advance(1500)
    first, second, third = await verbs.take_all(jobs_max=3)
    await verbs.acknowledge(first)
    await verbs.release(second)
    second = await verbs.take()
    await verbs.release(second)
    await verbs.extend(third)
    clock.advance(500)
    record = await snapshots.one()
    assert (record.kind, record.namespace, record.name) == (QUEUE, NAMESPACE, "q")
    assert (record.at_ms, record.interval_ms) == (START_MS + 2000, 0)
    assert record.counts == (3, 1, 1, 1)
    assert record.oldest_ready_age_ms == 2000
    assert {kind: total for kind, total in record.totals.items() if total} == {
        "enqueued": 7, "dequeued": 4, "acknowledged": 1, "released": 2, "extended": 1, "died": 1,
    }  # fmt: skip


async def test_a_table_tells_its_rows_and_what_happened_to_rows(
    verbs: Verbs, snapshots: Snapshots, clock: Clock
) -> None:
    tables = Tables(verbs.opened, clock)
    await tables.try_put(b"a", create=True)
    await tables.try_put(b"a")
    await tables.try_put(b"b", ttl_ms=100)
    await tables.try_put(b"c")
    await verbs.opened.do(tables.store.delete_row, NAMESPACE, tables_name := "t", b"c", None)
    clock.advance(200)
    await tables.get_table()
    taken = await verbs.store.take_snapshots(tables.partition, SLOT_MS, MOST)
    assert isinstance(taken, Taken)
    (record,) = read_metrics(snapshots._redis, tables.partition)
    assert (record.kind, record.name) == (TABLE, tables_name)
    assert record.counts == (1, 0, 0, 0)
    assert [*record.totals.values()][:3] == [4, 1, 1]
    assert not any([*record.totals.values()][3:])


async def test_the_totals_of_a_partition_outlive_its_queues(verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
    await verbs.put_all([NewJob(b"x") for _ in range(3)])
    await verbs.acknowledge(await verbs.take())
    await verbs.opened.do(verbs.store.delete_queue, NAMESPACE, "q")
    while await verbs.store.sweep(snapshots.partition):
        pass
    taken = await snapshots.finish()
    assert snapshots.written() == []
    assert taken.totals == (3, 1, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)


class TestSlots:
    """Once each."""

    async def test_a_second_core_finds_it_done(self, verbs: Verbs, snapshots: Snapshots) -> None:
        await verbs.put()
        assert len(await snapshots.take()) == 1
        assert await snapshots.take() == []

    async def test_the_next_slot_tells_how_long_ago_the_last_was(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        await verbs.put()
        await snapshots.take()
        clock.advance(SLOT_MS + 1)
        record = await snapshots.one()
        assert (record.interval_ms, record.oldest_ready_age_ms) == (SLOT_MS + 1, SLOT_MS + 1)

    async def test_what_is_empty_and_quiet_is_told_once_a_minute(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        await verbs.opened.do(verbs.store.create_queue, NAMESPACE, "q", QueueSettings())
        assert len(await snapshots.take()) == 1
        for _ in range(IDLE_MS // SLOT_MS - 1):
            clock.advance(SLOT_MS)
            assert await snapshots.take() == []
        clock.advance(SLOT_MS)
        assert (await snapshots.one()).interval_ms == IDLE_MS

    async def test_what_has_emptied_is_told_once_more_at_rest(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        await verbs.put()
        await snapshots.take()
        clock.advance(SLOT_MS)
        await verbs.acknowledge(await verbs.take())
        emptied = await snapshots.one()
        assert (emptied.counts, emptied.totals["acknowledged"]) == ((0, 0, 0, 0), 1)
        clock.advance(SLOT_MS)
        assert (await snapshots.one()).totals == emptied.totals
        clock.advance(SLOT_MS)
        assert await snapshots.take() == []

    async def test_a_job_that_came_and_went_in_between_is_told(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        await verbs.opened.do(verbs.store.create_queue, NAMESPACE, "q", QueueSettings())
        await snapshots.take()
        clock.advance(SLOT_MS)
        await verbs.put()
        await verbs.acknowledge(await verbs.take())
        assert (await snapshots.one()).totals["acknowledged"] == 1

    async def test_more_than_one_step_tells_each_once(self, verbs: Verbs, snapshots: Snapshots) -> None:
        names = await filled(verbs, 120)
        steps = [await snapshots.step() for _ in range(3)]
        assert [(step.left, step.written) for step in steps] == [(Left.MORE, 50), (Left.MORE, 50), (Left.NOTHING, 20)]
        assert sorted(record.name for record in snapshots.written()) == sorted(names)

    async def test_a_slot_that_was_broken_off_is_ended_later_and_nothing_is_told_twice(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        names = await filled(verbs, 120)
        await snapshots.step()
        early = {record.name for record in snapshots.written()}
        clock.advance(10 * SLOT_MS)
        late = [record.name for record in await snapshots.take()]
        assert len(late) == len(set(late))
        assert set(late) >= set(names) - early
        clock.advance(SLOT_MS)
        assert sorted(record.name for record in await snapshots.take()) == sorted(names)

    async def test_more_than_the_most_take_turns(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        names = await filled(verbs, 25)
        told: Counter[str] = Counter()
        for _ in range(10):
            taken = await snapshots.finish(most=10)
            assert taken.left in (Left.REST, Left.NOTHING)
            records = snapshots.written()
            assert len(records) <= 10
            assert len({record.name for record in records}) == len(records)
            told.update(record.name for record in records)
            assert (await snapshots.step(most=10)).written == 0
            clock.advance(SLOT_MS)
        assert set(told) == set(names)
        assert max(told.values()) - min(told.values()) <= 1

    async def test_many_that_are_quiet_are_passed_by(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        for name in verbs.siblings(1200)[1:]:
            verbs.store.create_queue(NAMESPACE, name, QueueSettings(), lambda _: None)
        await verbs.put()
        assert len(await snapshots.take()) == 1200 - 200
        clock.advance(SLOT_MS)
        await snapshots.take()
        clock.advance(SLOT_MS)
        assert [record.name for record in await snapshots.take()] == ["q"]


async def filled(verbs: Verbs, count: int) -> list[str]:
    """So many queues with a job each."""
    names = verbs.siblings(count)
    for name in names:
        await verbs.put(queue=name)
    return names


class TestOldestReady:
    """Of the jobs that are first of their rank, by when they became ready."""

    async def test_it_is_the_oldest_of_all_ranks_first(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        await verbs.put(rank=9)
        clock.advance(300)
        await verbs.put(rank=-5)
        clock.advance(100)
        assert (await snapshots.one()).oldest_ready_age_ms == 400

    async def test_a_delay_is_no_age(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        await verbs.put(delay_ms=5000)
        clock.advance(5700)
        await verbs.opened.do(verbs.store.count, NAMESPACE, "q")
        assert (await snapshots.one()).oldest_ready_age_ms == 700

    async def test_who_came_back_is_as_old_as_that(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        await verbs.put()
        clock.advance(5000)
        job = await verbs.take()
        clock.advance(1000)
        await verbs.release(job, delay_ms=0)
        clock.advance(50)
        assert (await snapshots.one()).oldest_ready_age_ms == 50

    async def test_only_so_many_ranks_are_looked_at(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        await verbs.put(rank=16)
        clock.advance(100)
        for rank in range(16):
            await verbs.put(rank=rank)
        clock.advance(100)
        assert (await snapshots.one()).oldest_ready_age_ms == 100

    async def test_large_payloads_are_not_read_for_it(self, verbs: Verbs, snapshots: Snapshots, clock: Clock) -> None:
        await verbs.put(b"x" * 20_000, rank=1)
        clock.advance(100)
        await verbs.put(rank=0)
        clock.advance(100)
        assert (await snapshots.one()).oldest_ready_age_ms == 100

    async def test_it_grows_while_nothing_happens_and_is_new_when_something_did(
        self, verbs: Verbs, snapshots: Snapshots, clock: Clock
    ) -> None:
        await verbs.put()
        await snapshots.take()
        clock.advance(SLOT_MS)
        assert (await snapshots.one()).oldest_ready_age_ms == SLOT_MS
        clock.advance(SLOT_MS)
        await verbs.put()
        await verbs.take()
        assert (await snapshots.one()).oldest_ready_age_ms == 0


class TestDamage:
    """Is of one queue, and the others are seen."""

    async def test_of_a_queue_keeps_no_other_from_being_told(
        self, redis: RedisConnection, verbs: Verbs, snapshots: Snapshots
    ) -> None:
        names = await filled(verbs, 3)
        number = redis.command("HGET", snapshots.tag + "names", b"\x01" + NAMESPACE.encode() + names[1].encode())
        ready = f"{snapshots.tag}q{int(number)}:ready"
        redis.commands([("DEL", ready), ("SET", ready, "x")])
        taken = await snapshots.finish()
        assert taken.damaged == 1
        assert {record.name for record in snapshots.written()} == {names[0], names[2]}

    @pytest.mark.parametrize("key", ["index", "names"])
    async def test_of_the_names_of_queues_leaves_tables(
        self, redis: RedisConnection, verbs: Verbs, snapshots: Snapshots, clock: Clock, key: str
    ) -> None:
        await verbs.put()
        tables = Tables(verbs.opened, clock)
        table = next(
            name for name in map("t{}".format, range(1000))
            if verbs.store.partition_of(NAMESPACE, name) == snapshots.partition
        )  # fmt: skip
        await tables.try_put(b"a", table=table, create=True)
        redis.commands([("DEL", snapshots.tag + key), ("SET", snapshots.tag + key, "x")])
        taken = await snapshots.finish()
        assert (taken.left, taken.damaged) == (Left.NOTHING, 1)
        assert [record.name for record in snapshots.written()] == [table]

    @pytest.mark.parametrize("key", ["snapshots", "metrics", "counts"])
    async def test_of_its_own_keys_is_said_and_nothing_else_stops(
        self, redis: RedisConnection, verbs: Verbs, snapshots: Snapshots, key: str
    ) -> None:
        await verbs.put()
        redis.commands([("DEL", snapshots.tag + key), ("SET", snapshots.tag + key, "x")])
        answer = await verbs.store.take_snapshots(snapshots.partition, SLOT_MS, MOST)
        assert reason_of(answer) is Reason.DAMAGED
        await verbs.acknowledge(await verbs.take())
        assert redis.command("GET", snapshots.tag + key) == b"x"

    @pytest.mark.parametrize("garbage", [b"", b"short", b"\xff" * 57, b"\xff" * 200])
    async def test_of_what_was_remembered_is_a_first_snapshot_or_said(
        self, redis: RedisConnection, verbs: Verbs, snapshots: Snapshots, clock: Clock, garbage: bytes
    ) -> None:
        await verbs.put()
        await snapshots.take()
        (number,) = set(redis.command("HKEYS", snapshots.tag + "snapshots")) - {b"pass"}
        redis.command("HSET", snapshots.tag + "snapshots", number, garbage)
        clock.advance(SLOT_MS)
        await snapshots.finish()
        for record in snapshots.written():
            assert record.counts == (1, 0, 0, 0)

    @pytest.mark.parametrize("garbage", [b"", b"short", b"\0" * 21, b"\xff" * 21])
    async def test_of_the_pass_is_said(
        self, redis: RedisConnection, verbs: Verbs, snapshots: Snapshots, garbage: bytes
    ) -> None:
        await verbs.put()
        redis.command("HSET", snapshots.tag + "snapshots", "pass", garbage)
        answer = await verbs.store.take_snapshots(snapshots.partition, SLOT_MS, MOST)
        assert reason_of(answer) is Reason.DAMAGED


async def test_a_process_tells_its_series(redis: RedisConnection, verbs: Verbs) -> None:
    told = ProcessSnapshot("core", "0123", START_MS, 990, {"a_total": 2, 'b{c="d"}': 0.5})
    assert await verbs.store.append_process(told) is None
    (record,) = read_metrics(redis, 0)
    assert (record.kind, record.number, record.interval_ms) == (PROCESS, 0, 990)
    assert record.detail == {"process": "core", "replica": "0123", "values": {"a_total": 2, 'b{c="d"}': 0.5}}


async def test_series_that_do_not_fit_are_left_out(redis: RedisConnection, verbs: Verbs) -> None:
    values = {f"series_{number:04d}": float(number) for number in range(5000)}
    assert await verbs.store.append_process(ProcessSnapshot("core", "0123", START_MS, 0, values)) is None
    (record,) = read_metrics(redis, 0)
    kept = record.detail["values"]
    assert 1000 < len(kept) < 5000
    assert kept.items() <= values.items()
