"""Blocks of the event log become columns: what a plain reader reads record by record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from quintet.v1.event_pb2 import EventKind
from quintet_spark.schemas import EVENT_KINDS, EVENTS, JOB_STATES
from quintet_spark.source.events import EventColumns
from quintet_spark.source.layout import DamagedBlockError

from tests.support.plain_blocks import FIRST_TABLE, PlainEvent, block_of, event_rows

PARTITIONS = 16
NAMES = {
    1: ("default", "work"),
    2: ("other", "wörk"),
    70: ("default", ""),
    FIRST_TABLE: ("default", "rows"),
    FIRST_TABLE + 9: ("other", "work"),
}
ROW_KINDS, TABLE_KINDS = (30, 31, 32), (40, 41, 42)
OF_QUEUES = [number for number in NAMES if number < FIRST_TABLE]
OF_TABLES = [number for number in NAMES if number >= FIRST_TABLE]
JOB_KINDS = [kind for kind in EVENT_KINDS if kind < 30]

some_ms = st.integers(0, 1 << 40)
texts = st.sampled_from([b"", b"timed out", "näh".encode(), b"\xff\xfe broken", b"x" * 300])
bodies = st.none() | st.binary(max_size=40)
job_events = st.builds(
    lambda carried, state, **fields: PlainEvent(carried=carried, state=state + 64 * (carried is not None), **fields),
    kind=st.sampled_from([*JOB_KINDS, 27]),
    number=st.sampled_from(OF_QUEUES),
    sequence=st.integers(0, (1 << 53) // PARTITIONS - 1),
    rank=st.integers(0, (1 << 64) - 1),
    attempt=st.integers(0, (1 << 31) - 1),
    wait_ms=some_ms,
    service_ms=some_ms,
    payload_bytes=st.integers(0, 1 << 30),
    state=st.integers(0, 4),
    detail=texts,
    carried=bodies,
)
row_events = st.builds(
    lambda carried, gone, **fields: PlainEvent(carried=carried, state=1 if carried is not None else 2 * gone, **fields),
    kind=st.sampled_from(ROW_KINDS),
    number=st.sampled_from(OF_TABLES),
    rank=st.just(0) | st.integers(0, 1 << 45),
    payload_bytes=st.integers(0, 1 << 30),
    gone=st.booleans(),
    detail=st.binary(max_size=60),
    carried=bodies,
)
table_events = st.builds(PlainEvent, kind=st.sampled_from(TABLE_KINDS), number=st.sampled_from(OF_TABLES), detail=texts)
withheld = st.just(PlainEvent(kind=0, number=0))
any_entries = st.lists(
    st.tuples(some_ms, st.lists(job_events | row_events | table_events | withheld, min_size=1, max_size=6)), max_size=5
)
plain_entries = st.lists(
    st.tuples(
        some_ms,
        st.lists(
            st.builds(PlainEvent, kind=st.sampled_from(JOB_KINDS), number=st.sampled_from(OF_QUEUES)) | withheld,
            min_size=1,
            max_size=6,
        ),
    ),
    max_size=5,
)


def decoded(block: Any, *, partition: int = 3, with_carried: bool = True) -> list[dict[str, Any]]:
    columns = EventColumns(block, partition, PARTITIONS, with_carried=with_carried)
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    batch = pa.RecordBatch.from_arrays([columns.column(name) for name in EVENTS.names], schema=schema)
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


@given(entries=any_entries | plain_entries, first_offset=st.integers(1, 1 << 52), with_carried=st.booleans())
def test_a_block_is_what_a_plain_reader_reads(entries: Any, first_offset: int, with_carried: bool) -> None:
    block = block_of(first_offset, entries, NAMES, with_carried=with_carried)
    assert decoded(block, with_carried=with_carried) == event_rows(block, 3, PARTITIONS, with_carried=with_carried)


def test_every_kind_and_state_of_the_api_has_a_word() -> None:
    assert {number: f"EVENT_KIND_{word.upper()}" for number, word in EVENT_KINDS.items()} == {
        number: name for name, number in EventKind.items() if number
    }
    assert JOB_STATES == {1: "delayed", 2: "ready", 3: "leased", 4: "dead"}


def test_a_carried_payload_of_no_bytes_is_not_the_same_as_none() -> None:
    events = [
        PlainEvent(30, FIRST_TABLE, detail=b"a", state=1, carried=b""),
        PlainEvent(30, FIRST_TABLE, detail=b"b", state=0),
    ]
    assert [row["payload"] for row in decoded(block_of(1, [(0, events)], NAMES))] == [b"", None]


def test_withheld_events_count_and_are_not_shown() -> None:
    events = [PlainEvent(1, 1, sequence=1), PlainEvent(0, 0), PlainEvent(2, 1, sequence=1)]
    block = block_of(10, [(0, events)], NAMES)
    assert [row["offset"] for row in decoded(block)] == [10, 12]
    assert EventColumns(block, 0, PARTITIONS).total == 3


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    block = block_of(1, [(0, [PlainEvent(1, 1)])], NAMES)
    block.names[:] = []
    with pytest.raises(DamagedBlockError):
        EventColumns(block, 0, PARTITIONS).column("queue")
    assert EventColumns(block, 0, PARTITIONS).column("kind").to_pylist() == ["job_enqueued"]


class TestADamagedBlock:
    """Is refused, whatever is wrong with it."""

    def test_that_is_cut_short(self) -> None:
        block = block_of(1, [(0, [PlainEvent(1, 1, detail=b"why")])], NAMES)
        for size in range(1, len(block.records)):
            short = type(block)()
            short.CopyFrom(block)
            short.records = block.records[:size]
            with pytest.raises(DamagedBlockError):
                decoded(short)

    def test_that_has_no_time(self) -> None:
        block = block_of(1, [(0, [PlainEvent(1, 1)])], NAMES)
        block.entry_at_ms[:] = []
        with pytest.raises(DamagedBlockError):
            decoded(block)

    def test_whose_number_has_no_name(self) -> None:
        with pytest.raises(DamagedBlockError, match="does not name"):
            decoded(block_of(1, [(0, [PlainEvent(1, 5)])], NAMES))
        with pytest.raises(DamagedBlockError, match="does not name"):
            decoded(block_of(1, [(0, [PlainEvent(1, 5)])], {}))

    def test_that_carries_less_than_it_says(self) -> None:
        block = block_of(1, [(0, [PlainEvent(1, 1, state=66, carried=b"abc")])], NAMES)
        block.carried = b"ab"
        with pytest.raises(DamagedBlockError, match="carries"):
            decoded(block)
