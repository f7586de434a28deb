"""Rows: what is put is got, versions guard, times to live end, several writes are one."""

from __future__ import annotations

import asyncio

import pytest
from quintet_core.domain.event import EventKind
from quintet_core.domain.table import Row, RowDelete, RowPut, RowStored, TtlChange
from quintet_core.storage import keys

from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS, Clock, OpenStore, Reason, reason_of
from tests.unit.core.storage.tables import NAMESPACE, TABLE, Tables, told

PUT, DELETED, EXPIRED = EventKind.ROW_PUT, EventKind.ROW_DELETED, EventKind.ROW_EXPIRED


@pytest.fixture
async def tables(opened: OpenStore, clock: Clock) -> Tables:
    made = Tables(opened, clock)
    await made.create()
    return made


@pytest.mark.parametrize("key", [b"", b"k", b"\x00", b"\xff" * 4096, "ключ".encode(), b"a\r\n$3\r\n"])
@pytest.mark.parametrize("value", [b"", b"v", bytes(range(256)), b"x" * 100_000])
async def test_any_bytes_are_a_key_and_a_value(tables: Tables, key: bytes, value: bytes) -> None:
    stored = await tables.put(key, value)
    assert stored == RowStored(2, True, 0)
    row = Row(key, value, 2, 0)
    assert await tables.get(key) == row
    assert (await tables.page()).rows == [row]
    assert await tables.delete(key) == row
    assert reason_of(await tables.get(key)) is Reason.ROW_NOT_FOUND
    assert reason_of(await tables.delete(key)) is Reason.ROW_NOT_FOUND
    assert (await tables.page()).rows == []


async def test_a_version_is_the_offset_of_the_event_that_wrote_it(tables: Tables) -> None:
    stored = [await tables.put(key, key) for key in (b"a", b"b", b"a")]
    events = await tables.events(1)
    assert [row.version for row in stored] == [event.offset for event in events] == [2, 3, 4]
    assert [row.created for row in stored] == [True, True, False]
    assert (await tables.row(b"a")).version == 4


async def test_operations_of_one_batch_see_each_other(tables: Tables) -> None:
    first, got, second, deleted, missing, third, last = await asyncio.gather(
        tables.try_put(b"k", b"1"),
        tables.get(b"k"),
        tables.try_put(b"k", b"2", ttl_ms=5000),
        tables.delete(b"k"),
        tables.get(b"k"),
        tables.try_put(b"k", b"3"),
        tables.page(),
    )
    assert got == Row(b"k", b"1", first.version, 0)
    assert second == RowStored(first.version + 1, False, START_MS + 5000)
    assert deleted == Row(b"k", b"2", second.version, START_MS + 5000)
    assert reason_of(missing) is Reason.ROW_NOT_FOUND
    assert third.created
    assert last.rows == [Row(b"k", b"3", third.version, 0)]


class TestVersions:
    async def test_guard_a_put(self, tables: Tables) -> None:
        first = await tables.put(b"k", b"1")
        for expected in (0, first.version - 1, first.version + 1, 2**53):
            refused = await tables.try_put(b"k", b"2", expected=expected)
            assert reason_of(refused) is Reason.VERSION_MISMATCH
            assert refused.metadata == {"version": str(first.version)}
        second = await tables.put(b"k", b"2", expected=first.version)
        assert await tables.row(b"k") == Row(b"k", b"2", second.version, 0)

    async def test_nought_is_no_row(self, tables: Tables) -> None:
        assert reason_of(await tables.try_put(b"k", expected=7)) is Reason.VERSION_MISMATCH
        assert (await tables.put(b"k", expected=0)).created
        assert reason_of(await tables.try_put(b"k", expected=0)) is Reason.VERSION_MISMATCH

    async def test_guard_a_delete(self, tables: Tables) -> None:
        stored = await tables.put(b"k")
        assert reason_of(await tables.delete(b"k", stored.version + 1)) is Reason.VERSION_MISMATCH
        assert reason_of(await tables.delete(b"other", stored.version)) is Reason.VERSION_MISMATCH
        assert reason_of(await tables.delete(b"other", 0)) is Reason.ROW_NOT_FOUND
        assert (await tables.delete(b"k", stored.version)).version == stored.version

    async def test_a_mismatch_makes_no_table(self, tables: Tables) -> None:
        refused = await tables.try_put(b"k", table="new", expected=3, create=True)
        assert reason_of(refused) is Reason.VERSION_MISMATCH
        assert reason_of(await tables.get_table("new")) is Reason.TABLE_NOT_FOUND

    async def test_let_one_of_many_writers_win(self, tables: Tables) -> None:
        stored = await tables.put(b"k")
        answers = await asyncio.gather(*(tables.try_put(b"k", b"w", expected=stored.version) for _ in range(50)))
        assert sum(isinstance(answer, RowStored) for answer in answers) == 1


