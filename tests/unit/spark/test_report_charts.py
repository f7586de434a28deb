"""The geometry of charts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_spark.report import charts

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (3, 4), (5, 5), (41, 50), (99, 100), (100, 100), (101, 200), (0.2, 1)]
)
def test_an_axis_ends_at_a_number_that_reads_well(value: float, top: float) -> None:
    assert charts.nice_ceiling(value) == top


@given(st.integers(min_value=0, max_value=20 * 365 * 24 * HOUR))
def test_any_span_has_no_more_buckets_and_ticks_than_are_drawn(span: int) -> None:
    assert span / charts.bucket_ms(span) <= charts.BUCKETS_MAX
    drawn = charts.chart("t", "d", [0, span], [charts.Series("s", "s", [0, 1])], (0, span))
    assert 1 <= len(drawn.x_ticks) <= 8
    assert all(0 <= tick.percent <= 100 for tick in drawn.x_ticks)


def test_a_line_goes_through_its_values() -> None:
    assert charts.path([0, 5, 10], [0, 10, 5], 10, (0, 10)) == "M0.0 100.00h0L500.0 0.00L1000.0 50.00"


def test_a_gap_lifts_the_pen_and_a_lone_value_is_a_dot() -> None:
    assert charts.path([0, 5, 10], [1, None, 1], 1, (0, 10)) == "M0.0 0.00h0M1000.0 0.00h0"
    assert charts.path([7], [1], 2, (7, 7)) == "M500.0 50.00h0"
    assert charts.path([], [], 1, (0, 0)) == ""


def test_what_is_missing_between_two_times_is_filled() -> None:
    assert charts.filled({0: 4, 2 * HOUR: 6}, HOUR) == ([0, HOUR, 2 * HOUR], [4, 0, 6])
    assert charts.filled({0: 4, 2 * HOUR: 6}, HOUR, gap=None)[1] == [4, None, 6]
    assert charts.filled({}, HOUR) == ([], [])


def test_ticks_are_at_whole_hours_and_name_the_day_where_it_begins() -> None:
    drawn = charts.chart("t", "d", [], [], (23 * HOUR, 47 * HOUR))
    assert [tick.label for tick in drawn.x_ticks] == ["01-02", "06:00", "12:00", "18:00"]
    assert drawn.x_ticks[0].percent == pytest.approx(100 / 24)


def test_a_short_time_is_told_to_the_second() -> None:
    assert charts.bucket_ms(60_000) == 60_000
    assert charts.bucket_ms(60_000, shortest_ms=1_000) == 1_000
    assert charts.bucket_ms(600_000, shortest_ms=1_000) == 5_000
    drawn = charts.chart("t", "d", [], [], (0, 60_000))
    assert [tick.label for tick in drawn.x_ticks] == ["01-01", "00:00:15", "00:00:30", "00:00:45", "00:01:00"]
