"""The rollup beside a plain recomputation in DuckDB of the same rows: whole tables, and streams with late rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.transforms.rollup import COUNTED, rollup

from tests.support.rollup_verdict import rollup_differences

MINUTE_MS = 60_000
START_MS = 1_772_323_200_000 - 7 * MINUTE_MS  # Shortly before midnight in UTC: a window belongs to one day.
LATE_MS = 30_000
_STATES = np.array(["delayed", "ready", "leased", "dead", None], dtype=object)


def random_events(rows: int, choice: np.random.Generator, *, minutes: float = 15, from_ms: int = START_MS) -> pa.Table:
    """Events of jobs, and some of queues and rows, over `minutes`; half of them in one queue and minute."""
    at_ms = from_ms + choice.integers(0, int(minutes * MINUTE_MS), rows)
    crowded = choice.random(rows) < 0.5
    at_ms[crowded] = from_ms + choice.integers(0, int(min(minutes, 1) * MINUTE_MS), int(crowded.sum()))
    kinds = np.array([*COUNTED, "job_dequeued", "job_acknowledged", "queue_paused", "row_put"], dtype=object)
    kind = choice.choice(kinds, rows)
    of_row = kind == "row_put"
    queue = np.where(crowded, "crowded", choice.choice(np.array(["quiet", "", "quiet 2"], dtype=object), rows))
    return pa.table(
        {
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(np.arange(1, rows + 1)),
            "kind": pa.array(kind, pa.string()),
            "at_ms": pa.array(at_ms),
            "namespace": pa.array(choice.choice(np.array(["default", "other"], dtype=object), rows), pa.string()),
            "queue": pa.array(queue, pa.string(), mask=of_row),
            "attempt": pa.array(choice.integers(0, 4, rows).astype(np.int32)),
            "wait_ms": pa.array(np.exp(choice.normal(5, 3, rows)).astype(np.int64)),
            "service_ms": pa.array(choice.integers(0, 50, rows)),
            "state": pa.array(choice.choice(_STATES, rows), pa.string()),
        }
    )


def random_metrics(rows: int, choice: np.random.Generator, *, minutes: float = 15, from_ms: int = START_MS) -> pa.Table:
    """Snapshots of queues, of tables and of processes; in order, as a partition writes them."""
    at_ms = np.sort(from_ms + choice.integers(0, int(minutes * MINUTE_MS), rows))
    numbers = {name: pa.array(choice.integers(0, 1000, rows)) for name in ("ready", "delayed", "leased", "dead")}
    return pa.table(
        {
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(np.arange(1, rows + 1)),
            "at_ms": pa.array(at_ms),
            "kind": pa.array(choice.choice(np.array(["queue", "queue", "table", "process"], dtype=object), rows)),
            "namespace": pa.array(choice.choice(np.array(["default", "other"], dtype=object), rows), pa.string()),
            "name": pa.array(choice.choice(np.array(["crowded", "only seen"], dtype=object), rows), pa.string()),
            **numbers,
            "oldest_ready_age_ms": pa.array(choice.integers(0, 10**6, rows)),
        }
    )


def as_stored(table: pa.Table, names: list[str]) -> pa.Table:
    """With all columns of the schema that has these names, `at` as an instant."""
    at = pc.cast(pc.multiply(table["at_ms"], 1000), pa.timestamp("us", tz="UTC"))
    table = table.append_column("at", at)
    return table.select([name for name in names if name in table.column_names])


def frame(spark: SparkSession, table: pa.Table, schema: StructType, folder: Path) -> DataFrame:
    """The rows in Spark."""
    folder.mkdir()
    pq.write_table(as_stored(table, schema.names), folder / "rows.parquet")
    return spark.read.schema(schema).parquet(str(folder))


def told(rolled: DataFrame) -> pa.Table:
    """The rollup with instants as milliseconds."""
    table = rolled.toArrow()
    for name in ("window_start", "window_end"):
        ms = pc.cast(pc.cast(table[name], pa.timestamp("ms", tz="UTC")), pa.int64())
        table = table.append_column(f"{name}_ms", ms)
    return table.drop_columns(["window_start", "window_end"])


@pytest.mark.parametrize("seed", [1])
def test_a_rollup_of_tables_is_what_a_plain_recomputation_gives(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    choice = np.random.default_rng(seed)
    # Enough that percentiles of the crowded window are approximated.
    events, metrics = random_events(200_000, choice), random_metrics(2000, choice)
    found = rollup(frame(spark, events, EVENTS, tmp_path / "e"), frame(spark, metrics, METRICS, tmp_path / "m"))
    assert rollup_differences(events, metrics, told(found)) == []


def test_windows_may_be_of_another_length(spark: SparkSession, tmp_path: Path) -> None:
    choice = np.random.default_rng(3)
    events, metrics = random_events(2000, choice), random_metrics(500, choice)
    found = rollup(
        frame(spark, events, EVENTS, tmp_path / "e"), frame(spark, metrics, METRICS, tmp_path / "m"), window_s=10
    )
    assert rollup_differences(events, metrics, told(found), window_s=10) == []


class TestARecomputation:
    """Finds what is wrong with a rollup."""

    @pytest.fixture
    def right(self, spark: SparkSession, tmp_path: Path) -> tuple[pa.Table, pa.Table, pa.Table]:
        choice = np.random.default_rng(4)
        events, metrics = random_events(3000, choice, minutes=3), random_metrics(200, choice, minutes=3)
        found = rollup(frame(spark, events, EVENTS, tmp_path / "e"), frame(spark, metrics, METRICS, tmp_path / "m"))
        return events, metrics, told(found)

    def test_of_every_column(self, right: tuple[pa.Table, pa.Table, pa.Table]) -> None:
        events, metrics, rolled = right
        assert rollup_differences(events, metrics, rolled) == []
        unseen = []
        for name in rolled.column_names:
            if name in ("namespace", "queue", "window_start_ms", "date"):
                continue
            at = pc.index(pc.is_valid(rolled[name]), pa.scalar(True)).as_py()
            values = rolled[name].to_pylist()
            values[at] += 1
            altered = rolled.set_column(
                rolled.column_names.index(name), name, pa.array(values, rolled.schema.field(name).type)
            )
            found = rollup_differences(events, metrics, altered)
            if not [line for line in found if line.startswith(name.removesuffix("_ms") + " ") or name in line]:
                unseen.append(name)
        assert unseen == []

    @pytest.mark.parametrize(
        ("spoil", "fault"),
        [
            (lambda rolled: rolled.slice(1), "windows that are missing: 1 times"),
            (lambda rolled: pa.concat_tables([rolled, rolled.slice(5, 1)]), "windows that are told twice: 1 times"),
        ],
    )
    def test_of_every_window(
        self, right: tuple[pa.Table, pa.Table, pa.Table], spoil: Callable[[pa.Table], pa.Table], fault: str
    ) -> None:
        events, metrics, rolled = right
        assert any(line.startswith(fault) for line in rollup_differences(events, metrics, spoil(rolled)))


@pytest.mark.parametrize("seed", [5])
def test_a_rollup_of_streams_leaves_out_what_is_too_late_and_nothing_else(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Batch after batch of both logs; some rows are as late as may be, some later. Each batch is a file of each."""
    choice = np.random.default_rng(seed)
    batches = [_late_batch(choice, START_MS + number * MINUTE_MS) for number in range(6)]
    # What comes long after everything closes all windows.
    end_ms = START_MS + 60 * MINUTE_MS
    nothing = batches[0][0].slice(0, 0), batches[0][1].slice(0, 0)
    ticks = [random_metrics(1, choice, minutes=1, from_ms=end_ms + number * 10 * MINUTE_MS) for number in range(3)]
    batches += [(nothing[0], tick) for tick in ticks]
    for number, (events, metrics) in enumerate(batches):
        for log, table, names in (("events", events, EVENTS.names), ("metrics", metrics, METRICS.names)):
            _write(tmp_path / log, number, as_stored(table, names))
    logs = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / log))
        for log, schema in (("events", EVENTS), ("metrics", METRICS))
    ]
    query = (
        rollup(*logs, late_ms=LATE_MS)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rollup"))
    )
    assert query.awaitTermination(100)
    found = told(spark.read.parquet(str(tmp_path / "rollup")))
    found = found.filter(pc.less(found["window_start_ms"], end_ms))
    events, metrics, late = _in_time(batches)
    metrics = metrics.filter(pc.less(metrics["at_ms"], end_ms))
    assert late > 0, "nothing was late: the test shows nothing"
    assert rollup_differences(events, metrics, found) == []


