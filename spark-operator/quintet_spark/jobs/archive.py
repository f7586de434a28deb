"""The archive job: both logs, record by record, into the lake."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from quintet_spark.jobs.lake import Lake
from quintet_spark.jobs.reading import log_stream
from quintet_spark.jobs.running import Running
from quintet_spark.jobs.settings import StreamSettings
from quintet_spark.sinks.sink import Trigger
from quintet_spark.transforms.archive import archived_events, archived_metrics

NAME = "archive"
EVENTS, METRICS = "archive-events", "archive-metrics"


def start(spark: SparkSession, settings: StreamSettings) -> list[Running]:
    """Two queries, one for each log; their consumer is `archive`."""
    lake = Lake(settings)
    trigger = Trigger(settings.spark_archive_interval_s, settings.spark_once)
    started: list[Running] = []
    for query, log, sink, archived in (
        (EVENTS, "events", lake.events(), archived_events),
        (METRICS, "metrics", lake.metrics(), archived_metrics),
    ):
        read = log_stream(spark, settings, log, consumer=NAME, events_max=settings.spark_archive_events_max)
        frame = _few_files(archived(read), settings, spark)
        begin = partial(sink.stream, frame, query_name=query, checkpoint=lake.checkpoint(query), trigger=trigger)
        started.append(Running(query, begin, sink))
    return started


def _few_files(frame: DataFrame, settings: StreamSettings, spark: SparkSession) -> DataFrame:
    """One task reads several partitions of the log and writes one file in each folder, without moving a row."""
    return frame.coalesce(settings.spark_archive_files or spark.sparkContext.defaultParallelism)
