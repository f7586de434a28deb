"""Service levels, rankings and poison jobs, by values worked out by hand and by DuckDB."""

import random
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from quintet_spark.transforms import report

from tests.spark.log_frames import Row, at, event_frame, metric_frame, rows_of

DAY = 24 * 60


def life(job: int, *steps: tuple[str, dict[str, Any]], queue: str = "work") -> list[Row]:
    return [{"kind": f"job_{kind}", "job_id": job, "queue": queue, **columns} for kind, columns in steps]


@pytest.fixture(scope="module")
def day(spark: SparkSession) -> DataFrame:
    """A day of "work": four jobs in; one through at once, one at the second time, one dead, one still there."""
    rows = [
        *life(
            1,
            ("enqueued", {}),
            ("dequeued", {"attempt": 1, "wait_ms": 10}),
            ("acknowledged", {"attempt": 1, "service_ms": 5}),
        ),
        *life(
            2,
            ("enqueued", {}),
            ("dequeued", {"attempt": 1, "wait_ms": 100}),
            ("lease_expired", {"attempt": 1, "state": "ready", "service_ms": 30_000, "detail": "lease expired"}),
            ("dequeued", {"attempt": 2, "wait_ms": 1_000}),
            ("acknowledged", {"attempt": 2, "service_ms": 7}),
        ),
        *life(
            3,
            ("enqueued", {}),
            ("dequeued", {"attempt": 1, "wait_ms": 1_001}),
            ("released", {"attempt": 1, "state": "delayed", "detail": "no printer"}),
            ("dequeued", {"attempt": 2, "wait_ms": 0}),
            ("owner_closed", {"attempt": 2, "state": "ready", "detail": "owner closed"}),
            ("dequeued", {"attempt": 3, "wait_ms": 20}),
            ("released", {"attempt": 3, "state": "dead", "detail": "no paper"}),
        ),
        *life(4, ("enqueued", {"at": at(DAY - 1)})),
    ]
    return event_frame(spark, rows)


def test_a_day_of_a_queue_is_counted_by_hand(spark: SparkSession, day: DataFrame) -> None:
    metrics = metric_frame(
        spark,
        [
            {"at": at(0), "oldest_ready_age_ms": 9_000},
            {"at": at(DAY - 2), "ready": 5, "oldest_ready_age_ms": 50},
            {"at": at(DAY - 1), "ready": 1, "delayed": 2, "leased": 3, "dead": 4, "oldest_ready_age_ms": 70},
        ],
    )
    (level,) = rows_of(report.service_levels(day, metrics, target_wait_ms=1_000))
    assert str(level.pop("day")) == "2026-03-01"
    assert level == {
        "namespace": "default",
        "queue": "work",
        "arrivals": 4,
        "deliveries": 6,
        "completions": 2,
        "releases": 2,
        "lease_expiries": 1,
        "owner_closures": 1,
        "deletions": 0,
        "expiries": 0,
        "redrives": 0,
        "dead_letters": 0,
        "deaths": 1,
        "failures": 4,
        "failure_share": pytest.approx(4 / 6),
        "redeliveries": 3,
        "completions_first": 1,
        "first_delivery_share": 0.5,
        "deliveries_timed": 6,
        "deliveries_in_target": 5,
        "in_target_share": pytest.approx(5 / 6),
        "wait_p50_ms": 20,
        "wait_p95_ms": 1_001,
        "wait_p99_ms": 1_001,
        "wait_max_ms": 1_001,
        "service_p50_ms": 5,
        "service_p95_ms": 7,
        "service_p99_ms": 7,
        "service_max_ms": 7,
        "backlog_end": 6,
        "ready_end": 1,
        "dead_end": 4,
        "oldest_age_end_ms": 70,
        "oldest_age_max_ms": 9_000,
        "counted_by": "events",
    }


