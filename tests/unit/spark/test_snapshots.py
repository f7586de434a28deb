"""Blocks of the metrics log become columns: what a plain reader reads record by record."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from quintet_spark.schemas import METRICS
from quintet_spark.source.layout import DamagedBlockError
from quintet_spark.source.snapshots import SnapshotColumns

from tests.support.plain_blocks import FIRST_TABLE, PlainSnapshot, block_of, snapshot_rows

NAMES = {1: ("default", "work"), 2: ("other", "wörk"), FIRST_TABLE: ("default", "rows")}
numbers = st.lists(st.integers(0, (1 << 63) - 1), min_size=21, max_size=21)
series = st.dictionaries(st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False), max_size=5)
queues = st.builds(PlainSnapshot, kind=st.just(1), number=st.sampled_from([1, 2]), numbers=numbers)
tables = st.builds(PlainSnapshot, kind=st.just(2), number=st.just(FIRST_TABLE), numbers=numbers)
processes = st.builds(
    lambda values, numbers: PlainSnapshot(3, 0, numbers, _told(values)), values=series, numbers=numbers
)
withheld = st.just(PlainSnapshot(0, 0))
any_entries = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.lists(queues | tables | processes | withheld, min_size=1, max_size=5)),
    max_size=4,
)


def _told(values: Any) -> bytes:
    return json.dumps({"process": "core", "replica": "r-1", "values": values}).encode()


def decoded(block: Any) -> list[dict[str, Any]]:
    columns = SnapshotColumns(block, 3)
    schema = to_arrow_schema(METRICS, timezone="UTC")
    batch = pa.RecordBatch.from_arrays([columns.column(name) for name in METRICS.names], schema=schema)
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


@given(entries=any_entries, first_offset=st.integers(1, 1 << 52))
def test_a_block_is_what_a_plain_reader_reads(entries: Any, first_offset: int) -> None:
    block = block_of(first_offset, entries, NAMES)
    assert decoded(block) == snapshot_rows(block, 3)


def test_a_value_that_is_no_number_is_null() -> None:
    detail = _told({"a": "x", "b": None, "c": 2})
    rows = decoded(block_of(1, [(0, [PlainSnapshot(3, 0, detail=detail)])], {}))
    assert rows[0]["values"] == [("a", None), ("b", None), ("c", 2.0)]


@pytest.mark.parametrize("detail", [b"", b"{", b"[]", b'{"values": 3}'])
def test_a_process_that_is_no_object_is_damage(detail: bytes) -> None:
    with pytest.raises(DamagedBlockError):
        decoded(block_of(1, [(0, [PlainSnapshot(3, 0, detail=detail)])], {}))
