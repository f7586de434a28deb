"""The whole pipeline on one machine, to look at: a Quintet with a load, archive and rollup beside it, then a report."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from quintet_client import QuintetError
from quintet_kit.logs import get_logger

from quintet_spark.jobs import archive, report, rollup
from quintet_spark.jobs.own_quintet import OwnQuintetError, own_quintet
from quintet_spark.jobs.running import BatchDone, Running, end, run_until, stop_signals, watch
from quintet_spark.jobs.session import spark_session
from quintet_spark.jobs.settings import ReportSettings, SparkSettings, StreamSettings
from quintet_spark.jobs.synthetic_load import LoadThread, SyntheticLoad

WINDOW_S = 5
LATE_MS = 1_000
STANDSTILL_SECONDS_MAX = 120.0
"""A rollup that has told nothing for so long, on however slow a machine, is not waited for."""


class PipelineError(Exception):
    """It could not be shown; the text says why."""


class Pipeline:
    """One run of `seconds` with about `rate` jobs a second, in `folder` (empty: a new one)."""

    def __init__(self, settings: SparkSettings, seconds: int, folder: str | None, rate: int) -> None:
        self._settings = settings
        self._seconds = seconds
        self._folder = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="quintet-pipeline-"))
        self._rate = rate
        self._rows = 0
        self._started_at = time.monotonic()

    def run(self) -> str:
        """A sentence that says where the report lies. Raises `PipelineError`; Ctrl+C stops the load, and what has come
        together by then is reported."""
        if (self._folder / "lake").exists() or (self._folder / "data").exists():
            raise PipelineError(f"{self._folder} holds a lake or data of an earlier run; name a new folder")
        try:
            return self._run()
        except (OwnQuintetError, QuintetError) as error:
            raise PipelineError(str(error)) from None

    def _run(self) -> str:
        lake = str(self._folder / "lake")
        self._say("starting Quintet and Spark")
        shared = self._settings.model_dump() | {"spark_lake": lake}
        with own_quintet(self._folder) as endpoint:
            settings = StreamSettings(
                **shared,
                spark_endpoint=endpoint,
                spark_archive_interval_s=5,
                spark_rollup_interval_s=2,
                spark_rollup_window_s=WINDOW_S,
                spark_rollup_late_ms=LATE_MS,
                spark_stop_ms_max=60_000,
            )
            with spark_session(self._settings, "pipeline") as spark, stop_signals() as stop:
                self._stream(spark, settings, endpoint, stop)
                self._say("drawing the report")
                written = report.run(spark, ReportSettings(**shared))
        for sentence in written.needs_action:
            self._say(f"needs action: {sentence}")
        self._say(f"{self._rows} records read; everything is in {self._folder}")
        return f"Report: {written.page}"

    def _stream(self, spark: SparkSession, settings: StreamSettings, endpoint: str, stop: threading.Event) -> None:
        archiving, rolling = archive.start(spark, settings), rollup.start(spark, settings)
        running = [*archiving, *rolling]
        load = LoadThread(SyntheticLoad(endpoint, self._rate))
        self._say(f"load runs for {self._seconds} s: {self._rate} jobs a second over five queues, and two tables")
        try:
            with load:
                watch(spark, running, _until(stop, self._seconds, load.has_failed), self._tell)
            self._say(f"load ended with {load.jobs} jobs; the last windows close")
            closed = self._windows_closed(rolling[-1], stop)
            # What is still to come is archived at once, when the rollup has told all it will.
            end(spark, archiving, settings.spark_stop_ms_max, self._tell)
            watch(spark, rolling, closed, self._tell)
        finally:
            end(spark, running, settings.spark_stop_ms_max, self._tell)
        # What came after the archive's last batch.
        rest = archive.start(spark, settings.model_copy(update={"spark_once": True}))
        run_until(spark, rest, threading.Event(), stop_ms_max=settings.spark_stop_ms_max, on_batch=self._tell)

    def _windows_closed(self, rolled: Running, stop: threading.Event) -> Callable[[float], bool]:
        """Whether the rollup has told everything up to now. One that goes on will have: snapshots come every second."""
        closed_at = datetime.now(UTC) + timedelta(seconds=WINDOW_S)
        told, is_late = None, _until(stop, STANDSTILL_SECONDS_MAX)

        def closed(seconds: float) -> bool:
            nonlocal told, is_late
            before, told = told, _watermark(rolled)
            if told != before:
                is_late = _until(stop, STANDSTILL_SECONDS_MAX)
            return (told is not None and told >= closed_at) or is_late(seconds)

        return closed

    def _tell(self, done: BatchDone) -> None:
        if done.query == archive.EVENTS:
            self._rows += done.rows
        self._say(
            f"{done.query}: batch {done.batch}, {done.rows} rows, {done.rows_per_s:.0f} rows/s, {done.lag} behind"
        )

    def _say(self, sentence: str) -> None:
        get_logger().info("pipeline", at_s=round(time.monotonic() - self._started_at, 1), step=sentence)


def _watermark(rolled: Running) -> datetime | None:
    """Windows that end before it are told."""
    progress = rolled.query.lastProgress
    told = progress["eventTime"].get("watermark") if progress is not None else None
    return datetime.fromisoformat(told) if told is not None else None


def _until(
    stop: threading.Event, seconds: float, or_else: Callable[[], bool] = lambda: False
) -> Callable[[float], bool]:
    deadline = time.monotonic() + seconds
    return lambda wait_s: stop.wait(wait_s) or time.monotonic() >= deadline or or_else()