def _late_batch(choice: np.random.Generator, from_ms: int) -> tuple[pa.Table, pa.Table]:
    now = random_events(300, choice, minutes=1, from_ms=from_ms)
    late = random_events(60, choice, minutes=4, from_ms=from_ms - 4 * MINUTE_MS)
    return pa.concat_tables([now, late]), random_metrics(30, choice, minutes=1, from_ms=from_ms)


def _write(folder: Path, number: int, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    # Files are taken in the order of their times.
    os.utime(path, (START_MS // 1000 + number, START_MS // 1000 + number))


def _in_time(batches: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table, pa.Table, int]:
    """What counts, and how many rows do not.

    What a batch brings moves the watermark of the next one, which closes windows at its end; so a row of the batch
    after that finds its window closed.
    """
    kept: list[list[pa.Table]] = [[], []]
    newest, late = [0], 0
    for batch in batches:
        watermark_ms = newest[-2] - LATE_MS if len(newest) > 1 else 0
        for place, table in enumerate(batch):
            ends_ms = pc.multiply(pc.add(pc.divide(table["at_ms"], MINUTE_MS), 1), MINUTE_MS)
            in_time = table.filter(pc.greater(ends_ms, watermark_ms))
            late += len(table) - len(in_time)
            kept[place].append(in_time)
        newest.append(max(newest[-1], *(pc.max(table["at_ms"]).as_py() or 0 for table in batch)))
    return pa.concat_tables(kept[0]), pa.concat_tables(kept[1]), late
