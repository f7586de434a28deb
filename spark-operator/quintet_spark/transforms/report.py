"""What queues promised and kept: service levels by day, the slowest, the most failing, the jobs that never end.

All functions take frames of the schemas EVENTS and METRICS and are pure. A day is a day of UTC, whatever the session's
time zone. Percentiles are values that occurred (the smallest that at least the share in question does not exceed),
within one part in 10 000 of the rank where a group is large.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everyone who knows Spark reads it

DAY_MS = 86_400_000
RANK_ACCURACY = 10_000
QUEUE = ("namespace", "queue")
# A job under lease came back; state tells whether for good.
RETURNS = ("job_released", "job_lease_expired", "job_owner_closed")
REASONS_KEPT = 3

# Events of a queue that are told as they are: column by kind, and the durable total that counts the same.
COUNTS: dict[str, tuple[str, str]] = {
    "arrivals": ("job_enqueued", "enqueued_total"),
    "deliveries": ("job_dequeued", "dequeued_total"),
    "completions": ("job_acknowledged", "acknowledged_total"),
    "releases": ("job_released", "released_total"),
    "lease_expiries": ("job_lease_expired", "lease_expired_total"),
    "owner_closures": ("job_owner_closed", "owner_closed_total"),
    "deletions": ("job_deleted", "deleted_total"),
    "expiries": ("job_expired", "expired_total"),
    "redrives": ("job_redriven", "redriven_total"),
    "dead_letters": ("job_dead_lettered", "dead_lettered_total"),
}
SUMS = (*COUNTS, "deaths", "failures", "redeliveries", "deliveries_timed", "deliveries_in_target", "completions_first")
"""Columns of service levels that add up over queues and days."""


def day_of(at: Column) -> Column:
    """The UTC date of an instant."""
    return F.date_from_unix_date(F.floor(F.unix_millis(at) / DAY_MS).cast("int"))


def service_levels(events: DataFrame, metrics: DataFrame, *, target_wait_ms: int, by_day: bool = True) -> DataFrame:
    """One row per queue and day; with by_day=False one row per queue over all of it, without `day`.

    Columns: namespace, queue, day; the counts of COUNTS; deaths (jobs whose attempts were used up), failures (leases
    that ended without success: releases, lease_expiries, owner_closures), failure_share (of all leases that ended),
    redeliveries (deliveries after the first), completions_first and first_delivery_share (completed on the first
    delivery), deliveries_timed, deliveries_in_target and in_target_share (ready for at most target_wait_ms),
    wait_p50_ms, wait_p95_ms, wait_p99_ms, wait_max_ms (ready to leased, of every delivery), service_p50_ms ... (leased
    to acknowledged); backlog_end (ready, delayed and leased), ready_end, dead_end, oldest_age_end_ms of the last
    snapshot, oldest_age_max_ms of all; counted_by.

    counted_by is "events", or "snapshots" where a queue has no event of a job (its namespace does not write them): then
    the counts are what the durable totals grew by between snapshots, and what only events tell is null. Shares are null
    where there is nothing to share.
    """
    keys = [*QUEUE, "day"] if by_day else list(QUEUE)
    told = _told_by_events(events, keys, target_wait_ms)
    seen = _seen_in_snapshots(metrics, keys)
    joined = told.join(seen, keys, "full_outer")
    told_here = F.col("counted_by") == "events"
    growth = {name: F.when(told_here, F.col(name)).otherwise(F.col(f"{name}_growth")) for name in (*COUNTS, "deaths")}
    counted = joined.withColumns(growth).withColumn("counted_by", F.coalesce("counted_by", F.lit("snapshots")))
    return _with_shares(counted).drop(*(f"{name}_growth" for name in growth))


def _told_by_events(events: DataFrame, keys: list[str], target_wait_ms: int) -> DataFrame:
    jobs = events.where(F.col("job_id").isNotNull() & F.col("queue").isNotNull()).withColumn("day", day_of(F.col("at")))
    kind, delivered = F.col("kind"), F.col("kind") == "job_dequeued"
    done = kind == "job_acknowledged"
    wait, service = F.when(delivered, F.col("wait_ms")), F.when(done, F.col("service_ms"))
    return jobs.groupBy(*keys).agg(
        *(F.count_if(kind == word).alias(name) for name, (word, _) in COUNTS.items()),
        F.count_if(kind.isin(*RETURNS) & (F.col("state") == "dead")).alias("deaths"),
        F.count_if(delivered & (F.col("attempt") > 1)).alias("redeliveries"),
        F.count_if(done & (F.col("attempt") == 1)).alias("completions_first"),
        F.count(wait).alias("deliveries_timed"),
        F.count_if(wait <= target_wait_ms).alias("deliveries_in_target"),
        *_percentiles("wait", wait),
        F.max(wait).alias("wait_max_ms"),
        *_percentiles("service", service),
        F.max(service).alias("service_max_ms"),
        F.lit("events").alias("counted_by"),
    )


def _percentiles(name: str, values: Column) -> list[Column]:
    return [
        F.percentile_approx(values, percent / 100, RANK_ACCURACY).alias(f"{name}_p{percent}_ms")
        for percent in (50, 95, 99)
    ]


def _seen_in_snapshots(metrics: DataFrame, keys: list[str]) -> DataFrame:
    """The newest snapshot of each group, and what the totals grew by in it."""
    totals = {**{name: total for name, (_, total) in COUNTS.items()}, "deaths": "died_total"}
    order = F.struct("at", "offset")
    columns = ["ready", "delayed", "leased", "dead", "oldest_ready_age_ms", *totals.values()]
    days = (
        metrics.where(F.col("kind") == "queue")
        .withColumnRenamed("name", "queue")
        .withColumn("day", day_of(F.col("at")))
        .groupBy(*QUEUE, "day")
        .agg(
            F.max_by(F.struct(*columns), order).alias("last"),
            F.min_by(F.struct(*totals.values()), order).alias("first"),
            F.max("oldest_ready_age_ms").alias("oldest_age_max_ms"),
        )
    )
    before = F.lag("last").over(Window.partitionBy(*QUEUE).orderBy("day"))
    grown = days.withColumn("before", before).withColumns(
        {
            f"{name}_growth": _growth(F.col(f"last.{total}"), F.coalesce(f"before.{total}", f"first.{total}"))
            for name, total in totals.items()
        }
    )
    return grown.groupBy(*keys).agg(
        *(F.sum(f"{name}_growth").alias(f"{name}_growth") for name in totals),
        _newest(F.col("last.ready") + F.col("last.delayed") + F.col("last.leased")).alias("backlog_end"),
        _newest(F.col("last.ready")).alias("ready_end"),
        _newest(F.col("last.dead")).alias("dead_end"),
        _newest(F.col("last.oldest_ready_age_ms")).alias("oldest_age_end_ms"),
        F.max("oldest_age_max_ms").alias("oldest_age_max_ms"),
    )


def _newest(value: Column) -> Column:
    return F.max_by(value, F.col("day"))


def _growth(now: Column, before: Column) -> Column:
    # A total that fell belongs to a queue that was deleted and made again.
    return F.when(now < before, now).otherwise(now - before)


def _with_shares(levels: DataFrame) -> DataFrame:
    failures = F.col("releases") + F.col("lease_expiries") + F.col("owner_closures")
    return levels.withColumn("failures", failures).withColumns(
        {
            "failure_share": _share(F.col("failures"), F.col("failures") + F.col("completions")),
            "first_delivery_share": _share(F.col("completions_first"), F.col("completions")),
            "in_target_share": _share(F.col("deliveries_in_target"), F.col("deliveries_timed")),
        }
    )


def _share(part: Column, whole: Column) -> Column:
    return F.when(whole > 0, part / whole)


def overall_levels(levels: DataFrame, *keys: str) -> DataFrame:
    """Service levels summed up per `keys` (none: one row), with `queues`, the sums, backlog_end, dead_end and shares.

    Percentiles do not add up and are left out; ages are the greatest. Shares weigh each queue by its jobs.
    """
    sums = levels.groupBy(*keys).agg(
        F.count_distinct(*QUEUE).alias("queues"),
        *(F.sum(name).alias(name) for name in (*SUMS, "backlog_end", "dead_end")),
        # Of queues counted by snapshots it is not known which completions were first ones.
        F.sum(F.when(F.col("completions_first").isNotNull(), F.col("completions"))).alias("completions_told"),
        F.max("oldest_age_end_ms").alias("oldest_age_end_ms"),
        F.max("oldest_age_max_ms").alias("oldest_age_max_ms"),
    )
    return sums.withColumns(
        {
            "failure_share": _share(F.col("failures"), F.col("failures") + F.col("completions")),
            "first_delivery_share": _share(F.col("completions_first"), F.col("completions_told")),
            "in_target_share": _share(F.col("deliveries_in_target"), F.col("deliveries_timed")),
        }
    ).drop("completions_told")


def ranked(levels: DataFrame) -> DataFrame:
    """Levels of queues (by_day=False) with their places, 1 is first, each place once.

    traffic_rank: by arrivals and deliveries, the most first. slow_rank: by wait_p95_ms, then wait_max_ms, the longest
    first; null without deliveries. failing_rank: by deaths, failures, failure_share, the most first; null without any.
    """
    traffic = F.coalesce("arrivals", F.lit(0)) + F.coalesce("deliveries", F.lit(0))
    delivered = F.col("deliveries_timed") > 0
    failing = (F.col("failures") > 0) | (F.col("deaths") > 0)
    # One window over all: it holds a row of each queue, not of each job.
    return levels.withColumns(
        {
            "traffic_rank": F.row_number().over(Window.orderBy(traffic.desc(), *QUEUE)),
            "slow_rank": _place(delivered, "wait_p95_ms", "wait_max_ms"),
            "failing_rank": _place(failing, "deaths", "failures", "failure_share"),
        }
    )


def _place(where: Column, *most_first: str) -> Column:
    first = F.when(where, 0).otherwise(1)
    order = Window.orderBy(first, *(F.desc(name) for name in most_first), *QUEUE)
    return F.when(where, F.row_number().over(order))


def poison_jobs(events: DataFrame, *, deliveries_min: int, jobs_max: int) -> DataFrame:
    """Jobs delivered at least deliveries_min times, or dead at some time; the worst jobs_max of them, the worst first.

    Columns: namespace, queue, job_id, deliveries (so far, also before the first event read), deaths, failures,
    outcome (the state after its last event: delayed, ready, leased, dead; or how it ended: acknowledged, deleted,
    expired, dead_lettered), reasons (the last three, the newest first), payload_bytes, first_at, last_at.
    """
    jobs = events.where(F.col("job_id").isNotNull() & F.col("queue").isNotNull())
    keys = [*QUEUE, "job_id"]
    marked = jobs.where((F.col("attempt") >= deliveries_min) | (F.col("state") == "dead")).select(*keys).distinct()
    theirs = jobs.join(marked, keys, "left_semi")
    order, failed = F.struct("at", "offset"), F.col("kind").isin(*RETURNS)
    told = theirs.groupBy(*keys).agg(
        F.max("attempt").alias("deliveries"),
        F.count_if(failed & (F.col("state") == "dead")).alias("deaths"),
        F.count_if(failed).alias("failures"),
        F.max_by(F.coalesce("state", F.substring("kind", len("job_") + 1, 32)), order).alias("outcome"),
        F.max("payload_bytes").alias("payload_bytes"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
    )
    worst = told.orderBy(F.desc("deaths"), F.desc("deliveries"), F.desc("last_at"), *keys).limit(jobs_max)
    reasons = _last_reasons(theirs.where(failed), keys)
    joined = worst.join(reasons, keys, "left").withColumn(
        "reasons", F.coalesce("reasons", F.array().cast("array<string>"))
    )
    return joined.orderBy(F.desc("deaths"), F.desc("deliveries"), F.desc("last_at"), *keys)


def _last_reasons(failures: DataFrame, keys: list[str]) -> DataFrame:
    # Numbered before they are gathered: a job may have failed a million times.
    newest = F.row_number().over(Window.partitionBy(*keys).orderBy(F.desc("at"), F.desc("offset")))
    told = failures.where(F.coalesce(F.length("detail"), F.lit(0)) > 0).withColumn("n", newest)
    last = (
        told.where(F.col("n") <= REASONS_KEPT).groupBy(*keys).agg(F.collect_list(F.struct("n", "detail")).alias("last"))
    )
    return last.select(*keys, F.transform(F.array_sort("last"), lambda each: each["detail"]).alias("reasons"))


def activity(events: DataFrame, *, bucket_ms: int) -> DataFrame:
    """Arrivals, completions and failures of all queues together: bucket_ms (its start, epoch), and one column each."""
    kind = F.col("kind")
    bucket = (F.floor(F.unix_millis(F.col("at")) / bucket_ms) * bucket_ms).cast("long")
    return (
        events.where(F.col("job_id").isNotNull())
        .groupBy(bucket.alias("bucket_at_ms"))
        .agg(
            F.count_if(kind == "job_enqueued").alias("arrivals"),
            F.count_if(kind == "job_acknowledged").alias("completions"),
            F.count_if(kind.isin(*RETURNS)).alias("failures"),
        )
        .orderBy("bucket_at_ms")
    )


def rolled_activity(rollup: DataFrame, *, bucket_ms: int) -> DataFrame:
    """As `activity`, from the rollup; windows longer than a bucket fall into the one they begin in."""
    bucket = (F.floor(F.unix_millis(F.col("window_start")) / bucket_ms) * bucket_ms).cast("long")
    return (
        rollup.groupBy(bucket.alias("bucket_at_ms"))
        .agg(
            F.sum("enqueued").alias("arrivals"),
            F.sum("acknowledged").alias("completions"),
            F.sum(F.col("released") + F.col("lease_expired") + F.col("owner_closed")).alias("failures"),
        )
        .orderBy("bucket_at_ms")
    )
