"""The one way to a report: from the archive's tables to Parquet and a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone who knows Spark reads it

from quintet_spark.report import charts
from quintet_spark.report.files import write_text
from quintet_spark.report.findings import find
from quintet_spark.report.options import ReportOptions
from quintet_spark.report.page import RANKED_SHOWN, PageRows, render, shown_queues
from quintet_spark.transforms import capacity, report

PAGE = "index.html"
QUEUES_JUDGED_MAX = 5_000
"""Queues whose rows are taken together to judge them: the busiest. The page says so when there are more."""
DAYS_MAX = 400


@dataclass(frozen=True)
class WrittenReport:
    """Where a report lies, and what it says in short.

    page: path of the HTML page. tables: path of each Parquet table by its name.
    needs_action: one sentence each; empty when all is well.
    """

    page: str
    tables: dict[str, str]
    needs_action: list[str]


def write_report(
    spark: SparkSession,
    events: DataFrame,
    metrics: DataFrame,
    rollup: DataFrame | None,
    out: str,
    *,
    options: ReportOptions | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> WrittenReport:
    """Write the report on all of `events` and `metrics` (schemas EVENTS and METRICS) to the folder `out`.

    The caller narrows the frames to the days wanted. `out` is a path or an address that Spark can write to; what a
    report before left there is replaced. `rollup` is the archive's rollup, None when there is none: the chart of jobs
    is drawn from it when it tells of the same jobs. `progress` is told each step as a short sentence. Frames without
    rows make a report that says so.

    Tables: service_levels (queue and day), queues (queue), poison_jobs, backlog (queue and minute), forecast (queue).
    """
    options = options or ReportOptions()
    tables = _Tables(spark, out, progress)
    _write_tables(tables, events, metrics, options)
    progress("draw the page")
    rows = _page_rows(tables, events, metrics, rollup, options)
    page = f"{out.rstrip('/')}/{PAGE}"
    write_text(spark, page, render(rows, options))
    actions = find(rows.queues, rows.forecasts, rows.poison, options).actions
    return WrittenReport(page, tables.paths, [each.sentence for each in actions])


class _Tables:
    """The report's Parquet tables; what is read again is read from them, not counted twice."""

    def __init__(self, spark: SparkSession, out: str, progress: Callable[[str], None]) -> None:
        self._spark, self._out, self._progress = spark, out.rstrip("/"), progress
        self._frames: dict[str, DataFrame] = {}
        self.paths: dict[str, str] = {}

    def write(self, name: str, frame: DataFrame, step: str) -> DataFrame:
        self._progress(step)
        path = f"{self._out}/{name}"
        frame.write.mode("overwrite").parquet(path)
        self.paths[name] = path
        # Told the schema, Spark does not look into the files for it.
        self._frames[name] = self._spark.read.schema(frame.schema).parquet(path)
        return self._frames[name]

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]


def _write_tables(tables: _Tables, events: DataFrame, metrics: DataFrame, options: ReportOptions) -> None:
    target = options.target_wait_ms
    levels = report.service_levels(events, metrics, target_wait_ms=target)
    tables.write("service_levels", levels, "count by queue and day")
    whole = report.service_levels(events, metrics, target_wait_ms=target, by_day=False)
    tables.write("queues", report.ranked(whole), "count by queue")
    poison = report.poison_jobs(events, deliveries_min=options.poison_deliveries, jobs_max=options.poison_jobs_max)
    tables.write("poison_jobs", poison, "look for poison jobs")
    by_minute = tables.write("backlog", capacity.minutes(metrics), "follow the backlog")
    forecast = capacity.forecast(by_minute, window_ms=options.forecast_window_ms, length_max=options.length_max)
    tables.write("forecast", forecast, "forecast")


def _page_rows(
    tables: _Tables, events: DataFrame, metrics: DataFrame, rollup: DataFrame | None, options: ReportOptions
) -> PageRows:
    told, seen = _extents(events, metrics)
    instants = [each for each in (told["first"], told["last"], seen["first"], seen["last"]) if each is not None]
    span_ms = max(instants) - min(instants) if instants else 0
    bucket_ms, traffic_bucket_ms = charts.bucket_ms(span_ms), charts.bucket_ms(span_ms, shortest_ms=1_000)
    queues = _queue_rows(tables["queues"], options)
    overall = _rows(report.overall_levels(tables["queues"]))[0]
    forecasts = _rows(tables["forecast"].orderBy(F.desc("backlog"), *report.QUEUE), QUEUES_JUDGED_MAX)
    poison = _poison_rows(tables["poison_jobs"], options)
    traffic, source = _traffic(events, rollup, queues, traffic_bucket_ms)
    return PageRows(
        generated_at_ms=time.time_ns() // 1_000_000,
        first_at_ms=min(instants, default=None),
        last_at_ms=max(instants, default=None),
        events=told["number"],
        snapshots=seen["number"],
        overall=overall,
        days=_rows(report.overall_levels(tables["service_levels"], "day").orderBy(F.desc("day")), DAYS_MAX),
        queues=queues,
        queues_total=overall["queues"],
        busiest=_placed(queues, "traffic_rank", options.queues_shown),
        slowest=_placed(queues, "slow_rank", RANKED_SHOWN),
        failing=_placed(queues, "failing_rank", RANKED_SHOWN),
        poison=poison,
        poison_total=len(poison),
        forecasts=forecasts,
        bucket_ms=bucket_ms,
        traffic_bucket_ms=traffic_bucket_ms,
        traffic=traffic,
        traffic_source=source,
        **_backlogs(tables["backlog"], shown_queues(forecasts, options), bucket_ms),
    )


