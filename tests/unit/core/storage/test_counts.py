"""Totals of events: whatever happens, they are what the log says, for as long as the queue or table is there."""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest
from quintet_core.domain.job import Job, JobState, LeaseTerms
from quintet_core.storage import keys

from tests.support.redis_server import RedisConnection
from tests.support.store import Clock, OpenStore
from tests.unit.core.storage.tables import TABLE, Tables
from tests.unit.core.storage.verbs import NAMESPACE, Verbs

DIED, TOTALS, ALL_TOTALS = 13, 13, 16
ROW_PUT, ROW_EXPIRED = 30, 32


@pytest.fixture
def tables(opened: OpenStore, clock: Clock) -> Tables:
    return Tables(opened, clock)


def kept(redis: RedisConnection, partition: int) -> dict[str, tuple[int, ...]]:
    """The totals as Redis holds them."""
    raw = redis.command("HGETALL", keys.partition_tag(partition) + ":counts")
    found = dict(zip(raw[::2], raw[1::2], strict=True))
    return {field.decode(): struct.unpack(f">{len(value) // 8}Q", value) for field, value in found.items()}


def number_of(redis: RedisConnection, partition: int, name: str, of: str = "names") -> str:
    key = keys.partition_tag(partition) + ":" + of
    return str(redis.command("HGET", key, keys.name_key(NAMESPACE, name)).decode())


async def told(verbs: Verbs) -> dict[str, Counter[int]]:
    """The same by the log: of each queue, and of everything."""
    found: dict[str, Counter[int]] = {"": Counter()}
    for event in await verbs.events():
        slots = [event.kind] if event.kind <= TOTALS else []
        if event.state == JobState.DEAD:
            slots.append(DIED)
        if ROW_PUT <= event.kind <= ROW_EXPIRED:
            found[""][event.kind - ROW_PUT + 1 + TOTALS] += 1
        found.setdefault(event.queue, Counter()).update(slots)
        if event.queue:
            found[""].update(slots)
    return found


def numbers(counter: Counter[int], size: int) -> tuple[int, ...]:
    return tuple(counter[slot] for slot in range(1, size + 1))


async def test_they_are_what_the_log_says(verbs: Verbs, clock: Clock, redis: RedisConnection) -> None:
    names, chance = verbs.siblings(3), random.Random(3)
    for name in names:
        await verbs.create(name, attempts_max=2)
    taken: list[Job] = []
    for _ in range(400):
        name, turn = chance.choice(names), chance.random()
        if turn < 0.4:
            await verbs.put(queue=name, delay_ms=chance.choice([0, 0, 50]), time_to_live_ms=chance.choice([0, 300]))
        elif turn < 0.7:
            taken += await verbs.take_all(name, terms=LeaseTerms(100), jobs_max=2)
        elif taken:
            job = taken.pop(chance.randrange(len(taken)))
            await verbs.extend(job, 150)
            if turn > 0.9:
                await verbs.delete(job.id)
            elif turn > 0.8:
                await verbs.release(job)
            else:
                await verbs.acknowledge(job)
        clock.advance(chance.choice([0, 1, 40]))
        await verbs.count(name)
    found, expected = kept(redis, verbs.partition), await told(verbs)
    assert len([slot for slot, count in expected[""].items() if count]) >= 9
    for name in names:
        assert found[number_of(redis, verbs.partition, name)] == numbers(expected[name], TOTALS)
    assert found["all"] == numbers(expected[""], ALL_TOTALS)


async def test_those_of_a_deleted_queue_go_and_stay_in_the_totals_of_all(verbs: Verbs, redis: RedisConnection) -> None:
    for _ in range(300):
        await verbs.put()
    await verbs.delete_queue()
    while await verbs.store.sweep(verbs.partition):
        pass
    found = kept(redis, verbs.partition)
    assert list(found) == ["all"]
    assert found["all"] == numbers((await told(verbs))[""], ALL_TOTALS)
    assert found["all"][7] == 300


async def test_rows_are_counted_as_put_deleted_and_expired(
    tables: Tables, clock: Clock, redis: RedisConnection
) -> None:
    for row in range(5):
        await tables.put(b"%d" % row, ttl_ms=10 if row < 2 else None)
    await tables.delete(b"4")
    clock.advance(10)
    await tables.get(b"0")
    await tables.get(b"1")
    found = kept(redis, tables.partition)
    number = number_of(redis, tables.partition, TABLE, "table_names")
    assert found[number][:4] == (5, 1, 2, 0)
    assert found["all"][TOTALS:] == (5, 1, 2)


@pytest.mark.parametrize("wrong", ["type", "length"])
async def test_damage_to_them_stops_nobody(verbs: Verbs, redis: RedisConnection, wrong: str) -> None:
    await verbs.put()
    key = keys.partition_tag(verbs.partition) + ":counts"
    if wrong == "type":
        redis.commands([("DEL", key), ("SET", key, "x")])
    else:
        redis.command("HSET", key, number_of(redis, verbs.partition, "q"), "x")
    await verbs.put()
    assert (await verbs.count()).ready == 2
    if wrong == "length":
        assert kept(redis, verbs.partition)[number_of(redis, verbs.partition, "q")][0] == 1
