"""The rollup: held against a recomputation in DuckDB, and on streams against itself on tables."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.transforms.rollup import ACCURACY, COUNTED, ROLLUP, rollup

from tests.spark.log_frames import at, event_frame, metric_frame, rows_of

KINDS = (*COUNTED, "queue_created", "row_put", "table_created")
COUNTS = (*(kind.removeprefix("job_") for kind in COUNTED), "arrivals", "departures", "redeliveries", "died")


def random_events(seed: int, count: int) -> list[dict[str, Any]]:
    """Events of three queues over ten minutes, times of a partition never falling."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0, 10) for _ in range(count))
    rows: list[dict[str, Any]] = []
    for minute in times:
        kind = chance.choice(KINDS)
        of_table = kind.startswith(("row_", "table_"))
        rows.append(
            {
                "at": at(round(minute * 60_000) / 60_000),
                "kind": kind,
                "queue": None if of_table else chance.choice(["work", "", "ünï"]),
                "table": "t" if of_table else None,
                "namespace": chance.choice(["default", ""]),
                "attempt": chance.randint(0, 3),
                "wait_ms": chance.randint(0, 5000) if kind == "job_dequeued" else 0,
                "service_ms": chance.randint(1, 90_000) if kind == "job_acknowledged" else 0,
                "state": chance.choice(["ready", "dead", None]),
            }
        )
    return rows


