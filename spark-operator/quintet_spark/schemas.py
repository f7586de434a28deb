"""The columns of the event log and of the metrics log, and the words that stand for their numbers.

An instant is a moment, not a wall clock: no session time zone changes what is read or written.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

EVENT_KINDS: dict[int, str] = {
    1: "job_enqueued",
    2: "job_dequeued",
    3: "job_acknowledged",
    4: "job_released",
    5: "job_lease_expired",
    6: "job_owner_closed",
    7: "job_extended",
    8: "job_deleted",
    9: "job_ready",
    10: "job_expired",
    11: "job_redriven",
    12: "job_dead_lettered",
    20: "queue_created",
    21: "queue_updated",
    22: "queue_deleted",
    23: "queue_paused",
    24: "queue_resumed",
    30: "row_put",
    31: "row_deleted",
    32: "row_expired",
    40: "table_created",
    41: "table_updated",
    42: "table_deleted",
}
"""EventKind by number: its name in lower case, without EVENT_KIND_."""

JOB_STATES: dict[int, str] = {1: "delayed", 2: "ready", 3: "leased", 4: "dead"}
"""JobState by number: the state of a job after the event."""

METRIC_KINDS: dict[int, str] = {1: "queue", 2: "table", 3: "process"}
"""MetricKind by number."""

TOTALS: tuple[str, ...] = (
    "enqueued_total",
    "dequeued_total",
    "acknowledged_total",
    "released_total",
    "lease_expired_total",
    "owner_closed_total",
    "extended_total",
    "deleted_total",
    "became_ready_total",
    "expired_total",
    "redriven_total",
    "dead_lettered_total",
    "died_total",
)
"""Events of a queue since it was made, by kind, in the order of a snapshot's numbers.

Of a table, enqueued are rows put, dequeued rows deleted, acknowledged rows expired."""


def _columns(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns])


EVENTS: StructType = _columns(
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("kind", StringType()),
    ("at", TimestampType()),
    ("namespace", StringType()),
    ("queue", StringType()),
    ("job_id", LongType()),
    ("rank", LongType()),
    ("attempt", IntegerType()),
    ("wait_ms", LongType()),
    ("service_ms", LongType()),
    ("payload_bytes", IntegerType()),
    ("state", StringType()),
    ("detail", StringType()),
    ("table", StringType()),
    ("key", BinaryType()),
    ("expires_at", TimestampType()),
    ("payload", BinaryType()),
)
"""One row is one event. (partition, offset) names it for ever.

`kind` is a word of EVENT_KINDS, `state` one of JOB_STATES (null: the job is gone, or the event is not of a job).
`queue` is null in events of tables and rows, `table` in all others, `job_id` and `rank` where no job is meant,
`key` where no row is. `payload` is the job's payload or the row's value where the event carries it."""

METRICS: StructType = _columns(
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("at", TimestampType()),
    ("kind", StringType()),
    ("namespace", StringType()),
    ("name", StringType()),
    ("interval_ms", LongType()),
    ("ready", LongType()),
    ("delayed", LongType()),
    ("leased", LongType()),
    ("dead", LongType()),
    ("oldest_ready_age_ms", LongType()),
    *((total, LongType()) for total in TOTALS),
    ("process", StringType()),
    ("replica", StringType()),
    ("values", MapType(StringType(), DoubleType(), valueContainsNull=True)),
)
"""One row is one snapshot. `kind` is a word of METRIC_KINDS; of a table, `ready` are its rows.

`process`, `replica` and `values` (series to number) are null but in snapshots of processes, where `namespace`, `name`
and the numbers after `interval_ms` are null."""
