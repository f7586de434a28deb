"""The archive's layout: every event under its day and namespace, and read again as it was."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.transforms.archive import (
    ARCHIVED_EVENTS,
    ARCHIVED_METRICS,
    archived_events,
    archived_metrics,
    events_of,
    in_namespace,
    metrics_of,
)

from tests.spark.log_frames import at, event_frame, metric_frame, rows_of

NAMESPACES = (
    "default",
    "",
    "007",
    "12.50",
    "true",
    "null",
    "2026-01-01",
    "a/b\\c",
    "..",
    "~tilde",
    "a=b&c%20d",
    "with space ",
    "\n\t\x01",
    "__HIVE_DEFAULT_PARTITION__",
    "_underscore",
    ".hidden",
    "ünïcode ☃",
    "x" * 255,
    "☃" * 85,
    "'\"*?[]{}#:",
)


def test_events_come_back_as_they_were_whatever_their_namespace(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"namespace": namespace, "job_id": job} for job, namespace in enumerate(NAMESPACES)]
    events = event_frame(spark, rows)
    stored = archived_events(events)
    assert stored.schema.names == ARCHIVED_EVENTS.names
    stored.write.partitionBy("date", "namespace").parquet(str(tmp_path / "events"))

    archive = spark.read.schema(ARCHIVED_EVENTS).parquet(str(tmp_path / "events"))

    again = events_of(archive).select(*EVENTS.names).orderBy("offset")
    assert rows_of(again) == rows_of(events)
    for job, namespace in enumerate(NAMESPACES):
        assert [row.job_id for row in in_namespace(archive, namespace).collect()] == [job], namespace


def test_a_plain_namespace_is_the_name_of_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    stored = archived_events(event_frame(spark, [{"namespace": "shop"}]))
    stored.write.partitionBy("date", "namespace").parquet(str(tmp_path / "events"))
    assert (tmp_path / "events" / "date=2026-03-01" / "namespace=shop").is_dir()
    assert stored.select("namespace_exact").first()[0] is None  # type: ignore[index]


def test_one_namespace_is_read_from_its_own_folder_alone(spark: SparkSession, tmp_path: Path) -> None:
    stored = archived_events(event_frame(spark, [{"namespace": "a"}, {"namespace": "b"}]))
    stored.write.partitionBy("date", "namespace").parquet(str(tmp_path / "events"))
    archive = spark.read.schema(ARCHIVED_EVENTS).parquet(str(tmp_path / "events"))
    plan = in_namespace(archive, "a")._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(namespace" in plan


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo", "UTC"])
def test_the_day_is_that_of_utc_in_any_time_zone(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    events = event_frame(spark, [{"at": at(-1 / 60_000)}, {"at": at(0)}, {"at": at(24 * 60 - 1 / 60_000)}])
    metrics = metric_frame(spark, [{"at": at(-1 / 60_000)}])
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        days = [str(row.date) for row in archived_events(events).orderBy("offset").collect()]
        assert days == ["2026-02-28", "2026-03-01", "2026-03-01"]
        assert [str(row.date) for row in archived_metrics(metrics).collect()] == ["2026-02-28"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_snapshots_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    metrics = metric_frame(spark, [{}, {"kind": "process", "namespace": None, "name": None, "values": {"a{b}": 1.5}}])
    archived_metrics(metrics).write.partitionBy("date").parquet(str(tmp_path / "metrics"))
    archive = spark.read.schema(ARCHIVED_METRICS).parquet(str(tmp_path / "metrics"))
    assert rows_of(metrics_of(archive).select(*METRICS.names).orderBy("offset")) == rows_of(metrics)
