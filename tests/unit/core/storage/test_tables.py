"""Tables as wholes: made, changed, listed, deleted, full."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest
from quintet_core.domain.event import EventKind
from quintet_core.domain.table import Row, RowDelete, RowPut, Table, TableSettings
from quintet_core.storage import keys

from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS, Clock, OpenStore, Reason, reason_of
from tests.unit.core.storage.tables import NAMESPACE, TABLE, Tables, told
from tests.unit.core.storage.verbs import Verbs


@pytest.fixture
def tables(opened: OpenStore, clock: Clock) -> Tables:
    return Tables(opened, clock)


async def test_a_table_is_told_as_it_was_made(tables: Tables) -> None:
    settings = TableSettings(rows_max=3, value_bytes_max=0, events_carry_values=True)
    made = await tables.create(rows_max=3, value_bytes_max=0, events_carry_values=True)
    assert made == Table(NAMESPACE, TABLE, settings, 0, START_MS, tables.partition)
    assert await tables.get_table() == made
    assert reason_of(await tables.create()) is Reason.TABLE_EXISTS
    assert await tables.get_table() == made


async def test_what_is_asked_of_no_table_is_refused(tables: Tables) -> None:
    for answer in (
        await tables.get_table(),
        await tables.update(),
        await tables.drop(),
        await tables.get(b"k"),
        await tables.delete(b"k"),
        await tables.try_put(b"k"),
        await tables.write(RowPut(b"k", b"v"), create=False),
        await tables.opened.do(tables.store.scan_rows, NAMESPACE, TABLE, b"", 1, None, False),
    ):
        assert reason_of(answer) is Reason.TABLE_NOT_FOUND
    assert await tables.events() == []


async def test_a_queue_and_a_table_of_one_name_know_nothing_of_each_other(
    tables: Tables, verbs: Verbs, opened: OpenStore
) -> None:
    await verbs.put(b"job")
    await tables.put(b"k", b"row", table="q")
    assert await verbs.payloads() == [b"job"]
    assert (await tables.row(b"k", table="q")).value == b"row"
    await tables.drop("q")
    assert (await verbs.count()).leased == 1


async def test_settings_are_replaced_as_a_whole(tables: Tables) -> None:
    await tables.create(rows_max=1, value_bytes_max=1)
    await tables.put(b"a")
    changed = await tables.update(events_carry_values=True)
    assert (changed.settings, changed.rows) == (TableSettings(events_carry_values=True), 1)
    assert await tables.get_table() == changed
    await tables.put(b"b", b"longer")
    assert (await tables.events())[-1].value == b"longer"


class TestLimits:
    async def test_a_value_may_be_as_long_as_the_table_says(self, tables: Tables) -> None:
        await tables.create(value_bytes_max=3)
        refused = await tables.try_put(b"k", b"1234")
        assert reason_of(refused) is Reason.PAYLOAD_TOO_LARGE
        assert refused.metadata == {"max": "3"}
        await tables.put(b"k", b"123")

    async def test_a_full_table_takes_no_new_row_and_changes_those_it_has(self, tables: Tables) -> None:
        await tables.create(rows_max=2)
        await tables.put(b"a")
        await tables.put(b"b")
        refused = await tables.try_put(b"c")
        assert reason_of(refused) is Reason.TABLE_FULL
        assert refused.metadata == {"max": "2"}
        await tables.put(b"a", b"again")
        await tables.delete(b"b")
        await tables.put(b"c")

    async def test_none_is_a_legal_limit(self, tables: Tables) -> None:
        await tables.create(rows_max=0)
        assert reason_of(await tables.try_put(b"a")) is Reason.TABLE_FULL

    async def test_rows_of_one_batch_are_counted_as_they_come_and_go(self, tables: Tables) -> None:
        await tables.create(rows_max=2)
        a, b, c, _, c_again, _ = await asyncio.gather(
            tables.try_put(b"a"),
            tables.try_put(b"b"),
            tables.try_put(b"c"),
            tables.delete(b"a"),
            tables.try_put(b"c"),
            tables.get(b"c"),
        )
        assert [reason_of(answer) for answer in (a, b, c, c_again)] == [None, None, Reason.TABLE_FULL, None]
        assert await tables.rows_in() == 2

    async def test_rows_whose_time_is_over_keep_no_table_full(self, tables: Tables, clock: Clock) -> None:
        await tables.create(rows_max=2)
        await tables.put(b"a", ttl_ms=10)
        await tables.put(b"b", ttl_ms=10)
        clock.advance(10)
        await tables.put(b"c")
        await tables.put(b"a")
        assert await tables.keys() == [b"a", b"c"]

    async def test_a_row_whose_time_is_over_is_no_place_in_an_overfull_table(
        self, tables: Tables, clock: Clock
    ) -> None:
        await tables.create()
        for key in (b"a", b"b", b"c"):
            await tables.put(key, ttl_ms=10 if key == b"a" else None)
        await tables.update(rows_max=1)
        clock.advance(10)
        assert reason_of(await tables.try_put(b"a")) is Reason.TABLE_FULL
        await tables.put(b"b", b"still changed")

    async def test_several_writes_fit_by_what_they_leave(self, tables: Tables) -> None:
        await tables.create(rows_max=2)
        await tables.put(b"a")
        await tables.put(b"b")
        refused = await tables.write(RowPut(b"c", b"v"), RowPut(b"a", b"v"))
        assert reason_of(refused) is Reason.TABLE_FULL
        versions = await tables.write(RowPut(b"c", b"v"), RowDelete(b"a"))
        assert len(versions) == 2
        assert await tables.keys() == [b"b", b"c"]


class TestListing:
    async def names(self, tables: Tables, prefix: str = "", after: str | None = None, limit: int = 100) -> list[str]:
        listed = await tables.store.list_tables(tables.partition, NAMESPACE, prefix, after, limit)
        assert isinstance(listed, list)
        return [table.name for table in listed]

    async def test_is_in_order_and_goes_on_behind_a_name(self, tables: Tables) -> None:
        names = sorted(tables.siblings(5))
        for name in reversed(names):
            await tables.create(name)
        assert await self.names(tables) == names
        assert await self.names(tables, limit=2) == names[:2]
        assert await self.names(tables, after=names[1]) == names[2:]
        assert await self.names(tables, prefix=names[3]) == [name for name in names if name.startswith(names[3])]

    async def test_tells_nothing_of_other_namespaces_and_deleted_tables(
        self, tables: Tables, opened: OpenStore
    ) -> None:
        await tables.create()
        other = next(f"m{number}" for number in range(10_000) if self.lives_beside(tables, f"m{number}"))
        await opened.do(tables.store.create_table, other, TABLE, TableSettings())
        assert await self.names(tables) == [TABLE]
        await tables.drop()
        assert await self.names(tables) == []

    def lives_beside(self, tables: Tables, namespace: str) -> bool:
        return tables.store.partition_of(namespace, TABLE) == tables.partition


class TestDeletion:
    async def test_is_seen_at_once_and_told_row_by_row_behind_it(self, tables: Tables) -> None:
        for number in range(450):
            await tables.put(b"%03d" % number, b"12345", ttl_ms=5000 if number % 2 else None)
        before = len(await tables.events())
        assert await tables.drop() == 450
        assert reason_of(await tables.get(b"000")) is Reason.TABLE_NOT_FOUND
        await tables.sweep()
        events = (await tables.events())[before:]
        assert told(events[:1]) == [(EventKind.TABLE_DELETED, TABLE, b"")]
        assert events[0].detail == "450"
        assert told(events[1:]) == [(EventKind.ROW_DELETED, TABLE, b"%03d" % number) for number in range(450)]
        assert {(event.detail, event.payload_bytes) for event in events[1:]} == {("table deleted", 5)}

    async def test_leaves_nothing(self, tables: Tables, redis: RedisConnection, clock: Clock) -> None:
        tag = keys.partition_tag(tables.partition)
        await tables.put(b"a", ttl_ms=5)
        await tables.put(b"b")
        await tables.drop()
        clock.advance(5)
        await tables.sweep()
        left = {key.decode() for key in redis.command("KEYS", tag + ":*")}
        assert left == {tag + ":meta", tag + ":events", tag + ":counts"}
        assert redis.command("HKEYS", tag + ":counts") == [b"all"]

    async def test_of_an_empty_table_is_all_of_it(self, tables: Tables, redis: RedisConnection) -> None:
        await asyncio.gather(tables.create(), tables.put(b"a", ttl_ms=1), tables.delete(b"a"), tables.drop())
        tag = keys.partition_tag(tables.partition)
        left = {key.decode() for key in redis.command("KEYS", tag + ":*")}
        assert left == {tag + ":meta", tag + ":events", tag + ":counts"}
        assert redis.command("HKEYS", tag + ":counts") == [b"all"]

    @pytest.mark.parametrize("rows", [1, 999, 1000, 1001, 2500])
    async def test_is_finished_before_a_new_table_of_the_name(self, tables: Tables, rows: int) -> None:
        for start in range(0, rows, 250):
            puts = [RowPut(b"%04d" % number, b"old") for number in range(start, min(rows, start + 250))]
            await tables.write(*puts)
        await tables.drop()
        stored = await tables.put(b"0000", b"new")
        assert stored.created
        events = await tables.events()
        kinds = [event.kind for event in events]
        made = len(kinds) - 1 - kinds[::-1].index(EventKind.TABLE_CREATED)
        assert kinds[made + 1 :] == [EventKind.ROW_PUT]
        assert sum(event.kind == EventKind.ROW_DELETED for event in events[:made]) == rows
        assert [row.value for row in (await tables.page()).rows] == [b"new"]
        await tables.sweep()
        assert await tables.rows_in() == 1

    async def test_and_anew_in_one_batch(self, tables: Tables) -> None:
        await tables.put(b"a", b"old", ttl_ms=1000)
        rows, stored, row = await asyncio.gather(
            tables.drop(), tables.try_put(b"a", b"new", create=True), tables.get(b"a")
        )
        assert (rows, stored.created) == (1, True)
        assert row == Row(b"a", b"new", stored.version, 0)

    @pytest.mark.parametrize("rows", [999, 1000, 2500])
    async def test_of_many_rows_and_anew_keeps_the_order_of_writes(self, tables: Tables, rows: int) -> None:
        for start in range(0, rows, 250):
            puts = [RowPut(b"%04d" % number, b"old") for number in range(start, min(rows, start + 250))]
            await tables.write(*puts)
        await tables.drop()
        stored = await asyncio.gather(*(tables.put(b"k", b"%d" % number) for number in range(20)))
        versions = [answer.version for answer in stored]
        assert versions == sorted(versions)
        assert (await tables.row(b"k")).value == b"19"

    async def test_of_a_damaged_table_keeps_no_other_from_it(self, tables: Tables, redis: RedisConnection) -> None:
        first, second = tables.siblings(2)
        tag = keys.partition_tag(tables.partition)
        for table in (first, second):
            await tables.put(b"k", table=table)
        number = redis.command("HGET", tag + ":table_names", keys.name_key(NAMESPACE, first))
        for table in (first, second):
            await tables.drop(table)
        redis.command("SET", f"{tag}:t{number.decode()}:expiring", "x")
        assert reason_of(await tables.opened.store.sweep(tables.partition)) is None
        assert redis.command("HKEYS", tag + ":dropping") == [keys.name_key(NAMESPACE, first)]
        assert reason_of(await tables.opened.store.sweep(tables.partition)) is Reason.DAMAGED
        assert reason_of(await tables.try_put(b"k", table=first, create=True)) is Reason.DAMAGED
        assert (await tables.put(b"k", table=second)).created


class TestMemory:
    async def test_when_it_is_full_what_grows_is_refused_and_the_rest_goes_on(
        self, tables: Tables, redis: RedisConnection
    ) -> None:
        await tables.put(b"a", b"value")
        await tables.put(b"b")
        redis.command("CONFIG", "SET", "maxmemory", "1")
        try:
            answers: tuple[Any, ...] = await asyncio.gather(
                tables.try_put(b"c"),
                tables.write(RowPut(b"a", b"")),
                tables.create("other"),
                tables.get(b"a"),
                tables.delete(b"b"),
                tables.get_table(),
            )
        finally:
            redis.command("CONFIG", "SET", "maxmemory", "0")
        assert [reason_of(answer) for answer in answers] == [Reason.MEMORY_FULL] * 3 + [None] * 3
        assert answers[3].value == b"value"
        assert await tables.keys() == [b"a"]


async def test_numbers_are_shared_with_queues_and_never_given_twice(
    tables: Tables, verbs: Verbs, redis: RedisConnection
) -> None:
    tag = keys.partition_tag(tables.partition)
    names = tables.siblings(3)
    await tables.create(names[0])
    await tables.drop(names[0])
    await tables.create(names[1])
    await tables.create(names[2])
    numbers = sorted(int(number) for number in redis.command("HKEYS", tag + ":tables"))
    assert numbers == [2**31 + 2, 2**31 + 3]
    assert redis.command("HGET", tag + ":meta", "queue") == b"3"


async def test_partitions_with_tables_but_without_counters_are_not_made_anew(
    tables: Tables, redis: RedisConnection
) -> None:
    await tables.create()
    tag = keys.partition_tag(tables.partition)
    redis.command("DEL", tag + ":meta", tag + ":events")
    with pytest.raises(hiredis.ReplyError, match="DAMAGED"):
        redis.command("FCALL", "initialize_v1", "1", tag)
