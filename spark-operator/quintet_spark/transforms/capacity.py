"""How full queues get: what arrives, what workers can do, where the backlog goes.

The method is simple and said on every report. The backlog (ready, delayed and leased jobs) of each minute is fitted
with a straight line by least squares. Minutes resemble their neighbours, so the interval of the slope counts fewer
independent points than there are minutes: n (1 - r) / (1 + r), r the correlation of neighbouring residuals. A trend is
called one only when the whole 95 % interval lies on one side of zero. It foresees nothing that is not a straight line:
no daily rhythm, no change of load.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  # as everyone who knows Spark reads it

from quintet_spark.transforms.report import QUEUE

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
POINTS_MIN = 30
"""Minutes with a snapshot that a trend takes at least."""
SATURATED_MIN = 5
"""Minutes in which work was waiting throughout that a capacity takes at least."""
SILENT_MS = 10 * MINUTE_MS
"""A queue is told of once a minute at least: one that has been silent for this long is gone."""
HORIZON_HOURS = 365 * 24
_Z = 1.959964
_INDEPENDENT_MIN = 4.0


def minutes(metrics: DataFrame) -> DataFrame:
    """One row per queue and minute that has a snapshot of it.

    Columns: namespace, queue, minute_at_ms (its start, epoch), at_ms (of its last snapshot), backlog, ready_min (the
    fewest ready jobs of the minute), elapsed_ms since the last snapshot of the row before, and arrivals and
    completions in that time (null in the first row, and after a queue was made anew).
    """
    minute = (F.floor(F.unix_millis(F.col("at")) / MINUTE_MS) * MINUTE_MS).cast("long")
    snapshots = metrics.where(F.col("kind") == "queue").withColumnRenamed("name", "queue")
    last = snapshots.groupBy(*QUEUE, minute.alias("minute_at_ms")).agg(
        F.max_by(
            F.struct(
                F.unix_millis("at").alias("at_ms"),
                (F.col("ready") + F.col("delayed") + F.col("leased")).alias("backlog"),
                "enqueued_total",
                "acknowledged_total",
            ),
            F.struct("at", "offset"),
        ).alias("last"),
        F.min("ready").alias("ready_min"),
    )
    before = Window.partitionBy(*QUEUE).orderBy("minute_at_ms")
    flat = last.select(*QUEUE, "minute_at_ms", "ready_min", "last.*")
    return flat.select(
        *QUEUE,
        "minute_at_ms",
        "at_ms",
        "backlog",
        "ready_min",
        (F.col("at_ms") - F.lag("at_ms").over(before)).alias("elapsed_ms"),
        _grown("enqueued_total", before).alias("arrivals"),
        _grown("acknowledged_total", before).alias("completions"),
    )


def _grown(total: str, before: WindowSpec) -> Column:
    grown = F.col(total) - F.lag(total).over(before)
    return F.when(grown >= 0, grown)


def forecast(by_minute: DataFrame, *, window_ms: int, length_max: int | None = None) -> DataFrame:
    """One row per queue, from what `minutes` gives, looking back window_ms from the newest snapshot of all.

    Columns: namespace, queue, as_of_ms (its newest snapshot, epoch), points (minutes looked at), backlog (the newest),
    arrival_rate and completion_rate (jobs a second); capacity_rate, the completions a second of minutes in which jobs
    were ready throughout (null: fewer than SATURATED_MIN such minutes, workers always kept up), utilisation
    (arrival_rate / capacity_rate); slope, slope_low, slope_high (jobs an hour, 95 % interval; null: unknown),
    fit_at_end (the line's backlog at as_of_ms); verdict; reached_in_hours, reached_earliest_hours,
    reached_latest_hours: from as_of_ms until a draining queue is empty, or a growing one holds length_max; null: not
    within a year, or no such end.

    verdict: "gone" (silent for SILENT_MS), "not enough data" (fewer than POINTS_MIN minutes), "empty" (no backlog in
    any minute), "growing", "draining", "steady" (no trend that could not be chance).
    """
    fitted = _fitted(_windowed(by_minute, window_ms))
    judged = fitted.withColumn("verdict", _verdict())
    return _with_ends(judged, length_max).select(
        *QUEUE,
        "as_of_ms",
        "points",
        "backlog",
        "arrival_rate",
        "completion_rate",
        "capacity_rate",
        F.when(F.col("capacity_rate") > 0, F.col("arrival_rate") / F.col("capacity_rate")).alias("utilisation"),
        "slope",
        "slope_low",
        "slope_high",
        "fit_at_end",
        "verdict",
        "reached_in_hours",
        "reached_earliest_hours",
        "reached_latest_hours",
    )


def _windowed(by_minute: DataFrame, window_ms: int) -> DataFrame:
    newest = by_minute.agg(F.max("at_ms").alias("newest_ms"))
    return (
        by_minute.crossJoin(F.broadcast(newest))
        .where(F.col("at_ms") > F.col("newest_ms") - window_ms)
        # Hours before the newest snapshot of all: small numbers keep the sums exact.
        .withColumn("x", (F.col("at_ms") - F.col("newest_ms")) / HOUR_MS)
        .withColumn("y", F.col("backlog").cast("double"))
    )


def _fitted(points: DataFrame) -> DataFrame:
    """One row per queue with its rates, the line, and the interval of its slope."""
    seconds = F.when(F.col("arrivals").isNotNull() & F.col("completions").isNotNull(), F.col("elapsed_ms") / 1000)
    # A gap between snapshots says nothing of what was ready in it.
    saturated = (F.col("ready_min") > 0) & (F.col("elapsed_ms") <= 2 * MINUTE_MS) & seconds.isNotNull()
    line = points.groupBy(*QUEUE).agg(
        F.max("newest_ms").alias("newest_ms"),
        F.max("at_ms").alias("as_of_ms"),
        F.count("y").alias("points"),
        F.max_by("backlog", "at_ms").alias("backlog"),
        F.max("backlog").alias("backlog_max"),
        _ratio(F.sum(F.when(seconds > 0, F.col("arrivals"))), F.sum(seconds)).alias("arrival_rate"),
        _ratio(F.sum(F.when(seconds > 0, F.col("completions"))), F.sum(seconds)).alias("completion_rate"),
        F.when(
            F.count_if(saturated) >= SATURATED_MIN,
            _ratio(F.sum(F.when(saturated, F.col("completions"))), F.sum(F.when(saturated, seconds))),
        ).alias("capacity_rate"),
        F.regr_slope("y", "x").alias("slope"),
        F.regr_intercept("y", "x").alias("intercept"),
        F.regr_sxx("y", "x").alias("sxx"),
    )
    return _with_interval(line.join(_scatter(points, line), list(QUEUE), "left"))


def _scatter(points: DataFrame, line: DataFrame) -> DataFrame:
    """Per queue the squared residuals, and the correlation of neighbouring ones."""
    residual = F.col("y") - (F.col("intercept") + F.col("slope") * F.col("x"))
    neighbours = Window.partitionBy(*QUEUE).orderBy("x")
    residuals = (
        points.join(line.select(*QUEUE, "slope", "intercept"), list(QUEUE))
        .withColumn("residual", residual)
        .withColumn("residual_before", F.lag("residual").over(neighbours))
    )
    squares = F.sum(F.col("residual") * F.col("residual"))
    # What is left of rounding is no scatter.
    exact = squares <= 1e-18 * F.sum(F.col("y") * F.col("y"))
    neighbouring = F.sum(F.col("residual") * F.col("residual_before"))
    return residuals.groupBy(*QUEUE).agg(
        F.when(exact, 0.0).otherwise(squares).alias("squares"),
        F.when(exact, 0.0).otherwise(F.greatest(F.lit(0.0), neighbouring / squares)).alias("correlation"),
    )


def _with_interval(line: DataFrame) -> DataFrame:
    independent = F.col("points") * (1 - F.col("correlation")) / (1 + F.col("correlation"))
    freedom = F.col("independent") - 2
    error = F.sqrt(F.col("squares") / freedom / F.col("sxx"))
    half = F.when(
        (F.col("points") >= POINTS_MIN) & (F.col("independent") >= _INDEPENDENT_MIN) & (F.col("sxx") > 0),
        _student(freedom) * error,
    )
    return line.withColumn("independent", independent).withColumns(
        {
            "slope": F.when(F.col("points") >= POINTS_MIN, F.col("slope")),
            "slope_low": F.col("slope") - half,
            "slope_high": F.col("slope") + half,
            "fit_at_end": F.when(
                F.col("points") >= POINTS_MIN,
                F.col("intercept") + F.col("slope") * (F.col("as_of_ms") - F.col("newest_ms")) / HOUR_MS,
            ),
        }
    )


def _student(freedom: Column) -> Column:
    """The 97.5 % quantile of Student's t, by its expansion around the normal's (within 4 % from 3 degrees on)."""
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return F.lit(_Z) + first / freedom + second / (freedom * freedom)


def _verdict() -> Column:
    return (
        F.when(F.col("as_of_ms") < F.col("newest_ms") - SILENT_MS, "gone")
        .when(F.col("points") < POINTS_MIN, "not enough data")
        .when(F.col("backlog_max") == 0, "empty")
        .when(F.col("slope_low") > 0, "growing")
        .when((F.col("slope_high") < 0) & (F.col("backlog") > 0), "draining")
        .otherwise("steady")
    )


def _with_ends(judged: DataFrame, length_max: int | None) -> DataFrame:
    room = F.lit(None).cast("double") if length_max is None else F.greatest(F.lit(0.0), length_max - F.col("backlog"))
    way = F.when(F.col("verdict") == "draining", -F.col("backlog").cast("double")).when(
        F.col("verdict") == "growing", room
    )
    ends = {
        "reached_in_hours": F.col("slope"),
        "reached_earliest_hours": F.when(F.col("verdict") == "draining", F.col("slope_low")).otherwise(
            F.col("slope_high")
        ),
        "reached_latest_hours": F.when(F.col("verdict") == "draining", F.col("slope_high")).otherwise(
            F.col("slope_low")
        ),
    }
    hours = {name: F.when(way / slope <= HORIZON_HOURS, way / slope) for name, slope in ends.items()}
    return judged.withColumns(hours)


def _ratio(part: Column, whole: Column) -> Column:
    return F.when(whole > 0, part / whole)


def backlog_series(by_minute: DataFrame, *, bucket_ms: int) -> DataFrame:
    """The backlog of each queue over time: namespace, queue, bucket_at_ms (its start, epoch), backlog (the last)."""
    bucket = (F.floor(F.col("minute_at_ms") / bucket_ms) * bucket_ms).cast("long")
    return (
        by_minute.groupBy(*QUEUE, bucket.alias("bucket_at_ms"))
        .agg(F.max_by("backlog", "at_ms").alias("backlog"))
        .orderBy(*QUEUE, "bucket_at_ms")
    )