def _rows(frame: DataFrame, rows_max: int = 1) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.limit(rows_max).collect()]


def _queue_rows(queues: DataFrame, options: ReportOptions) -> list[dict[str, Any]]:
    shown = max(options.queues_shown, RANKED_SHOWN)
    places = ((F.col("traffic_rank"), QUEUES_JUDGED_MAX), (F.col("slow_rank"), shown), (F.col("failing_rank"), shown))
    wanted = reduce(Column.__or__, (F.coalesce(place <= last, F.lit(False)) for place, last in places))
    return _rows(queues.where(wanted).orderBy("traffic_rank"), QUEUES_JUDGED_MAX + 2 * shown)


def _placed(queues: list[dict[str, Any]], rank: str, last: int) -> list[dict[str, Any]]:
    placed = (row for row in queues if row[rank] is not None and row[rank] <= last)
    return sorted(placed, key=lambda row: row[rank])


def _poison_rows(poison: DataFrame, options: ReportOptions) -> list[dict[str, Any]]:
    ordered = poison.orderBy(F.desc("deaths"), F.desc("deliveries"), F.desc("last_at"), *report.QUEUE, "job_id")
    # More than are shown: the summary counts those that still exist.
    return _rows(ordered.withColumn("last_at_ms", F.unix_millis("last_at")), options.poison_jobs_max)


def _extents(*logs: DataFrame) -> list[dict[str, Any]]:
    """Of each log: number of records, first and last instant."""
    at = F.unix_millis("at")
    extents = (
        log.agg(
            F.lit(place).alias("place"), F.count("*").alias("number"), F.min(at).alias("first"), F.max(at).alias("last")
        )
        for place, log in enumerate(logs)
    )
    return _rows(reduce(DataFrame.unionByName, extents).orderBy("place"), len(logs))


def _traffic(
    events: DataFrame, rollup: DataFrame | None, queues: list[dict[str, Any]], bucket_ms: int
) -> tuple[dict[int, dict[str, Any]], str]:
    """Jobs over time, and where from: the rollup is quicker, but may end earlier or cover other days than events do."""
    if rollup is not None and bucket_ms >= capacity.MINUTE_MS:
        rolled = _by_bucket(report.rolled_activity(rollup, bucket_ms=bucket_ms))
        known = sum(row["arrivals"] + row["completions"] for row in rolled.values())
        told = sum(row["arrivals"] + row["completions"] for row in queues if row["counted_by"] == "events")
        if abs(known - told) <= 0.02 * told:
            return rolled, "rollup"
    return _by_bucket(report.activity(events, bucket_ms=bucket_ms)), "events"


def _by_bucket(frame: DataFrame) -> dict[int, dict[str, Any]]:
    return {row["bucket_at_ms"]: row for row in _rows(frame, 2 * charts.BUCKETS_MAX)}


def _backlogs(by_minute: DataFrame, queues: list[tuple[str, str]], bucket_ms: int) -> dict[str, Any]:
    """The backlog over time: of all queues together, and of each of some; the rest is summed up where it lies."""
    series = capacity.backlog_series(by_minute, bucket_ms=bucket_ms)
    wanted = ((F.col("namespace") == namespace) & (F.col("queue") == queue) for namespace, queue in queues)
    is_shown = reduce(Column.__or__, wanted, F.lit(False))
    whose = (F.when(is_shown, F.col(name)).alias(name) for name in report.QUEUE)
    sums = series.groupBy("bucket_at_ms", *whose).agg(F.sum("backlog").alias("backlog"))
    backlog: dict[int, float] = {}
    backlogs: dict[tuple[str, str], dict[int, float]] = {}
    for row in _rows(sums, (len(queues) + 1) * 2 * charts.BUCKETS_MAX):
        at_ms = row["bucket_at_ms"]
        backlog[at_ms] = backlog.get(at_ms, 0) + row["backlog"]
        if row["queue"] is not None:
            backlogs.setdefault((row["namespace"], row["queue"]), {})[at_ms] = row["backlog"]
    return {"backlog": backlog, "backlogs": backlogs}