class TestTimesToLive:
    async def test_end_exactly(self, tables: Tables, clock: Clock) -> None:
        stored = await tables.put(b"k", b"12345", ttl_ms=1000)
        assert stored.expires_at_ms == START_MS + 1000
        clock.advance(999)
        assert (await tables.row(b"k")).expires_at_ms == START_MS + 1000
        clock.advance(1)
        assert reason_of(await tables.get(b"k")) is Reason.ROW_NOT_FOUND
        event = (await tables.events())[-1]
        assert (event.kind, event.key, event.payload_bytes, event.at_ms) == (EXPIRED, b"k", 5, START_MS + 1000)

    @pytest.mark.parametrize("look", ["get", "delete", "page", "rows_in", "put", "write"])
    async def test_are_over_for_whoever_looks_first(self, tables: Tables, clock: Clock, look: str) -> None:
        await tables.put(b"k", b"old", ttl_ms=1000)
        clock.advance(1000)
        offset = (await tables.events())[-1].offset
        if look in ("get", "delete"):
            assert reason_of(await getattr(tables, look)(b"k")) is Reason.ROW_NOT_FOUND
        elif look == "page":
            assert (await tables.page()).rows == []
        elif look == "rows_in":
            assert await tables.rows_in() == 0
        elif look == "put":
            assert await tables.put(b"k", b"new", expected=0) == RowStored(offset + 2, True, 0)
        else:
            assert await tables.write(RowPut(b"k", b"new")) == [offset + 2]
        events = await tables.events(offset)
        assert told(events[:1]) == [(EXPIRED, TABLE, b"k")]
        assert [event.kind for event in events[1:]] == ([PUT] if look in ("put", "write") else [])
        clock.advance(100_000)
        await tables.opened.store.settle_due(tables.partition, 10)
        assert await tables.events(offset) == events

    async def test_are_kept_set_and_cleared(self, tables: Tables, clock: Clock) -> None:
        await tables.put(b"k", ttl_ms=1000)
        clock.advance(500)
        assert (await tables.put(b"k", b"kept")).expires_at_ms == START_MS + 1000
        assert (await tables.put(b"k", b"set", ttl_ms=1000)).expires_at_ms == START_MS + 1500
        clock.advance(700)
        assert (await tables.row(b"k")).value == b"set"
        assert (await tables.put(b"k", b"cleared", clear=True)).expires_at_ms == 0
        clock.advance(10_000)
        await tables.opened.store.settle_due(tables.partition, 10)
        assert (await tables.row(b"k")).value == b"cleared"

    async def test_do_not_outlive_their_row(self, tables: Tables, clock: Clock) -> None:
        await tables.put(b"k", ttl_ms=1000)
        await tables.delete(b"k")
        assert (await tables.put(b"k")).expires_at_ms == 0
        clock.advance(1000)
        await tables.opened.store.settle_due(tables.partition, 10)
        assert (await tables.row(b"k")).value == b"v"

    async def test_end_by_the_timers_alone(self, tables: Tables, clock: Clock, opened: OpenStore) -> None:
        for number in range(5):
            await tables.put(b"%d" % number, ttl_ms=1000 * (number + 1))
        assert min(at for _, _, at in opened.recorder.clocks if at) == START_MS + 1000
        clock.advance(3000)
        offset = (await tables.events())[-1].offset
        assert await opened.store.settle_due(tables.partition, 10) is False
        assert told(await tables.events(offset)) == [(EXPIRED, TABLE, b"%d" % number) for number in range(3)]
        # And the partition's next due time is told with it.
        assert opened.recorder.clocks[-2][2] == START_MS + 4000

    async def test_of_many_rows_end_in_bounded_steps(self, tables: Tables, clock: Clock, opened: OpenStore) -> None:
        for start in range(0, 2200, 200):
            await tables.write(*(RowPut(b"%d" % n, b"", TtlChange.SET, 5) for n in range(start, start + 200)))
        clock.advance(5)
        assert await opened.store.settle_due(tables.partition, 10) is True
        assert len([event for event in await tables.events() if event.kind == EXPIRED]) == 1000
        # A reader sees none of them, however many are left to remove.
        assert (await tables.page()).rows == []
        assert await tables.rows_in() == 0

    async def test_of_tables_and_queues_end_side_by_side(
        self, tables: Tables, clock: Clock, redis: RedisConnection, opened: OpenStore
    ) -> None:
        one, two = tables.siblings(2)
        await tables.put(b"k", ttl_ms=5, table=one)
        await tables.put(b"k", ttl_ms=5, table=two)
        tag = keys.partition_tag(tables.partition)
        number = redis.command("HGET", tag + ":table_names", keys.name_key(NAMESPACE, one)).decode()
        redis.command("HSET", f"{tag}:t{number}:rows", b"k", b"short")
        clock.advance(5)
        assert reason_of(await opened.store.settle_due(tables.partition, 10)) is Reason.DAMAGED
        assert told(await tables.events())[-1] == (EXPIRED, two, b"k")
        assert reason_of(await tables.get(b"k", one)) is Reason.DAMAGED
        assert reason_of(await tables.get(b"k", two)) is Reason.ROW_NOT_FOUND


