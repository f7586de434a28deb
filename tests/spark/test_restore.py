"""A table as it was at an instant: by offsets, deadlines and ends of tables; and back through a real core."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from quintet_spark.transforms.restore import Cut, NoSuchTableError, cut, of_table, restored

from tests.spark.log_frames import START, at, event_frame

START_MS = round(START.timestamp() * 1000)


def put(minute: float, key: bytes, value: bytes | None, **more: Any) -> dict[str, Any]:
    size = len(value) if value is not None else more.pop("size", 5)
    return row("row_put", minute, key=key, payload=value, payload_bytes=size, **more)


def row(kind: str, minute: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at(minute), "queue": None, "job_id": None, "table": "t", "payload_bytes": 0, **more}


def as_of(
    spark: SparkSession, rows: Iterable[dict[str, Any]], minute: float | None = None, through_offset: int | None = None
) -> tuple[dict[bytes, bytes | None], Cut]:
    """Key to value, and the cut."""
    events = event_frame(spark, rows)
    table_events = of_table(events, "default", "t")
    at_ms = None if minute is None else START_MS + round(minute * 60_000)
    where = cut(events, table_events, at_ms=at_ms, through_offset=through_offset)
    found = {bytes(each.key): each.value for each in restored(table_events, where).collect()}
    return {key: None if value is None else bytes(value) for key, value in found.items()}, where


CREATED = row("table_created", 0)


def test_the_last_write_of_a_key_counts(spark: SparkSession) -> None:
    rows = [
        CREATED,
        put(1, b"a", b"1"),
        put(2, b"a", b"2"),
        put(3, b"b", b"3"),
        row("row_deleted", 4, key=b"b"),
        put(5, b"c", b""),
        put(6, b"d", b"9", table="another"),
        put(7, b"e", b"9", namespace="another"),
    ]
    found, where = as_of(spark, rows)
    assert found == {b"a": b"2", b"c": b""}
    assert (where.since_offset, where.through_offset, where.is_whole, where.absent) == (1, 8, True, 0)


def test_an_instant_counts_what_was_written_up_to_it(spark: SparkSession) -> None:
    rows = [CREATED, put(1, b"a", b"1"), put(2, b"a", b"2"), row("row_deleted", 3, key=b"a")]
    assert as_of(spark, rows, minute=1.99)[0] == {b"a": b"1"}
    assert as_of(spark, rows, minute=2)[0] == {b"a": b"2"}
    assert as_of(spark, rows, minute=3)[0] == {}
    assert as_of(spark, rows, through_offset=2)[0] == {b"a": b"1"}


def test_offsets_decide_among_changes_of_one_instant(spark: SparkSession) -> None:
    rows = [CREATED, put(1, b"a", b"1"), row("row_deleted", 1, key=b"a"), put(1, b"a", b"3"), put(1, b"b", b"x")]
    assert as_of(spark, list(rows), minute=1)[0] == {b"a": b"3", b"b": b"x"}


def test_a_row_is_gone_from_its_deadline_on_though_its_event_came_later(spark: SparkSession) -> None:
    rows = [CREATED, put(1, b"a", b"1", expires_at=at(5)), row("row_expired", 6, key=b"a")]
    assert as_of(spark, rows, minute=4.99)[0] == {b"a": b"1"}
    assert as_of(spark, rows, minute=5)[0] == {}
    assert as_of(spark, rows, through_offset=2)[0] == {b"a": b"1"}


def test_a_deleted_table_is_gone_at_once_and_a_new_one_has_its_own_rows(spark: SparkSession) -> None:
    rows = [
        CREATED,
        put(1, b"a", b"1"),
        put(1, b"b", b"1"),
        row("table_deleted", 2),
        row("row_deleted", 3, key=b"a", detail="table deleted"),
        row("row_deleted", 4, key=b"b", detail="table deleted"),
        row("table_created", 5),
        put(6, b"b", b"2"),
    ]
    assert as_of(spark, rows, minute=1.5)[0] == {b"a": b"1", b"b": b"1"}
    for minute in (2, 3, 4.5):
        found, where = as_of(spark, rows, minute=minute)
        assert (found, where.exists) == ({}, False)
    found, where = as_of(spark, rows, minute=5)
    assert (found, where.exists) == ({}, True)
    found, where = as_of(spark, rows)
    assert (found, where.is_whole, where.absent) == ({b"b": b"2"}, True, 0)


def test_what_the_archive_does_not_hold_is_counted(spark: SparkSession) -> None:
    rows = [put(1, b"a", None), put(2, b"b", b"2"), put(2, b"c", None, size=0), {**put(3, b"d", b"4"), "offset": 9}]
    found, where = as_of(spark, rows)
    assert found == {b"a": None, b"b": b"2", b"c": b"", b"d": b"4"}
    assert (where.is_whole, where.absent) == (False, 5)


def test_a_table_nobody_has_heard_of(spark: SparkSession) -> None:
    with pytest.raises(NoSuchTableError):
        as_of(spark, [put(1, b"a", b"1", table="another")])
    with pytest.raises(NoSuchTableError):
        as_of(spark, [CREATED], minute=-1)
