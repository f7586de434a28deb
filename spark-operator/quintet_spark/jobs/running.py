"""Streaming queries while they run: progress told, leftovers tidied, ended together and in order."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from quintet_kit.logs import get_logger

from quintet_spark.sinks.sink import Sink, SinkError

_LOOK_S = 0.25
_LOOK_ENDING_S = 0.05
_WORKER_LATE = "Python worker failed to connect back"
_RESTARTS_MAX = 5


class JobError(Exception):
    """A job failed; the text says which and why."""


@dataclass(slots=True)
class Running:
    """A query that was started, and where it writes to."""

    name: str
    begin: Callable[[], StreamingQuery]
    sink: Sink
    query: StreamingQuery = field(init=False)
    told: int = field(default=-1, init=False)
    """Up to which batch progress was told."""
    restarts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.query = self.begin()


@dataclass(frozen=True, slots=True)
class BatchDone:
    """Progress of one batch. `lag` is how many records the logs held beyond it when it was planned."""

    query: str
    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    lag: int
    late: int
    """Rows that came too late for their window and do not count."""


OnBatch = Callable[[BatchDone], None]


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Set by the first SIGTERM or SIGINT; the second ends the process at once, by which nothing is lost.

    To be entered when there is a Spark session: making one sets a handler of Spark's own."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        # Nothing else: whatever a handler does may wait for what the code it interrupts holds, a log's lock say.
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run_until(
    spark: SparkSession,
    running: Sequence[Running],
    stop: threading.Event,
    *,
    stop_ms_max: int,
    on_batch: OnBatch | None = None,
) -> None:
    """Return when all queries have ended by themselves, or were ended after `stop`. Raises `JobError` when one failed;
    the others are ended first."""
    tell = on_batch or log_batch
    try:
        watch(spark, running, stop.wait, tell)
    except JobError:
        stop_ms_max = 0
        raise
    finally:
        if stop.is_set():
            get_logger().info("stopping")
        end(spark, running, stop_ms_max, tell)
    _raise_failure(running)


def watch(spark: SparkSession, running: Sequence[Running], is_over: Callable[[float], bool], on_batch: OnBatch) -> None:
    """Tell progress until `is_over(seconds)`, which waits for so long at most, or until all have ended by themselves.

    The queries go on. Raises `JobError` when one failed."""
    is_active = True
    while is_active and not is_over(_LOOK_S):
        is_active = any(each.query.isActive for each in running)
        _look(spark, running, on_batch)
        for each in running:
            is_active = _begun_again(each) or is_active
        _raise_failure(running)


def end(spark: SparkSession, running: Sequence[Running], wait_ms: int, on_batch: OnBatch) -> None:
    """Stop the queries, each between two batches if that can be had within the time, else in the middle of one.

    A batch that was cut off is done anew, whole, at the next start."""
    deadline = time.monotonic() + wait_ms / 1000
    at_work = [(each, _last_trigger(each)) for each in running]
    while at_work:
        is_late = time.monotonic() >= deadline
        for each, before in tuple(at_work):
            if is_late or _is_between_batches(each, before):
                each.query.stop()
                at_work.remove((each, before))
        if at_work:
            time.sleep(_LOOK_ENDING_S)
    _look(spark, running, on_batch)


def _is_between_batches(each: Running, before: str | None) -> bool:
    """Whether no batch is under way but one that has only just begun: of batches that take longer than their interval
    one begins where the last ends."""
    query = each.query
    return not query.isActive or not query.status["isTriggerActive"] or _last_trigger(each) != before


def _last_trigger(each: Running) -> str | None:
    """When the batch began that was done last."""
    done = each.query.lastProgress
    return done["timestamp"] if done is not None else None


def _look(spark: SparkSession, running: Sequence[Running], tell: OnBatch) -> None:
    for each in running:
        fresh = [batch for batch in each.query.recentProgress if batch["batchId"] > each.told and batch["numInputRows"]]
        for batch in fresh:
            each.told = batch["batchId"]
            tell(_done(each.name, batch))
        if fresh:
            _tidy(spark, each)


def _tidy(spark: SparkSession, each: Running) -> None:
    try:
        removed = each.sink.tidy(spark)
    except (SinkError, PySparkException, ValueError) as error:
        get_logger().warning("leftovers_not_removed", query=each.name, error=str(error).splitlines()[0])
        return
    if removed:
        get_logger().info("leftovers_removed", query=each.name, files=removed)


def _done(name: str, batch: Any) -> BatchDone:
    operators = batch["stateOperators"]
    return BatchDone(
        query=name,
        batch=batch["batchId"],
        rows=batch["numInputRows"],
        rows_per_s=round(batch["processedRowsPerSecond"] or 0, 1),
        seconds=round(batch["durationMs"].get("triggerExecution", 0) / 1000, 3),
        lag=sum(_lag(source) for source in batch["sources"]),
        late=sum(operator["numRowsDroppedByWatermark"] for operator in operators),
    )


def _lag(source: Any) -> int:
    latest, end = (_offsets(source[name]) for name in ("latestOffset", "endOffset"))
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _offsets(told: object) -> dict[str, int]:
    read = json.loads(told) if isinstance(told, str) else told
    return read if isinstance(read, dict) else {}


def log_batch(done: BatchDone) -> None:
    """Progress as log lines."""
    log = get_logger()
    fields = {
        "query": done.query,
        "batch": done.batch,
        "rows": done.rows,
        "rows_per_s": done.rows_per_s,
        "seconds": done.seconds,
        "lag": done.lag,
    }
    log.info("batch_done", **fields)
    if done.late:
        log.warning("late_rows_not_counted", query=done.query, batch=done.batch, rows=done.late)


def _begun_again(each: Running) -> bool:
    """Whether the query had failed and was started again: Spark gives its Python worker 10 s to come up, and no setting
    changes that; a machine that is busy for a moment is no reason to end."""
    error = each.query.exception()
    if error is None or _WORKER_LATE not in str(error) or each.restarts == _RESTARTS_MAX:
        return False
    each.restarts += 1
    get_logger().warning("query_started_again", query=each.name, error=_cause(str(error)))
    each.query = each.begin()
    return True


def _raise_failure(running: Sequence[Running]) -> None:
    for each in running:
        error = each.query.exception()
        if error is not None:
            raise JobError(f"{each.name}: {_cause(str(error))}")


def _cause(text: str) -> str:
    """The line of a failed query's message that says why: the last error of Python's, else the first line."""
    errors = [line for line in text.splitlines() if "Error: " in line and not line.startswith((" ", "\t"))]
    return (errors[-1] if errors else text.splitlines()[0]).strip()