class TestSeveralWrites:
    async def test_are_one(self, tables: Tables) -> None:
        a, b = await tables.put(b"a", b"1"), await tables.put(b"b", b"1")
        versions = await tables.write(
            RowPut(b"a", b"2", expected_version=a.version),
            RowDelete(b"b", expected_version=b.version),
            RowDelete(b"missing"),
            RowPut(b"c", b"2", TtlChange.SET, 1000, 0),
            RowDelete(b"never", expected_version=0),
        )
        assert versions == [b.version + 1, b.version + 2, 0, b.version + 3, 0]
        assert told(await tables.events(b.version)) == [(PUT, TABLE, b"a"), (DELETED, TABLE, b"b"), (PUT, TABLE, b"c")]
        assert (await tables.page()).rows == [
            Row(b"a", b"2", versions[0], 0),
            Row(b"c", b"2", versions[3], START_MS + 1000),
        ]

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            (RowPut(b"b", b"2", expected_version=1), Reason.VERSION_MISMATCH),
            (RowDelete(b"missing", expected_version=1), Reason.VERSION_MISMATCH),
            (RowPut(b"b", b"123456"), Reason.PAYLOAD_TOO_LARGE),
        ],
    )
    async def test_are_none_when_one_breaks_a_rule(
        self, tables: Tables, wrong: RowPut | RowDelete, reason: Reason
    ) -> None:
        await tables.update(value_bytes_max=5)
        await tables.put(b"a", b"1")
        before = await tables.events()
        refused = await tables.write(RowPut(b"a", b"2"), RowDelete(b"a2"), wrong, RowPut(b"z", b""))
        assert reason_of(refused) is reason
        assert refused.metadata["index"] == "2"
        assert await tables.events() == before
        assert (await tables.row(b"a")).value == b"1"

    async def test_make_their_table(self, tables: Tables) -> None:
        assert await tables.write(RowPut(b"a", b"1"), table="new") == [2]
        assert (await tables.row(b"a", "new")).value == b"1"


