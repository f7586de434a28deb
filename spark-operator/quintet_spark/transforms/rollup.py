"""The rollup: what each queue did and how full it was, for each minute (or any other window).

Both logs are needed. Events say what happened; snapshots say how deep queues were, and that time goes on while nothing
happens: a window closes when the watermark has passed its end, and an idle queue writes no events to move it.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.transforms.archive import utc_date

ACCURACY = 10_000
"""Of percentiles: the rank of what is told is off by at most two in so many, and not at all for half as many values."""
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

COUNTED = (
    "job_enqueued",
    "job_dequeued",
    "job_acknowledged",
    "job_released",
    "job_lease_expired",
    "job_owner_closed",
    "job_extended",
    "job_deleted",
    "job_ready",
    "job_expired",
    "job_redriven",
    "job_dead_lettered",
)
"""Kinds that have a column of their own, without "job_"."""
ARRIVALS = ("job_enqueued",)
DEPARTURES = ("job_acknowledged", "job_deleted", "job_expired", "job_dead_lettered")
"""Kinds after which a job is no longer in its queue."""
STATES = ("ready", "delayed", "leased", "dead")

FOLDERS = ("date",)
EVENT_COLUMNS = StructType(
    [
        EVENTS[name]
        for name in ("offset", "kind", "at", "namespace", "queue", "attempt", "wait_ms", "service_ms", "state")
    ]
)
"""What is read of EVENTS; more does no harm."""
METRIC_COLUMNS = StructType(
    [METRICS[name] for name in ("offset", "at", "kind", "namespace", "name", *STATES, "oldest_ready_age_ms")]
)


def _fields(names: tuple[str, ...], kind: DataType) -> list[StructField]:
    return [StructField(name, kind) for name in names]


def _times(name: str) -> list[StructField]:
    return [
        *_fields((f"{name}_count", f"{name}_ms_sum", f"{name}_ms_max"), LongType()),
        *_fields(tuple(f"{name}_ms_{share}" for share in PERCENTILES), LongType()),
    ]


ROLLUP: StructType = StructType(
    [
        *_fields(("namespace", "queue"), StringType()),
        *_fields(("window_start", "window_end"), TimestampType()),
        *_fields(tuple(kind.removeprefix("job_") for kind in COUNTED), LongType()),
        *_fields(("arrivals", "departures", "redeliveries", "died"), LongType()),
        *_times("wait"),
        *_times("service"),
        StructField("snapshots", LongType()),
        *_fields(tuple(f"{state}_max" for state in STATES), LongType()),
        *_fields(tuple(f"{state}_last" for state in STATES), LongType()),
        StructField("oldest_ready_age_ms_max", LongType()),
        StructField("departure_rate", DoubleType()),
        StructField("date", DateType()),
    ]
)
"""One row is a queue in a window [window_start, window_end) in which it had an event or a snapshot.

