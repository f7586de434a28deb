"""The Spark session of a job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from quintet_kit.environment import set_default_variable

from quintet_spark.jobs.settings import SparkSettings
from quintet_spark.source import register
from quintet_spark.workers import WORKER_CONF

_END_SECONDS_MAX = 30
_USUAL = {
    **WORKER_CONF,
    # Days are those of UTC, and instants in files are told as such.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch writes to a few folders at once: no need to sort its rows by folder first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # A third of what snappy makes of events, for the same time.
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.stopTimeout": "60s",
    # What Prometheus asks of a driver whose web interface is on: docs/monitoring.md.
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.metrics.namespace": "quintet",
    "spark.ui.prometheus.enabled": "true",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    # A batch of other frames than streams: small results need no large numbers of tasks.
    "spark.sql.adaptive.enabled": "true",
}
STREAM_SHUFFLES = 4
"""The state of a rollup is in so many parts, fixed by its checkpoint; queues are few and windows short."""
BATCH_SHUFFLES = 64
"""Of a report or a restore; Spark joins the small ones."""
_LOCAL = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def spark_session(settings: SparkSettings, name: str, *, shuffles: int = STREAM_SHUFFLES) -> Iterator[SparkSession]:
    """A session with the source `quintet`; at the end it is stopped, and its JVM with it.

    What spark-submit, or `spark_conf`, says wins over what is usual here.
    """
    set_default_variable("PYSPARK_PYTHON", sys.executable)
    set_default_variable("PYSPARK_DRIVER_PYTHON", sys.executable)
    session = SparkSession.builder.config(conf=_configured(settings, shuffles)).appName(f"quintet-{name}").getOrCreate()
    try:
        session.sparkContext.setLogLevel("ERROR" if settings.log_level == "error" else "WARN")
        register(session)
        yield session
    finally:
        end_session(session)


def _configured(settings: SparkSettings, shuffles: int) -> SparkConf:
    """Reads what spark-submit has set: in the JVM it started, where there is one."""
    if SparkContext._gateway is None and not settings.spark_master:
        set_default_variable("SPARK_LOCAL_IP", "127.0.0.1")
    set_default_variable("PYSPARK_SUBMIT_ARGS", f"--driver-memory {settings.spark_memory} pyspark-shell")
    SparkContext._ensure_initialized()
    conf = SparkConf()
    usual = {**_USUAL, "spark.sql.shuffle.partitions": str(shuffles)}
    if settings.spark_master:
        conf.set("spark.master", settings.spark_master)
    elif not conf.contains("spark.master"):
        usual |= _LOCAL
    for name, value in usual.items():
        conf.setIfMissing(name, value)
    # Spark's own shell would draw bars between the lines of our log; it has said so before anybody could object.
    conf.set("spark.ui.showConsoleProgress", "false")
    for pair in settings.spark_conf:
        name, _, value = pair.partition("=")
        conf.set(name, value)
    return conf


def end_session(session: SparkSession, seconds_max: float = _END_SECONDS_MAX) -> None:
    """Stop a session and what runs in it, and the JVM, which is killed where it takes longer than seconds_max.

    Raises subprocess.TimeoutExpired when it was killed."""
    for query in session.streams.active:
        query.stop()
    session.stop()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:  # a JVM that spark-submit started ends with this process
        return
    gateway.shutdown()
    SparkContext._gateway, SparkContext._jvm = None, None
    # It ends when its standard input does, and the Python workers that it started with it.
    process.stdin.close()
    try:
        process.wait(seconds_max)
    finally:
        process.kill()
        process.wait()