class TestScans:
    async def test_are_in_the_order_of_bytes_page_by_page(self, tables: Tables) -> None:
        wanted = sorted([b"", b"\x00", b"a", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"Z"])
        for key in reversed(wanted):
            await tables.put(key)
        for size in (1, 3, 10, 11):
            seen: list[bytes] = []
            cursor: bytes | None = None
            while True:
                page = await tables.page(limit=size, after=cursor)
                seen += [row.key for row in page.rows]
                cursor = page.cursor
                if cursor is None:
                    break
            assert seen == wanted

    @pytest.mark.parametrize("prefix", [b"a", b"a\xff", b"\xff", b"", b"ab", b"nothing", b"\x00"])
    async def test_keep_to_a_prefix(self, tables: Tables, prefix: bytes) -> None:
        every = [b"", b"\x00", b"`", b"a", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
        for key in every:
            await tables.put(key)
        assert await tables.keys(prefix) == sorted(key for key in every if key.startswith(prefix))

    async def test_can_leave_values_out(self, tables: Tables) -> None:
        stored = await tables.put(b"k", b"value", ttl_ms=1000)
        assert (await tables.page(keys_only=True)).rows == [Row(b"k", b"", stored.version, START_MS + 1000)]

    async def test_of_large_values_hold_fewer(self, tables: Tables) -> None:
        for number in range(5):
            await tables.put(b"%d" % number, bytes(3_000_000))
        page = await tables.page()
        assert [row.key for row in page.rows] == [b"0", b"1", b"2"]
        assert page.cursor == b"2"
        assert [row.key for row in (await tables.page(after=page.cursor)).rows] == [b"3", b"4"]


class TestEvents:
    async def test_tell_deadline_and_size(self, tables: Tables) -> None:
        await tables.put(b"k", b"12345", ttl_ms=1000)
        (event,) = await tables.events(1)
        assert (event.kind, event.namespace, event.table, event.queue, event.key) == (PUT, NAMESPACE, TABLE, "", b"k")
        assert (event.payload_bytes, event.expires_at_ms, event.value) == (5, START_MS + 1000, None)
        assert (event.job_id, event.rank, event.state, event.detail) == (0, 0, 0, "")

    async def test_carry_values_where_the_table_says_so(self, tables: Tables) -> None:
        carrying, silent = tables.siblings(2)
        await tables.update(carrying, events_carry_values=True)
        await tables.create(silent)
        offset = (await tables.events())[-1].offset
        await asyncio.gather(
            tables.put(b"1", b"one", table=carrying),
            tables.put(b"2", b"two", table=silent),
            tables.put(b"3", b"", table=carrying),
            tables.delete(b"1", table=carrying),
            tables.put(b"4", b"four", table=carrying),
        )
        await tables.put(b"5", b"five", table=silent)
        values = [(event.key, event.value) for event in await tables.events(offset)]
        assert values == [(b"1", b"one"), (b"2", None), (b"3", b""), (b"1", None), (b"4", b"four"), (b"5", None)]

    async def test_are_read_from_any_offset(self, tables: Tables) -> None:
        await tables.update(events_carry_values=True)
        await asyncio.gather(*(tables.put(b"%d" % number, b"%d" % number) for number in range(50)))
        everything = await tables.events()
        for after in (0, 2, 3, 30, 51, 52):
            answer = await tables.opened.store.read_events(tables.partition, after, 7)
            assert answer == (everything[after : after + 7], 52)

    async def test_are_read_by_an_older_core_as_it_knows_them(self, tables: Tables) -> None:
        await tables.update(events_carry_values=True)
        await tables.put(b"k", b"value")
        answer = await tables.opened.store.ask(tables.partition, "read_events", 0, 10)
        assert isinstance(answer, list)
        assert (len(answer) - 2) % 4 == 0
        assert answer[-4] == b"3-0"


class TestDamage:
    @pytest.mark.parametrize(
        ("command", "reason"),
        [
            (("HSET", b"k", b"short"), Reason.DAMAGED),
            (("HSET", b"k", bytes(16)), Reason.DAMAGED),
            (("HDEL", b"k"), Reason.ROW_NOT_FOUND),
        ],
    )
    async def test_of_one_row_is_told_and_no_other(
        self, tables: Tables, redis: RedisConnection, command: tuple[bytes | str, ...], reason: Reason
    ) -> None:
        await tables.put(b"k")
        await tables.put(b"other")
        tag = keys.partition_tag(tables.partition)
        number = redis.command("HGET", tag + ":table_names", keys.name_key(NAMESPACE, TABLE)).decode()
        redis.command(command[0], f"{tag}:t{number}:rows", *command[1:])
        damaged, fine = await asyncio.gather(tables.get(b"k"), tables.get(b"other"))
        assert reason_of(damaged) is reason
        assert fine.value == b"v"
        scanned = await tables.opened.do(tables.store.scan_rows, NAMESPACE, TABLE, b"", 10, None, False)
        assert reason_of(scanned) is Reason.DAMAGED

    @pytest.mark.parametrize("kind", ["rows", "keys", "expiring"])
    async def test_of_one_table_leaves_the_others_working(
        self, tables: Tables, redis: RedisConnection, kind: str
    ) -> None:
        other = tables.siblings(2)[1]
        await tables.put(b"k", ttl_ms=1000)
        await tables.put(b"k", table=other)
        tag = keys.partition_tag(tables.partition)
        number = redis.command("HGET", tag + ":table_names", keys.name_key(NAMESPACE, TABLE)).decode()
        redis.command("SET", f"{tag}:t{number}:{kind}", "x")
        before = await tables.events()
        damaged, fine = await asyncio.gather(
            tables.try_put(b"new", ttl_ms=10), tables.try_put(b"k", b"fine", table=other)
        )
        assert reason_of(damaged) is Reason.DAMAGED
        assert isinstance(fine, RowStored)
        assert told((await tables.events())[len(before) :]) == [(PUT, other, b"k")]


class TestLargeValues:
    async def test_in_events_are_read_in_portions(self, tables: Tables) -> None:
        await tables.update(events_carry_values=True)
        for number in range(6):
            await tables.put(b"%d" % number, bytes(3_000_000))
        seen: list[bytes] = []
        after, reads = 2, 0
        while after < 8:
            answer = await tables.opened.store.read_events(tables.partition, after, 1000)
            assert isinstance(answer, tuple)
            assert sum(len(event.value or b"") for event in answer[0]) <= 12_000_000
            seen += [event.key for event in answer[0]]
            after, reads = answer[0][-1].offset, reads + 1
        assert seen == [b"%d" % number for number in range(6)]
        assert reads == 2

    async def test_that_are_cut_short_are_damage(self, tables: Tables, redis: RedisConnection) -> None:
        await tables.update(events_carry_values=True)
        await tables.put(b"k", b"value")
        stream = keys.partition_tag(tables.partition) + ":events"
        ((entry, fields),) = redis.command("XREVRANGE", stream, "+", "-", "COUNT", 1)
        fields[-1] = b"val"
        redis.commands([("XDEL", stream, entry), ("XSETID", stream, "2-0"), ("XADD", stream, entry, *fields)])
        assert reason_of(await tables.opened.store.read_events(tables.partition, 0, 10)) is Reason.DAMAGED
