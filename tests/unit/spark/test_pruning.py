"""Filters of a query spare reading what cannot pass them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from quintet_spark.source.pruning import Bounds

EVERYTHING = Bounds()
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1500, tzinfo=UTC)
MOMENT_MS = 1_769_860_800_001


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(("partition",), 3)], Bounds(partitions=frozenset({3}))),
        ([In(("partition",), (3, 5)), In(("partition",), (5, 7))], Bounds(partitions=frozenset({5}))),
        ([LessThanOrEqual(("partition",), 1)], Bounds(partitions=frozenset({0, 1}))),
        ([GreaterThan(("offset",), 10), LessThan(("offset",), 20)], Bounds(offsets=(10, 20))),
        ([EqualTo(("offset",), 7)], Bounds(offsets=(7, 7))),
        ([GreaterThanOrEqual(("at",), MOMENT)], Bounds(at_ms=(MOMENT_MS, math.inf))),
        ([LessThan(("at",), MOMENT)], Bounds(at_ms=(-math.inf, MOMENT_MS))),
        ([EqualTo(("namespace",), "n")], Bounds(namespace="n")),
        ([EqualNullSafe(("namespace",), "n")], Bounds(namespace="n")),
    ],
)
def test_what_a_filter_says(filters: list[Filter], bounds: Bounds) -> None:
    assert Bounds.of_filters(filters) == bounds


@pytest.mark.parametrize(
    "each",
    [
        IsNotNull(("partition",)),
        Not(EqualTo(("partition",), 3)),
        Not(EqualTo(("namespace",), "n")),
        EqualTo(("partition",), None),
        EqualTo(("offset",), "7"),
        EqualTo(("at",), 5),
        EqualTo(("at", "part"), 5),
        EqualTo(("queue",), "work"),
        In(("namespace",), ("a", "b")),
    ],
)
def test_what_is_not_understood_spares_nothing(each: Filter) -> None:
    assert Bounds.of_filters([each]) == EVERYTHING
