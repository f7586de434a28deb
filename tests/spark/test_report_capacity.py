"""The forecast, by lines whose slope is known, by chance, and by DuckDB's least squares."""

import itertools
import math
import random
from typing import Any

import duckdb
import numpy as np
import pytest
from pyspark.sql import SparkSession
from quintet_spark.transforms import capacity

from tests.spark.log_frames import Row, at, metric_frame, rows_of

WINDOW_MS = 24 * capacity.HOUR_MS


def forecasts(spark: SparkSession, rows: list[Row], length_max: int | None = None) -> dict[str, dict[str, Any]]:
    by_minute = capacity.minutes(metric_frame(spark, rows))
    found = capacity.forecast(by_minute, window_ms=WINDOW_MS, length_max=length_max)
    return {row["queue"]: row for row in rows_of(found)}


def line(name: str, start: int, each: int, minutes: int = 60) -> list[Row]:
    """A queue whose backlog grows by `each` a minute; 60 arrive in each minute."""
    return [
        {
            "name": name,
            "at": at(minute),
            "ready": start + each * minute,
            "enqueued_total": 60 * minute,
            "acknowledged_total": (60 - each) * minute,
        }
        for minute in range(minutes)
    ]


def test_straight_lines_are_told_to_the_hour(spark: SparkSession) -> None:
    rows = [*line("up", 100, 2), *line("down", 1_000, -5), *line("flat", 7, 0), *line("none", 0, 0)]
    found = forecasts(spark, rows, length_max=818)
    assert {name: row["verdict"] for name, row in found.items()} == {
        "up": "growing",
        "down": "draining",
        "flat": "steady",
        "none": "empty",
    }
    up, down = found["up"], found["down"]
    assert (up["points"], up["backlog"], up["arrival_rate"]) == (60, 218, 1.0)
    assert [up["slope"], up["slope_low"], up["slope_high"]] == pytest.approx([120, 120, 120])
    assert up["fit_at_end"] == pytest.approx(218)
    # From 218 to 818 by 120 an hour; from 705 to none by 300 an hour.
    assert up["reached_in_hours"] == pytest.approx(5)
    assert down["reached_in_hours"] == pytest.approx(705 / 300)
    assert found["flat"]["reached_in_hours"] is None
    assert forecasts(spark, rows)["up"]["reached_in_hours"] is None


def test_utilisation_measures_arrivals_by_what_busy_workers_do(spark: SparkSession) -> None:
    found = forecasts(spark, [*line("busy", 100, 2), *line("idle", 0, 0)])
    assert found["busy"]["capacity_rate"] == pytest.approx(58 / 60)
    assert found["busy"]["utilisation"] == pytest.approx(60 / 58)
    # Nothing ever waited, so nobody knows what its workers could do.
    assert (found["idle"]["capacity_rate"], found["idle"]["utilisation"]) == (None, None)


def test_a_queue_without_workers_has_no_utilisation(spark: SparkSession) -> None:
    found = forecasts(spark, line("left", 100, 60))
    assert (found["left"]["capacity_rate"], found["left"]["utilisation"]) == (0.0, None)
    assert found["left"]["verdict"] == "growing"


def test_too_few_minutes_are_said_to_be_too_few(spark: SparkSession) -> None:
    found = forecasts(spark, line("new", 0, 5, minutes=capacity.POINTS_MIN - 1))
    assert found["new"]["verdict"] == "not enough data"
    assert found["new"]["slope"] is None
    assert forecasts(spark, line("new", 0, 5, minutes=capacity.POINTS_MIN))["new"]["verdict"] == "growing"


def test_a_single_snapshot_is_not_enough_and_no_error(spark: SparkSession) -> None:
    found = forecasts(spark, line("once", 5, 0, minutes=1))
    assert (found["once"]["verdict"], found["once"]["arrival_rate"]) == ("not enough data", None)
    assert forecasts(spark, []) == {}


def test_a_queue_that_went_silent_is_gone(spark: SparkSession) -> None:
    found = forecasts(spark, [*line("deleted", 100, 2, minutes=40), *line("there", 1, 0)])
    assert found["deleted"]["verdict"] == "gone"
    assert found["there"]["verdict"] == "steady"


def test_a_queue_made_anew_counts_from_nothing(spark: SparkSession) -> None:
    rows: list[Row] = [
        {"at": at(0), "enqueued_total": 1_000},
        {"at": at(1), "enqueued_total": 1_060},
        {"at": at(2), "enqueued_total": 3},
        {"at": at(3), "enqueued_total": 33},
    ]
    by_minute = rows_of(capacity.minutes(metric_frame(spark, rows)).orderBy("minute_at_ms"))
    assert [row["arrivals"] for row in by_minute] == [None, 60, None, 30]
    assert forecasts(spark, rows)["work"]["arrival_rate"] == pytest.approx(90 / 120)


