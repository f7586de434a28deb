"""What filters of a query say about where in the log its records are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from quintet_spark.source.link import Link
from quintet_spark.source.position import Offsets

_PARTITIONS_MAX = 1 << 16
Interval = tuple[float, float]
"""Least and greatest value, both included."""


@dataclass
class Bounds:
    """Where records are that may pass: everything, at first.

    `partitions` None: any. `offsets` and `at_ms`: the interval in which they are. `namespace` "": any.
    """

    partitions: frozenset[int] | None = None
    offsets: Interval = (-math.inf, math.inf)
    at_ms: Interval = (-math.inf, math.inf)
    namespace: str = ""

    @classmethod
    def of_filters(cls, filters: Iterable[Filter]) -> Bounds:
        """Of filters that must all hold. What none of them bounds, and what is not understood, is left as it is."""
        bounds = cls()
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            if len(attribute) == 1:
                bounds._take(attribute[0], each)
        return bounds

    def narrowed(self, starts: Offsets, ends: Offsets, link: Link) -> tuple[Offsets, Offsets]:
        """The same way, without what cannot pass: of the partitions that remain."""
        low, high = self.offsets
        after_ms, through_ms = self.at_ms
        young = link.offsets_before(int(after_ms)) if math.isfinite(after_ms) and after_ms > 0 else {}
        old = link.offsets_before(int(through_ms) + 1) if math.isfinite(through_ms) and through_ms >= 0 else {}
        chosen = [each for each in ends if self.partitions is None or each in self.partitions]
        return (
            {each: int(max(starts[each], low - 1, young.get(each, starts[each]))) for each in chosen},
            {each: int(min(ends[each], high, old.get(each, ends[each]))) for each in chosen},
        )

    def _take(self, column: str, each: Filter) -> None:
        if column == "namespace" and isinstance(each, EqualTo | EqualNullSafe) and isinstance(each.value, str):
            self.namespace = each.value
        elif column == "partition":
            self._choose(each)
        elif column == "offset":
            self.offsets = _narrowed(self.offsets, _interval(each, _whole))
        elif column == "at":
            self.at_ms = _narrowed(self.at_ms, _interval(each, _ms))

    def _choose(self, each: Filter) -> None:
        if isinstance(each, In):
            chosen = frozenset(value for value in each.value if isinstance(value, int))
        else:
            low, high = _interval(each, _whole)
            if low == -math.inf and high == math.inf:
                return
            chosen = frozenset(range(int(max(low, 0)), int(min(high, _PARTITIONS_MAX)) + 1))
        self.partitions = chosen if self.partitions is None else self.partitions & chosen


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ms(value: Any) -> int | None:
    """Of an instant, in epoch milliseconds, rounded down: an interval of them may be too large by one."""
    if not isinstance(value, datetime):
        return None
    return math.floor((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)


def _interval(each: Filter, number: Callable[[Any], int | None]) -> Interval:
    """That a filter leaves; everything when it says nothing about that. It is not too small, but may be too large."""
    value = number(getattr(each, "value", None))
    if value is None:
        return (-math.inf, math.inf)
    if isinstance(each, EqualTo | EqualNullSafe):
        return (value, value)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return (value, math.inf)
    if isinstance(each, LessThan | LessThanOrEqual):
        return (-math.inf, value)
    return (-math.inf, math.inf)


def _narrowed(one: Interval, other: Interval) -> Interval:
    return (max(one[0], other[0]), min(one[1], other[1]))