def test_days_are_days_of_utc_whatever_the_session_thinks(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        events = event_frame(
            spark, [{"kind": "job_enqueued", "at": at(DAY - 1)}, {"kind": "job_enqueued", "at": at(DAY)}]
        )
        levels = report.service_levels(events, metric_frame(spark, []), target_wait_ms=1)
        days = {str(row["day"]): row["arrivals"] for row in rows_of(levels)}
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert days == {"2026-03-01": 1, "2026-03-02": 1}


def test_a_queue_without_events_is_counted_by_its_totals(spark: SparkSession) -> None:
    snapshots = [
        {"at": at(0), "enqueued_total": 100, "acknowledged_total": 90, "died_total": 1},
        {"at": at(60), "enqueued_total": 110, "acknowledged_total": 95, "died_total": 3},
        {"at": at(DAY + 5), "enqueued_total": 115, "acknowledged_total": 115, "died_total": 3},
        # Deleted, and made again under its name.
        {"at": at(2 * DAY + 5), "enqueued_total": 7, "acknowledged_total": 2, "died_total": 0},
    ]
    empty, metrics = event_frame(spark, []), metric_frame(spark, snapshots)
    levels = rows_of(report.service_levels(empty, metrics, target_wait_ms=1).orderBy("day"))
    assert [row["arrivals"] for row in levels] == [10, 5, 7]
    assert [row["completions"] for row in levels] == [5, 20, 2]
    assert [row["deaths"] for row in levels] == [2, 0, 0]
    assert {row["counted_by"] for row in levels} == {"snapshots"}
    assert {row["wait_p50_ms"] for row in levels} | {row["first_delivery_share"] for row in levels} == {None}
    (whole,) = rows_of(report.service_levels(empty, metrics, target_wait_ms=1, by_day=False))
    assert (whole["arrivals"], whole["completions"], whole["deaths"]) == (22, 27, 2)


def test_tables_and_processes_are_no_queues(spark: SparkSession) -> None:
    events = event_frame(spark, [{"kind": "row_put", "queue": None, "job_id": None, "table": "rows"}])
    metrics = metric_frame(
        spark, [{"kind": "table", "name": "rows"}, {"kind": "process", "name": None, "namespace": None}]
    )
    assert rows_of(report.service_levels(events, metrics, target_wait_ms=1)) == []


def test_the_sum_over_queues_weighs_each_by_its_jobs(spark: SparkSession) -> None:
    events = event_frame(
        spark,
        [
            *({"kind": "job_acknowledged", "attempt": 1, "queue": "a"} for _ in range(3)),
            {"kind": "job_acknowledged", "attempt": 2, "queue": "b"},
            {"kind": "job_lease_expired", "attempt": 2, "queue": "b", "state": "ready"},
        ],
    )
    metrics = metric_frame(
        spark,
        [{"name": "off", "acknowledged_total": 0}, {"name": "off", "at": at(1), "acknowledged_total": 50, "ready": 2}],
    )
    levels = report.service_levels(events, metrics, target_wait_ms=1, by_day=False)
    (whole,) = rows_of(report.overall_levels(levels))
    assert (whole["queues"], whole["completions"], whole["backlog_end"]) == (3, 54, 2)
    assert whole["first_delivery_share"] == pytest.approx(3 / 4)
    assert whole["failure_share"] == pytest.approx(1 / 55)
    assert whole["in_target_share"] is None


def test_queues_are_ranked_by_traffic_wait_and_failure(spark: SparkSession) -> None:
    events = event_frame(
        spark,
        [
            *({"kind": "job_enqueued", "queue": "busy"} for _ in range(9)),
            {"kind": "job_dequeued", "queue": "slow", "attempt": 1, "wait_ms": 900},
            {"kind": "job_dequeued", "queue": "fast", "attempt": 1, "wait_ms": 1},
            {"kind": "job_released", "queue": "fast", "attempt": 1, "state": "dead"},
            *({"kind": "job_released", "queue": "slow", "attempt": 1, "state": "ready"} for _ in range(2)),
        ],
    )
    levels = report.service_levels(events, metric_frame(spark, []), target_wait_ms=1, by_day=False)
    places = {row["queue"]: row for row in rows_of(report.ranked(levels))}
    ranks = ("traffic_rank", "slow_rank", "failing_rank")
    assert {queue: tuple(row[rank] for rank in ranks) for queue, row in places.items()} == {
        "busy": (1, None, None),
        "fast": (2, 2, 1),
        "slow": (3, 1, 2),
    }


def test_poison_jobs_tell_how_often_and_why(spark: SparkSession, day: DataFrame) -> None:
    (dead,) = rows_of(report.poison_jobs(day, deliveries_min=4, jobs_max=10))
    assert (dead["job_id"], dead["deliveries"], dead["deaths"], dead["failures"]) == (3, 3, 1, 3)
    assert dead["outcome"] == "dead"
    assert dead["reasons"] == ["no paper", "owner closed", "no printer"]
    often = rows_of(report.poison_jobs(day, deliveries_min=2, jobs_max=10))
    assert [(row["job_id"], row["outcome"]) for row in often] == [(3, "dead"), (2, "acknowledged")]
    assert [row["job_id"] for row in rows_of(report.poison_jobs(day, deliveries_min=2, jobs_max=1))] == [3]
    assert rows_of(report.poison_jobs(day.where("job_id = 1"), deliveries_min=2, jobs_max=10)) == []


def test_only_the_last_three_reasons_of_a_job_are_kept(spark: SparkSession) -> None:
    rows = [{"kind": "job_released", "attempt": n, "state": "ready", "detail": f"reason {n}"} for n in range(1, 8)]
    (job,) = rows_of(report.poison_jobs(event_frame(spark, rows), deliveries_min=5, jobs_max=10))
    assert job["reasons"] == ["reason 7", "reason 6", "reason 5"]


def test_activity_counts_what_happened_in_each_stretch(spark: SparkSession) -> None:
    rows = [
        {"kind": "job_enqueued", "at": at(1)},
        {"kind": "job_lease_expired", "at": at(59.9)},
        {"kind": "job_acknowledged", "at": at(60)},
        {"kind": "job_enqueued", "at": at(61)},
    ]
    found = rows_of(report.activity(event_frame(spark, rows), bucket_ms=3_600_000))
    start = int(at(0).timestamp() * 1000)
    assert found == [
        {"bucket_at_ms": start, "arrivals": 1, "completions": 0, "failures": 1},
        {"bucket_at_ms": start + 3_600_000, "arrivals": 1, "completions": 1, "failures": 0},
    ]


KINDS = ("enqueued", "dequeued", "acknowledged", "released", "lease_expired", "owner_closed", "deleted", "ready")


def any_event(chance: random.Random) -> Row:
    kind = chance.choice(KINDS)
    returned = kind in ("released", "lease_expired", "owner_closed")
    return {
        "kind": f"job_{kind}",
        "queue": chance.choice(("a", "b", "c")),
        "at": at(chance.uniform(0, 3 * DAY)),
        "job_id": chance.randrange(200),
        "attempt": chance.randrange(1, 7),
        "wait_ms": int(chance.expovariate(1 / 800)) if kind == "dequeued" else 0,
        "service_ms": int(chance.expovariate(1 / 50)) if kind == "acknowledged" else 0,
        "state": chance.choice(("ready", "dead")) if returned else None,
    }


LEVELS_BY_DUCKDB = """
    SELECT queue, DATE '1970-01-01' + CAST(epoch_ms("at") // 86400000 AS INTEGER) AS day,
        count(*) FILTER (kind = 'job_enqueued') AS arrivals,
        count(*) FILTER (kind = 'job_acknowledged') AS completions,
        count(*) FILTER (
            kind IN ('job_released', 'job_lease_expired', 'job_owner_closed') AND state = 'dead'
        ) AS deaths,
        count(*) FILTER (kind = 'job_dequeued' AND attempt > 1) AS redeliveries,
        count(*) FILTER (kind = 'job_dequeued' AND wait_ms <= 1000) AS deliveries_in_target,
        quantile_disc(wait_ms, 0.5) FILTER (kind = 'job_dequeued') AS wait_p50_ms,
        quantile_disc(wait_ms, 0.95) FILTER (kind = 'job_dequeued') AS wait_p95_ms,
        quantile_disc(wait_ms, 0.99) FILTER (kind = 'job_dequeued') AS wait_p99_ms,
        quantile_disc(service_ms, 0.95) FILTER (kind = 'job_acknowledged') AS service_p95_ms
    FROM events GROUP BY ALL ORDER BY queue, day
"""


@pytest.mark.parametrize("seed", range(2))
def test_levels_are_what_duckdb_finds_in_any_events(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    frame = event_frame(spark, [any_event(chance) for _ in range(8_000)])
    events = frame.drop("key", "payload").toArrow()  # noqa: F841  # read by name in the query
    expected = duckdb.sql(LEVELS_BY_DUCKDB)
    assert expected is not None
    levels = report.service_levels(frame, metric_frame(spark, []), target_wait_ms=1_000)
    found = levels.orderBy("queue", "day").select(*expected.columns)
    assert [tuple(row) for row in found.collect()] == expected.fetchall()
