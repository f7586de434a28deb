"""The geometry of charts: from numbers to points of an SVG path. The template draws; it stretches a box to any screen.

A box is 1000 wide and 100 high, y downwards. Lines keep their width when it is stretched, and text stays outside of it,
so that a chart is as readable on a phone as on paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quintet_spark.report.wording import count, instant

WIDTH, HEIGHT = 1000, 100
BUCKETS_MAX = 200
DAY_MS = 86_400_000
_BUCKETS_MS = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, DAY_MS)
_TICKS_MS = (
    15_000,
    60_000,
    300_000,
    900_000,
    1_800_000,
    3_600_000,
    10_800_000,
    21_600_000,
    43_200_000,
    DAY_MS,
    7 * DAY_MS,
)
_TICKS_MAX = 6


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where, in percent from the left or the bottom, and what it says."""

    percent: float
    label: str


@dataclass(frozen=True)
class Series:
    """One line: its name, its CSS class, its values (None: a gap), one for each time of the chart."""

    title: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart over time, ready to draw. `paths` has one path for each of `series`."""

    title: str
    description: str
    times_ms: Sequence[int]
    series: Sequence[Series]
    paths: Sequence[str]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]


def bucket_ms(span_ms: int, shortest_ms: int = 60_000) -> int:
    """The shortest usual stretch of time of which at most BUCKETS_MAX cover the span."""
    for candidate in _BUCKETS_MS:
        if candidate >= shortest_ms and span_ms / candidate <= BUCKETS_MAX:
            return candidate
    return math.ceil(span_ms / BUCKETS_MAX / DAY_MS) * DAY_MS


def filled(values: dict[int, float], step_ms: int, gap: float | None = 0) -> tuple[list[int], list[float | None]]:
    """All times from the first to the last, step by step, with `gap` where there is no value."""
    if not values:
        return [], []
    times = list(range(min(values), max(values) + 1, step_ms))
    return times, [values.get(each, gap) for each in times]


def chart(
    title: str, description: str, times_ms: Sequence[int], series: Sequence[Series], span_ms: tuple[int, int]
) -> Chart:
    """Lay out a chart whose x axis is span_ms (its two ends, epoch). The y axis begins at 0; all series share it."""
    top = nice_ceiling(max((value for line in series for value in line.values if value is not None), default=0))
    return Chart(
        title=title,
        description=description,
        times_ms=times_ms,
        series=series,
        paths=[path(times_ms, line.values, top, span_ms) for line in series],
        x_ticks=_x_ticks(*span_ms),
        y_ticks=[Tick(25 * quarter, _short(top * quarter / 4)) for quarter in (range(5) if top >= 4 else (0, 4))],
    )


def path(times_ms: Sequence[int], values: Sequence[float | None], top: float, span_ms: tuple[int, int]) -> str:
    """An SVG path through the values; a lone one is a dot."""
    first, last = span_ms
    parts: list[str] = []
    pen_down = False
    for at, value in zip(times_ms, values, strict=True):
        if value is None:
            pen_down = False
            continue
        x = WIDTH * (at - first) / (last - first) if last > first else WIDTH / 2
        y = HEIGHT * (1 - value / top)
        # A line to where it is already makes a round end, the dot.
        parts.append(f"L{x:.1f} {y:.2f}" if pen_down else f"M{x:.1f} {y:.2f}h0")
        pen_down = True
    return "".join(parts)


def nice_ceiling(value: float) -> float:
    """The next number upwards that reads well: 1, 2, 4, 5, 6, 8 times a power of ten; at least 1."""
    if value <= 1:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-12))


def _short(value: float) -> str:
    for factor, word in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if value >= factor:
            return f"{value / (1_000 if word == 'k' else factor):g}{word}"
    return count(int(value)) if value == int(value) else f"{value:g}"


def _x_ticks(first_ms: int, last_ms: int) -> list[Tick]:
    """Marks at whole hours or days, no more than a phone's width holds."""
    if first_ms == last_ms:
        return [Tick(50, instant(first_ms))]
    span = last_ms - first_ms
    step = next(
        (each for each in _TICKS_MS if span // each <= _TICKS_MAX), math.ceil(span / _TICKS_MAX / DAY_MS) * DAY_MS
    )
    ticks = range(-(-first_ms // step) * step, last_ms + 1, step)
    # The date where a day begins or nothing else does, the time of day elsewhere.
    shown = [_moment(each, step) for each in ticks]
    return [Tick(100 * (each - first_ms) / span, label) for each, label in zip(ticks, shown, strict=True)]


def _moment(at_ms: int, step_ms: int) -> str:
    if at_ms % DAY_MS == 0:
        return instant(at_ms)[5:10]
    return instant(at_ms)[11:] + (f":{at_ms // 1000 % 60:02}" if step_ms < 60_000 else "")