def random_metrics(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for second in range(0, 600, 7):
        common = {"at": at(second / 60)}
        rows += [
            {
                **common,
                "name": name,
                **{state: chance.randint(0, 99) for state in ("ready", "delayed", "leased", "dead")},
            }
            for name in ("work", "quiet")
        ]
        rows.append({**common, "kind": "table", "name": "work", "ready": 1_000_000})
        rows.append({**common, "kind": "process", "namespace": None, "name": None, "values": {"x": 1.0}})
    return rows


RECOMPUTED = """
with jobs as (
    select namespace, queue, time_bucket(interval 1 minute, "at") as window_start, *
        exclude (namespace, queue) from events where kind in ({kinds})
), told as (
    select namespace, name as queue, time_bucket(interval 1 minute, "at") as window_start, * exclude (namespace, name)
    from metrics where kind = 'queue'
), of_events as (
    select namespace, queue, window_start, {counts},
        count(*) filter (kind = 'job_enqueued') as arrivals,
        count(*) filter (kind in ('job_acknowledged', 'job_deleted', 'job_expired', 'job_dead_lettered')) as departures,
        count(*) filter (kind = 'job_dequeued' and attempt > 1) as redeliveries,
        count(*) filter (kind in ('job_released', 'job_lease_expired', 'job_owner_closed') and state = 'dead') as died,
        list(wait_ms order by wait_ms) filter (kind = 'job_dequeued') as waits,
        list(service_ms order by service_ms) filter (kind = 'job_acknowledged') as services
    from jobs group by all
), of_metrics as (
    select namespace, queue, window_start, count(*) as snapshots, max(ready) as ready_max, max(dead) as dead_max,
        arg_max(ready, "offset") as ready_last, arg_max(leased, "offset") as leased_last
    from told group by all
)
select * replace (epoch_ms(window_start) as window_start)
from of_events full join of_metrics using (namespace, queue, window_start)
"""


def recomputed(events: DataFrame, metrics: DataFrame) -> list[dict[str, Any]]:
    """By DuckDB; each row also with all waits and services, sorted."""
    tables = {"events": events.toArrow(), "metrics": metrics.drop("values").toArrow()}
    query = RECOMPUTED.format(
        kinds=", ".join(f"'{kind}'" for kind in COUNTED),
        counts=", ".join(f"count(*) filter (kind = '{kind}') as {kind.removeprefix('job_')}" for kind in COUNTED),
    )
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        found = database.execute(query)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def key(row: dict[str, Any]) -> tuple[str, str, int]:
    instant = row["window_start"]
    # What Spark collects is naive and of the machine's time zone, as timestamp() takes it.
    at_ms = round(instant.timestamp() * 1000) if isinstance(instant, datetime) else int(instant)
    return row["namespace"], row["queue"], at_ms


def in_bounds(told: int | None, values: list[int] | None, share: float) -> bool:
    """Whether `told` is a value whose rank is within the accuracy of that share's."""
    if not values:
        return told is None
    near = [share * len(values) + shift for shift in (-len(values) / ACCURACY - 1, len(values) / ACCURACY + 1)]
    low, high = (values[min(max(int(rank), 0), len(values) - 1)] for rank in near)
    return told is not None and low <= told <= high


def held_against(rolled: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    """Raises AssertionError at the first difference."""
    by_key = {key(row): row for row in plain}
    assert sorted(by_key) == sorted(key(row) for row in rolled)
    for row in rolled:
        other = by_key[key(row)]
        for name in (*COUNTS, "snapshots"):
            assert row[name] == (other[name] or 0), (name, key(row))
        for name in ("ready_max", "dead_max", "ready_last", "leased_last"):
            assert row[name] == other[name], (name, key(row))
        for name, values in (("wait", other["waits"]), ("service", other["services"])):
            assert row[f"{name}_count"] == len(values or ())
            assert row[f"{name}_ms_sum"] == (sum(values) if values else None)
            for share in (50, 95, 99):
                assert in_bounds(row[f"{name}_ms_p{share}"], values, share / 100), (name, share, key(row))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_rollup_equals_a_plain_recomputation(spark: SparkSession, seed: int) -> None:
    events, metrics = event_frame(spark, random_events(seed, 5000)), metric_frame(spark, random_metrics(seed))
    rolled = rollup(events, metrics)
    assert rolled.schema.names == ROLLUP.names
    assert [field.dataType for field in rolled.schema] == [field.dataType for field in ROLLUP]
    held_against(rows_of(rolled), recomputed(events, metrics))


def test_percentiles_are_of_dequeues_and_acknowledges_alone(spark: SparkSession) -> None:
    waits = [{"kind": "job_dequeued", "attempt": 1, "wait_ms": wait} for wait in range(1, 101)]
    other = [{"kind": "job_released", "service_ms": 10**9}, {"kind": "job_enqueued", "wait_ms": 10**9}]
    [row] = rows_of(rollup(event_frame(spark, waits + other), metric_frame(spark, [])))
    assert (row["wait_ms_p50"], row["wait_ms_p95"], row["wait_ms_p99"], row["wait_ms_max"]) == (50, 95, 99, 100)
    assert row["service_ms_p50"] is None
    assert row["redeliveries"] == 0


class Streams:
    """Both logs as streams of files, and the rollup of them into Parquet; a batch at a time."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.spark, self.folder, self.name = spark, folder, name
        self._written = 0
        for log in ("events", "metrics"):
            (folder / log).mkdir()

    def put(self, events: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> None:
        """These are there for the next batch."""
        self._written += 1
        for log, frame in (
            ("events", event_frame(self.spark, events)),
            ("metrics", metric_frame(self.spark, metrics)),
        ):
            if not frame.isEmpty():
                frame.coalesce(1).write.mode("append").parquet(str(self.folder / log))

    def query(self) -> StreamingQuery:
        events = self.spark.readStream.schema(EVENTS).parquet(str(self.folder / "events"))
        metrics = self.spark.readStream.schema(METRICS).parquet(str(self.folder / "metrics"))
        writer = rollup(events, metrics, late_ms=5000).writeStream.format("parquet").outputMode("append")
        return (
            writer.queryName(self.name)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "rollup"))
        )

    def run(self) -> None:
        """Everything that is there, then end; the next run goes on from the checkpoint."""
        query = self.query()
        query.awaitTermination()
        assert query.exception() is None

    def rolled(self) -> list[dict[str, Any]]:
        return rows_of(self.spark.read.schema(ROLLUP).parquet(str(self.folder / "rollup")))


def tick(minutes: float) -> dict[str, Any]:
    """The snapshot of a process: it belongs to no queue."""
    return {"at": at(minutes), "kind": "process", "namespace": None, "name": None, "values": {"x": 1.0}}


class TestOnStreams:
    """State, watermark and checkpoint."""

    def test_windows_are_told_once_over_restarts_and_equal_those_of_tables(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        events, metrics = random_events(3, 2000), random_metrics(3)
        streams = Streams(spark, tmp_path, "rollup-restarts")
        for end in (3.1, 5.5, 8.0, 11.0):
            streams.put(
                [row for row in events if at(end - 11) < row["at"] <= at(end)],
                [row for row in metrics if at(end - 11) < row["at"] <= at(end)],
            )
            events = [row for row in events if row["at"] > at(end)]
            metrics = [row for row in metrics if row["at"] > at(end)]
            streams.run()
        streams.put([], [tick(30)])
        streams.run()

        all_events, all_metrics = (
            spark.read.schema(schema).parquet(str(tmp_path / log))
            for log, schema in (("events", EVENTS), ("metrics", METRICS))
        )
        held_against(streams.rolled(), recomputed(all_events, all_metrics))

    def test_the_last_window_of_an_idle_stream_closes_by_the_snapshots_of_processes(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        streams = Streams(spark, tmp_path, "rollup-idle")
        streams.put([{"kind": "job_enqueued", "at": at(0.5)}], [])
        streams.run()
        assert streams.rolled() == []
        streams.put([], [tick(1.0)])
        streams.run()
        assert streams.rolled() == []
        streams.put([], [tick(1.2)])
        streams.run()
        [row] = streams.rolled()
        assert (row["queue"], row["enqueued"], row["snapshots"], row["ready_max"]) == ("work", 1, 0, None)
        assert row["window_start"].astimezone(UTC) == at(0)

    def test_an_event_within_the_lateness_counts_and_one_beyond_does_not(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        streams = Streams(spark, tmp_path, "rollup-late")
        streams.put([{"kind": "job_enqueued", "at": at(0.5)}], [tick(1 + 4 / 60)])
        streams.run()
        streams.put([{"kind": "job_enqueued", "at": at(0.9)}], [tick(1.5)])
        streams.run()
        streams.put([{"kind": "job_enqueued", "at": at(0.95)}, {"kind": "job_enqueued", "at": at(1.1)}], [tick(5)])
        streams.run()
        counts = {row["window_start"].astimezone(UTC): row["enqueued"] for row in streams.rolled()}
        assert counts == {at(0): 2, at(1): 1}
