"""The report job: from the lake to a page that a person can read, and its tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from quintet_kit.logs import get_logger

from quintet_spark.jobs.lake import Lake
from quintet_spark.jobs.settings import ReportSettings
from quintet_spark.report.options import ReportOptions
from quintet_spark.report.write import WrittenReport, write_report
from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.sinks.sink import SinkError
from quintet_spark.transforms.archive import events_of, metrics_of

FOLDER = "report"


def run(spark: SparkSession, settings: ReportSettings) -> WrittenReport:
    """Write the report on what the lake holds of the days wanted. Raises `SinkError` when there is no archive."""
    lake = Lake(settings)
    events = _days(events_of(lake.events().read(spark)), settings).select(*EVENTS.names)
    metrics = _days(metrics_of(lake.metrics().read(spark)), settings).select(*METRICS.names)
    options = ReportOptions(
        target_wait_ms=settings.spark_report_target_wait_ms,
        target_share=settings.spark_report_target_share,
        length_max=settings.spark_report_length_max,
    )
    out = settings.spark_report or lake.path(FOLDER)
    return write_report(
        spark, events, metrics, _rolled(spark, lake, settings), out, options=options, progress=_tell_step
    )


def _rolled(spark: SparkSession, lake: Lake, settings: ReportSettings) -> DataFrame | None:
    try:
        return _days(lake.rollup().read(spark), settings)
    except SinkError:
        return None


def _days(frame: DataFrame, settings: ReportSettings) -> DataFrame:
    first = settings.spark_report_from
    if settings.spark_report_days is not None:
        first = datetime.now(UTC).date() - timedelta(days=settings.spark_report_days - 1)
    if first is not None:
        frame = frame.where(F.col("date") >= F.lit(first))
    if settings.spark_report_through is not None:
        frame = frame.where(F.col("date") <= F.lit(settings.spark_report_through))
    return frame


def _tell_step(step: str) -> None:
    get_logger().info("report_step", step=step)
