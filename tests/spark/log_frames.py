"""Small frames of the logs' schemas, from the few columns that a test is about."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from quintet_spark.schemas import EVENTS, METRICS, TOTALS

START = datetime(2026, 3, 1, tzinfo=UTC)
Row = Mapping[str, Any]


def at(minutes: float) -> datetime:
    """The instant that many minutes after START."""
    return START + timedelta(minutes=minutes)


def event_frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Events; offsets in the order given, and whatever is not given as of a job of queue "work"."""
    common = {
        "partition": 0,
        "at": START,
        "namespace": "default",
        "queue": "work",
        "job_id": 1,
        "rank": 0,
        "attempt": 0,
    }
    whole = [{**common, "offset": offset, **row} for offset, row in enumerate(rows, start=1)]
    return spark.createDataFrame([tuple(row.get(name) for name in EVENTS.names) for row in whole], EVENTS)


def metric_frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Snapshots; offsets in the order given, and whatever is not given as of the empty queue "work"."""
    numbers = dict.fromkeys(("ready", "delayed", "leased", "dead", "oldest_ready_age_ms", *TOTALS), 0)
    common = {"partition": 0, "at": START, "kind": "queue", "namespace": "default", "name": "work", "interval_ms": 1000}
    whole = [{**common, **numbers, "offset": offset, **row} for offset, row in enumerate(rows, start=1)]
    return spark.createDataFrame([tuple(row.get(name) for name in METRICS.names) for row in whole], METRICS)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Every row as a dict, in order."""
    return [row.asDict(recursive=True) for row in frame.collect()]