Counts by kind (`enqueued` ... `dead_lettered`) are exact, so are `arrivals`, `departures` (jobs that left for good),
`redeliveries` (dequeues of a job that had been dequeued before) and `died` (jobs whose attempts were used up). `wait`
is from ready to leased, of every dequeue; `service` from leased to the end, of every acknowledge; percentiles are
values that occurred, null when there was none. Depths are the greatest and the last of the window's snapshots, null
when it had none. `departure_rate` is departures a second. `date` is the day of window_start in UTC.
"""

_MEASURES = ("attempt", "wait_ms", "service_ms", "state", "offset", *STATES, "oldest_ready_age_ms")
_TICK = "tick"
_SNAPSHOT = "snapshot"


def rollup(events: DataFrame, metrics: DataFrame, *, window_s: int = 60, late_ms: int = 30_000) -> DataFrame:
    """EVENTS and METRICS -> ROLLUP; on streams, each window once, when no more than late_ms late ones can come.

    Exact on streams as long as each batch takes both logs to their ends: the watermark is late_ms behind the newest
    record of either. On tables late_ms means nothing.
    """
    # Both go through one watermark: that of an idle event log alone would stand still and close nothing.
    told = _of_events(events).unionByName(_of_metrics(metrics)).withWatermark("at", f"{late_ms} milliseconds")
    return _shaped(_without_ticks(told).groupBy("namespace", "queue", _window(window_s)).agg(*_aggregates()), window_s)


def _window(window_s: int) -> Column:
    return F.window("at", f"{window_s} seconds").alias("window")


def _without_ticks(told: DataFrame) -> DataFrame:
    # The clause on `at` is always false. It keeps the optimizer from moving the filter below the watermark, where
    # ticks would be gone before they have moved it.
    return told.where((F.col("kind") != _TICK) | (F.col("at") < F.timestamp_millis(F.lit(-1))))


def _of_events(events: DataFrame) -> DataFrame:
    jobs = events.select(
        "at",
        "namespace",
        "queue",
        F.when(F.col("kind").isin(*COUNTED), F.col("kind")).otherwise(_TICK).alias("kind"),
        "attempt",
        "wait_ms",
        "service_ms",
        "state",
        "offset",
    )
    return _with_nulls(jobs, dict.fromkeys((*STATES, "oldest_ready_age_ms"), "long"))


def _of_metrics(metrics: DataFrame) -> DataFrame:
    snapshots = metrics.select(
        "at",
        "namespace",
        F.col("name").alias("queue"),
        F.when(F.col("kind") == "queue", _SNAPSHOT).otherwise(_TICK).alias("kind"),
        "offset",
        *STATES,
        "oldest_ready_age_ms",
    )
    return _with_nulls(snapshots, {"attempt": "int", "wait_ms": "long", "service_ms": "long", "state": "string"})


def _with_nulls(frame: DataFrame, columns: dict[str, str]) -> DataFrame:
    return frame.select("*", *(F.lit(None).cast(kind).alias(name) for name, kind in columns.items())).select(
        "at", "namespace", "queue", "kind", *_MEASURES
    )


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _aggregates() -> list[Column]:
    kind = F.col("kind")
    returned = kind.isin("job_released", "job_lease_expired", "job_owner_closed")
    return [
        *(_count(kind == each).alias(each.removeprefix("job_")) for each in COUNTED),
        _count((kind == "job_dequeued") & (F.col("attempt") > 1)).alias("redeliveries"),
        _count(returned & (F.col("state") == "dead")).alias("died"),
        *_time_aggregates("wait", F.when(kind == "job_dequeued", F.col("wait_ms"))),
        *_time_aggregates("service", F.when(kind == "job_acknowledged", F.col("service_ms"))),
        _count(kind == _SNAPSHOT).alias("snapshots"),
        *(F.max(state).alias(f"{state}_max") for state in STATES),
        # A queue is in one partition: its snapshots are in the order of their offsets.
        F.max(F.when(kind == _SNAPSHOT, F.struct("offset", *STATES))).alias("last"),
        F.max("oldest_ready_age_ms").alias("oldest_ready_age_ms_max"),
    ]


def _time_aggregates(name: str, milliseconds: Column) -> list[Column]:
    return [
        F.count(milliseconds).alias(f"{name}_count"),
        F.sum(milliseconds).alias(f"{name}_ms_sum"),
        F.max(milliseconds).alias(f"{name}_ms_max"),
        F.percentile_approx(milliseconds, list(PERCENTILES.values()), ACCURACY).alias(f"{name}_percentiles"),
    ]


def _shaped(grouped: DataFrame, window_s: int) -> DataFrame:
    derived: dict[str, Column] = {
        "window_start": F.col("window.start"),
        "window_end": F.col("window.end"),
        "arrivals": _sum_of(ARRIVALS),
        "departures": _sum_of(DEPARTURES),
        "departure_rate": _sum_of(DEPARTURES) / F.lit(float(window_s)),
        **{f"{state}_last": F.col(f"last.{state}") for state in STATES},
        **{
            f"{name}_ms_{share}": F.col(f"{name}_percentiles")[place]
            for name in ("wait", "service")
            for place, share in enumerate(PERCENTILES)
        },
    }
    columns = [derived.get(name, F.col(name)).alias(name) for name in ROLLUP.names if name != "date"]
    return grouped.select(*columns).withColumn("date", utc_date("window_start"))


def _sum_of(kinds: tuple[str, ...]) -> Column:
    return reduce(Column.__add__, (F.col(kind.removeprefix("job_")) for kind in kinds))
