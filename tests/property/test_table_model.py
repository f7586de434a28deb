"""The tables in Redis and their model in Python, side by side, through whatever comes.

How often: see tests/support/comparisons.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.event import Event, EventKind
from quintet_core.domain.job import NewJob
from quintet_core.domain.outcomes import Enqueued
from quintet_core.domain.table import Row, RowDelete, RowPage, RowPut, RowStored, Table, TableSettings, TtlChange
from quintet_core.storage.keys import name_key
from quintet_core.storage.link import into
from quintet_core.storage.table_store import TableStore

from tests.support.comparisons import compare
from tests.support.redis_server import RedisConnection, RedisServer, prepare
from tests.support.store import Clock, OpenStore, open_store
from tests.support.table_model import ModelRow, ModelTable, Put, TableModel, Told
from tests.support.table_replay import WITH_ITS_TABLE, TableReplay
from tests.support.table_state import TableState

PARTITIONS = 2
NAMESPACE = "n"
# "a" and "c" share partition 0; "b" is in partition 1.
NAMES = ["a", "c", "b"]

names = st.sampled_from(["a", "a", "a", "a", "c", "b"])
keys = st.sampled_from([b"", b"k", b"k", b"k", b"ka", b"kb", b"l", b"\xff", b"\xff\xff", b"k\x00"])
prefixes = st.sampled_from([b"", b"", b"k", b"ka", b"\xff", b"z"])
values = st.sampled_from([b"", b"x", b"y" * 10, b"z" * 40])
picks = st.integers(0, 9)
batched = st.sampled_from([True, True, True, False])
mostly = st.sampled_from([True, True, True, False])
partitions = st.sampled_from([0, 0, 0, 1])
# What a put expects: nothing; no row; the version that the row has; that of some other row; one that never was.
expectations = st.sampled_from([None, None, None, None, "none", "current", "current", "other", "wrong"])
changes = st.sampled_from(
    [(TtlChange.KEEP, 0), (TtlChange.KEEP, 0), (TtlChange.CLEAR, 0), (TtlChange.SET, 1), (TtlChange.SET, 500),
     (TtlChange.SET, 1000), (TtlChange.SET, 60_000)]
)  # fmt: skip
all_settings = st.builds(
    TableSettings,
    rows_max=st.sampled_from([None, None, None, None, 0, 2, 4]),
    value_bytes_max=st.sampled_from([None, None, None, 0, 10]),
    events_carry_values=st.booleans(),
)

Check = Callable[[Any], None]
Wanted = tuple[bytes, bytes, tuple[TtlChange, int], str | None]


class TableComparison(RuleBasedStateMachine):
    """Operations go to both. Some are sent together, as one batch; then all their answers are compared."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.redis = RedisConnection(path)
        prepare(self.redis, PARTITIONS)
        self.clock = Clock(self.redis, PARTITIONS)
        self.models = [TableModel(number) for number in range(PARTITIONS)]
        self.replays = [TableReplay() for _ in range(PARTITIONS)]
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.opened: OpenStore = self.run(self.stack.enter_async_context(open_store(path, PARTITIONS)))
        self.store = TableStore(self.opened.pipeline, PARTITIONS)
        self.waiting: list[tuple[Callable[[Check], None], Check]] = []
        self.deleting: set[str] = set()
        """Names of tables whose deletion is waiting."""
        self._advance(0)

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()
        self.redis.close()

    def run(self, awaitable: Any) -> Any:
        async def whole() -> Any:
            return await awaitable

        return self.runner.run(whole())

    # --- sending and comparing

    def send(self, more: bool, submit: Callable[[Check], None], check: Check) -> None:
        """Submit one operation; unless there is more for its batch, send all and compare."""
        self.waiting.append((submit, check))
        if not more:
            self.flush()

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.deleting.clear()

        async def sending() -> list[Any]:
            loop = asyncio.get_running_loop()
            futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in waiting]
            for (submit, _), future in zip(waiting, futures, strict=True):
                submit(into(future))
            return [await future for future in futures]

        for answer, (_, check) in zip(self.run(sending()), waiting, strict=True):
            check(answer)

    def may_follow(self, name: str, create: bool, more: bool) -> bool:
        """Whether more may share the batch: not when rows of an earlier table go first, which takes several calls."""
        if not create:
            return more
        if name in self.deleting:
            self.flush()
        return more and name not in self.model_of(name).dropping

    def model_of(self, name: str) -> TableModel:
        found: TableModel = self.models[self.store.partition_of(NAMESPACE, name)]
        return found

    def _advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        for model in self.models:
            model.now = self.clock.now

    def expected_version(self, name: str, key: bytes, kind: str | None) -> int | None:
        """As known when the operation is sent."""
        table = self.model_of(name).tables.get(name)
        rows = table.rows if table else {}
        row = rows.get(key)
        if kind == "current" and row is not None:
            return row.version
        others = [other.version for at, other in sorted(rows.items()) if at != key]
        return {None: None, "none": 0, "current": None, "other": others[0] if others else 0, "wrong": 2**50}[kind]

    @staticmethod
    def refused(seen: Any, expected: Reason) -> None:
        assert isinstance(seen, Refusal), f"{seen} instead of {expected!r}"
        assert seen.reason is expected, seen

    def same_table(self, seen: Any, expected: ModelTable | Reason, *, settled: bool) -> None:
        if isinstance(expected, Reason):
            self.refused(seen, expected)
            return
        assert isinstance(seen, Table), seen
        assert (seen.namespace, seen.name, seen.settings) == (NAMESPACE, expected.name, expected.settings)
        model = self.model_of(expected.name)
        assert (seen.created_at_ms, seen.partition) == (expected.created_at_ms, model.partition)
        self.counted(seen.rows, model, expected, settled=settled)

    @staticmethod
    def counted(seen: int, model: TableModel, table: ModelTable, *, settled: bool) -> None:
        living = len(model.living(table))
        assert living <= seen <= (living if settled else len(table.rows))

    @staticmethod
    def same_row(seen: Any, key: bytes, expected: ModelRow, keys_only: bool = False) -> None:
        value = b"" if keys_only else expected.value
        assert seen == Row(key, value, expected.version, expected.expires_at_ms)

    def stored(self, seen: Any, expected: Put, model: TableModel) -> None:
        assert seen == RowStored(seen.version, expected.created, expected.row.expires_at_ms)
        self.versioned(seen.version, expected.row, model)

    def versioned(self, version: int, row: ModelRow, model: TableModel) -> None:
        """Later than anything seen in the log so far; the log will tell that it is the offset."""
        assert version > self.replays[model.partition].last_offset
        row.version = version

    @initialize(first=all_settings, rows=st.lists(st.tuples(keys, values), max_size=4))
    def begin(self, first: TableSettings, rows: list[tuple[bytes, bytes]]) -> None:
        self.create_table("a", first, False)
        for key, value in rows:
            self.put_row("a", (key, value, (TtlChange.SET, 60_000), None), True, True)

    # --- rows

    @rule(name=names, wanted=st.tuples(keys, values, changes, expectations), create=mostly, more=batched)
    def put_row(self, name: str, wanted: Wanted, create: bool, more: bool) -> None:
        more = self.may_follow(name, create, more)
        model, put = self.model_of(name), self.put_of(name, wanted)

        def check(seen: Any) -> None:
            expected = model.put(name, put, create)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            else:
                self.stored(seen, expected, model)

        self.send(more, lambda done: self.store.put_row(NAMESPACE, name, put, create, done), check)

    def put_of(self, name: str, wanted: Wanted) -> RowPut:
        key, value, (change, ttl_ms), expectation = wanted
        return RowPut(key, value, change, ttl_ms, self.expected_version(name, key, expectation))

    @rule(key=keys, value=values, change=changes, more=batched)
    def put(self, key: bytes, value: bytes, change: tuple[TtlChange, int], more: bool) -> None:
        """What put_row does most of the time."""
        self.put_row("a", (key, value, change, None), True, more)

    @rule(
        name=names,
        wanted=st.lists(
            st.tuples(keys, values, changes, expectations), min_size=1, max_size=5, unique_by=lambda one: one[0]
        ),
        deletes=st.lists(st.booleans(), min_size=5, max_size=5),
        create=mostly,
        more=batched,
    )
    def write_rows(self, name: str, wanted: list[Wanted], deletes: list[bool], create: bool, more: bool) -> None:
        more = self.may_follow(name, create, more)
        model = self.model_of(name)
        puts = [self.put_of(name, one) for one in wanted]
        writes = [
            RowDelete(put.key, put.expected_version) if deleted else put
            for put, deleted in zip(puts, deletes, strict=False)
        ]

        def check(seen: Any) -> None:
            expected = model.write(name, writes, create)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
                return
            assert len(seen) == len(expected), seen
            last = self.replays[model.partition].last_offset
            for version, made in zip(seen, expected, strict=True):
                if made is None:
                    assert version == 0
                    continue
                assert version > last
                last = version
                if isinstance(made, Put):
                    self.versioned(version, made.row, model)

        self.send(more, lambda done: self.store.write_rows(NAMESPACE, name, writes, create, done), check)

    @rule(name=names, key=keys, more=batched)
    def get_row(self, name: str, key: bytes, more: bool) -> None:
        def check(seen: Any) -> None:
            expected = self.model_of(name).row(name, key)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            else:
                self.same_row(seen, key, expected)

        self.send(more, lambda done: self.store.get_row(NAMESPACE, name, key, done), check)

    @rule(name=names, key=keys, expectation=expectations, more=batched)
    def delete_row(self, name: str, key: bytes, expectation: str | None, more: bool) -> None:
        version = self.expected_version(name, key, expectation)

        def check(seen: Any) -> None:
            expected = self.model_of(name).delete_row(name, key, version)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            else:
                self.same_row(seen, key, expected)

        self.send(more, lambda done: self.store.delete_row(NAMESPACE, name, key, version, done), check)

    @rule(pick=picks, more=batched)
    def remove(self, pick: int, more: bool) -> None:
        """What delete_row does most of the time."""
        self.delete_row("a", self.present(pick), None, more)

    @rule(pick=picks, value=values, change=changes, more=batched)
    def replace(self, pick: int, value: bytes, change: tuple[TtlChange, int], more: bool) -> None:
        """What put_row does to rows that are there."""
        self.put_row("a", (self.present(pick), value, change, None), True, more)

    def present(self, pick: int) -> bytes:
        """The key of a row of "a", if there is any."""
        table = self.models[0].tables.get("a")
        found = sorted(table.rows) if table else []
        return found[pick % len(found)] if found else b"k"

    @rule(name=names, prefix=prefixes, limit=st.sampled_from([1, 2, 100]), keys_only=st.booleans())
    def scan_rows(self, name: str, prefix: bytes, limit: int, keys_only: bool) -> None:
        self.flush()
        expected = self.model_of(name).scan(name, prefix)
        found: list[Row] = []
        cursor: bytes | None = None
        while True:
            page = self.run(self.opened.do(self.store.scan_rows, NAMESPACE, name, prefix, limit, cursor, keys_only))
            if isinstance(expected, Reason):
                self.refused(page, expected)
                return
            assert isinstance(page, RowPage), page
            found += page.rows
            if page.cursor is None:
                break
            assert (len(page.rows), page.cursor) == (limit, page.rows[-1].key)
            cursor = page.cursor
        assert [row.key for row in found] == [key for key, _ in expected]
        for row, (key, modelled) in zip(found, expected, strict=True):
            self.same_row(row, key, modelled, keys_only)

    # --- tables

    @rule(name=names, table_settings=all_settings, more=batched)
    def create_table(self, name: str, table_settings: TableSettings, more: bool) -> None:
        more = self.may_follow(name, True, more)
        self.send(
            more,
            lambda done: self.store.create_table(NAMESPACE, name, table_settings, done),
            lambda seen: self.same_table(seen, self.model_of(name).create(name, table_settings), settled=True),
        )

    @rule(name=names, table_settings=all_settings, more=batched)
    def update_table(self, name: str, table_settings: TableSettings, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.update_table(NAMESPACE, name, table_settings, done),
            lambda seen: self.same_table(seen, self.model_of(name).update(name, table_settings), settled=False),
        )

    @rule(name=names, more=batched)
    def get_table(self, name: str, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.get_table(NAMESPACE, name, done),
            lambda seen: self.same_table(seen, self.model_of(name).get(name), settled=True),
        )

    @rule(name=names, more=batched)
    def delete_table(self, name: str, more: bool) -> None:
        def check(seen: Any) -> None:
            model = self.model_of(name)
            expected = model.delete(name)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            else:
                self.counted(seen, model, expected, settled=False)

        self.deleting.add(name)
        self.send(more, lambda done: self.store.delete_table(NAMESPACE, name, done), check)

    @rule(prefix=st.sampled_from(["", "a"]), after=st.sampled_from([None, "a"]), limit=st.sampled_from([1, 100]))
    def list_tables(self, prefix: str, after: str | None, limit: int) -> None:
        self.flush()
        model = self.models[0]
        known = [name for name in sorted(model.tables) if name.startswith(prefix) and (after is None or name > after)]
        seen = self.run(self.store.list_tables(0, NAMESPACE, prefix, after, limit))
        assert [table.name for table in seen] == known[:limit]
        for table in seen:
            self.same_table(table, model.tables[table.name], settled=False)

    # --- beside them

    @rule(name=names, more=batched)
    def enqueue(self, name: str, more: bool) -> None:
        """Into the queue of the same name, which is another thing."""

        def check(seen: Any) -> None:
            assert isinstance(seen, Enqueued), seen

        jobs = [NewJob(b"job")]
        self.send(more, lambda done: self.opened.store.enqueue(NAMESPACE, name, jobs, True, done), check)

    @rule(by_ms=st.sampled_from([1, 499, 500, 1000, 60_000]))
    def time_passes(self, by_ms: int) -> None:
        self.flush()
        self._advance(by_ms)

    @rule(partition=partitions)
    def settle_due(self, partition: int) -> None:
        self.flush()
        assert self.run(self.opened.store.settle_due(partition, 100)) is False
        for rows in TableState(self.redis, partition).tables.values():
            assert not any(0 < row.expires_at_ms <= self.clock.now for row in rows.values())

    @rule(partition=partitions)
    def sweep(self, partition: int) -> None:
        self.flush()
        while more := self.run(self.opened.store.sweep(partition)):
            assert more is True
        assert more is False
        assert not TableState(self.redis, partition).dropping
        self.models[partition].dropping.clear()

    # --- what holds after every step

    @precondition(lambda self: not self.waiting)
    @invariant()
    def log_and_keys_tell_what_happened(self) -> None:
        self.the_log_tells_what_happened()
        self.the_keys_agree()

    def the_log_tells_what_happened(self) -> None:
        for model, replay in zip(self.models, self.replays, strict=True):
            events, last = self.run(self.opened.store.read_events(model.partition, replay.last_offset, 10_000))
            for event in events:
                assert event.offset == replay.last_offset + 1
                replay.play(event)
                if event.kind == EventKind.ROW_EXPIRED and _is_over(model, event):
                    del model.tables[event.table].rows[event.key]
            assert replay.last_offset == last
            foretold = [event for event in events if event.table and not _comes_when_it_comes(event)]
            assert Counter(map(_told, foretold)) == model.events
            model.events.clear()

    def the_keys_agree(self) -> None:
        for model, replay in zip(self.models, self.replays, strict=True):
            found = TableState(self.redis, model.partition)
            found.check()
            assert set(found.tables) == {name_key(NAMESPACE, name) for name in model.tables}
            for name, table in model.tables.items():
                rows = found.tables[name_key(NAMESPACE, name)]
                assert {key: tuple(row) for key, row in rows.items()} == {
                    key: (row.version, row.expires_at_ms, row.value) for key, row in table.rows.items()
                }
                assert {key: (row.version, row.expires_at_ms) for key, row in replay.tables[name].items()} == {
                    key: (row.version, row.expires_at_ms) for key, row in rows.items()
                }
            dropping = {name_key(NAMESPACE, name): rows for name, rows in replay.dropping.items() if rows}
            assert {name: set(rows) for name, rows in found.dropping.items()} == dropping


def _is_over(model: TableModel, event: Event) -> bool:
    """Whether the model still has the row that expired, and not a later one of its key."""
    table = model.tables.get(event.table)
    row = table.rows.get(event.key) if table else None
    return row is not None and 0 < row.expires_at_ms <= event.at_ms


def _comes_when_it_comes(event: Event) -> bool:
    return event.kind == EventKind.ROW_EXPIRED or event.detail == WITH_ITS_TABLE


def _told(event: Event) -> Told:
    return event.kind, event.table, event.key, event.expires_at_ms, event.payload_bytes, event.value


@pytest.mark.timeout(0)
def test_redis_and_the_model_agree_about_tables(redis_server: RedisServer) -> None:
    class OnThisServer(TableComparison):
        def __init__(self) -> None:
            super().__init__(redis_server.path)

    compare(OnThisServer)
