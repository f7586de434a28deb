"""The metrics log as Spark reads it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from quintet.v1 import event_service_pb2 as wire
from quintet_spark.schemas import METRICS
from quintet_spark.source import register

from tests.support.core import running_core
from tests.support.event_log import partitions_of, put_everything
from tests.support.stack import CorePart, until

INTERVAL_MS = 100


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A core with queues and tables, of which snapshots have been written since."""
    with running_core(QUINTET_SNAPSHOT_INTERVAL_MS=str(INTERVAL_MS)) as core:
        put_everything(core.target)
        before = _last_offsets(core, wire.LOG_METRICS)
        busy = [each for each, last in _last_offsets(core, wire.LOG_EVENTS).items() if last]
        # None of them has more than eight queues and tables, each of which is written once an interval.
        until(
            lambda: all(_last_offsets(core, wire.LOG_METRICS)[each] > before[each] + 20 for each in busy),
            "snapshots are written",
        )
        yield core


def _last_offsets(core: CorePart, log: wire.Log.ValueType) -> dict[int, int]:
    return {held.partition: held.last_offset for held in partitions_of(core.target, log=log)}


def test_snapshots_tell_what_is_in_queues_tables_and_processes(spark: SparkSession, core: CorePart) -> None:
    register(spark)
    frame = spark.read.format("quintet").options(endpoint=core.target, stream="metrics").load()
    assert frame.schema == METRICS
    found = [row.asDict() for row in frame.orderBy("partition", "offset").collect()]
    latest = {(row["kind"], row["name"], row["process"]): row for row in found}
    queue, table = latest["queue", "wörk-0", None], latest["table", "values", None]
    assert (queue["namespace"], queue["enqueued_total"], queue["dequeued_total"]) == ("default", 40, 20)
    assert (queue["acknowledged_total"], queue["released_total"], queue["deleted_total"]) == (7, 7, 6)
    assert (queue["ready"], queue["leased"], queue["values"]) == (27, 0, None)
    assert (table["ready"], table["enqueued_total"], table["dequeued_total"]) == (19, 20, 1)
    core_itself = latest["process", None, "core"]
    assert core_itself["replica"]
    assert core_itself["values"]
    assert core_itself["ready"] is None
    places = [(row["partition"], row["offset"]) for row in found]
    assert len(set(places)) == len(places)
