"""The rollup job: both logs, by queue and window, into the lake."""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from quintet_spark.jobs.lake import Lake
from quintet_spark.jobs.reading import EVENTS_MAX, log_stream
from quintet_spark.jobs.running import Running
from quintet_spark.jobs.settings import StreamSettings
from quintet_spark.sinks.sink import Trigger
from quintet_spark.transforms.rollup import EVENT_COLUMNS, METRIC_COLUMNS, rollup

NAME = "rollup"


def start(spark: SparkSession, settings: StreamSettings) -> list[Running]:
    """One query over both logs; its consumer is `rollup`.

    A batch takes all that there is of both logs, so that the newest record of one is never far behind the other's: the
    watermark of both would take what is behind for late. The log's own cap bounds it.
    """
    lake = Lake(settings)
    events, metrics = (
        log_stream(spark, settings, log, consumer=NAME, events_max=EVENTS_MAX, schema=schema)
        for log, schema in (("events", EVENT_COLUMNS), ("metrics", METRIC_COLUMNS))
    )
    rolled = rollup(
        events,
        metrics,
        window_s=settings.spark_rollup_window_s,
        late_ms=settings.spark_rollup_late_ms,
    )
    sink = lake.rollup()
    trigger = Trigger(settings.spark_rollup_interval_s, settings.spark_once)
    # Windows that close together are few rows: one file.
    frame = rolled.repartition(1)
    begin = partial(sink.stream, frame, query_name=NAME, checkpoint=lake.checkpoint(NAME), trigger=trigger)
    return [Running(NAME, begin, sink)]