def test_what_lies_before_the_window_is_not_looked_at(spark: SparkSession) -> None:
    rows: list[Row] = [
        *line("work", 0, 100, minutes=60),
        *({"at": at(60 + minute), "ready": 3} for minute in range(60)),
    ]
    by_minute = capacity.minutes(metric_frame(spark, rows))
    (found,) = rows_of(capacity.forecast(by_minute, window_ms=60 * capacity.MINUTE_MS))
    assert (found["points"], found["verdict"]) == (60, "steady")


def plain_least_squares_sees_a_trend(backlogs: list[int]) -> bool:
    """Whether the slope is off zero by two standard errors, as if each minute were a new throw of dice."""
    x, y = np.arange(len(backlogs)), np.array(backlogs)
    slope, intercept = np.polyfit(x, y, 1)
    error = math.sqrt(((y - intercept - slope * x) ** 2).sum() / (len(x) - 2) / ((x - x.mean()) ** 2).sum())
    return bool(abs(slope) > 1.96 * error)


def test_a_wandering_backlog_is_called_a_trend_far_less_often_than_by_plain_least_squares(spark: SparkSession) -> None:
    chance = random.Random(3)
    walks: dict[str, list[int]] = {}
    for name in range(100):
        steps = (chance.randint(-20, 20) for _ in range(240))
        walks[str(name)] = list(itertools.accumulate(steps, initial=1_000))
    rows: list[Row] = [
        {"name": name, "at": at(minute), "ready": backlog}
        for name, walk in walks.items()
        for minute, backlog in enumerate(walk)
    ]
    found = forecasts(spark, rows)
    assert sum(plain_least_squares_sees_a_trend(walk) for walk in walks.values()) >= 85
    assert sum(row["verdict"] in ("growing", "draining") for row in found.values()) <= 40


def test_a_noisy_trend_is_found_and_its_interval_holds_the_truth(spark: SparkSession) -> None:
    chance = random.Random(5)
    rows: list[Row] = []
    for name in range(40):
        rows += [
            {"name": f"{name}", "at": at(minute), "ready": 200 + 2 * minute + chance.randint(-30, 30)}
            for minute in range(240)
        ]
    found = forecasts(spark, rows).values()
    assert all(row["verdict"] == "growing" for row in found)
    assert sum(row["slope_low"] <= 120 <= row["slope_high"] for row in found) >= 34


def test_the_line_is_the_one_duckdb_draws(spark: SparkSession) -> None:
    chance = random.Random(1)
    rows: list[Row] = []
    for name in ("a", "b", "c"):
        rows += [
            {"name": name, "at": at(minute + chance.random()), "ready": chance.randrange(1_000)} for minute in range(90)
        ]
    metrics = metric_frame(spark, rows)
    by_minute = capacity.minutes(metrics).toArrow()  # noqa: F841  # read by name in the query
    drawn = duckdb.sql("""
        SELECT queue, regr_slope(backlog, x), regr_intercept(backlog, x), regr_count(backlog, x)
        FROM (SELECT *, (at_ms - max(at_ms) OVER ()) / 3600000.0 AS x FROM by_minute) GROUP BY queue
    """)
    assert drawn is not None
    found = {row["queue"]: row for row in rows_of(capacity.forecast(capacity.minutes(metrics), window_ms=WINDOW_MS))}
    for queue, slope, intercept, points in drawn.fetchall():
        at_end = (found[queue]["as_of_ms"] - max(row["as_of_ms"] for row in found.values())) / capacity.HOUR_MS
        assert found[queue]["slope"] == pytest.approx(slope)
        assert found[queue]["fit_at_end"] == pytest.approx(intercept + slope * at_end)
        assert found[queue]["points"] == points
        assert found[queue]["slope_low"] < slope < found[queue]["slope_high"]
        assert math.isfinite(found[queue]["slope_high"])


def test_the_backlog_over_time_is_the_last_of_each_stretch(spark: SparkSession) -> None:
    by_minute = capacity.minutes(metric_frame(spark, line("work", 0, 1, minutes=120)))
    found = rows_of(capacity.backlog_series(by_minute, bucket_ms=capacity.HOUR_MS))
    assert [row["backlog"] for row in found] == [59, 119]
