"""The jobs against a real core: what is in the log is in the lake, once; stops, restarts, errors in one sentence."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from quintet_client import Client, TableSettings
from quintet_spark.__main__ import main
from quintet_spark.jobs import archive, report, restore, rollup
from quintet_spark.jobs.lake import Lake
from quintet_spark.jobs.loading import TableNotEmptyError
from quintet_spark.jobs.running import BatchDone, JobError, run_until
from quintet_spark.jobs.settings import ReportSettings, RestoreSettings, StreamSettings
from quintet_spark.source import register
from quintet_spark.transforms.archive import events_of

from tests.support.stack import CorePart

T = TypeVar("T")
COMMAND = (sys.executable, "-m", "quintet_spark")


def settings_of(core: CorePart, spark: SparkSession, folder: Path) -> StreamSettings:
    register(spark)
    return StreamSettings(
        spark_lake=str(folder / "lake"), spark_endpoint=core.target, spark_once=True, spark_retry_ms=2000
    )


@pytest.fixture
def settings(core: CorePart, spark: SparkSession, tmp_path: Path) -> StreamSettings:
    return settings_of(core, spark, tmp_path)


def with_client(core: CorePart, body: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with Client(core.target) as client:
            return await body(client)

    return asyncio.run(run())


def enqueue(core: CorePart, queue: str, count: int) -> None:
    async def body(client: Client) -> None:
        await client.enqueue_many(queue, [b"job"] * count)

    with_client(core, body)


def archived(spark: SparkSession, settings: StreamSettings, stop: threading.Event | None = None) -> list[BatchDone]:
    told: list[BatchDone] = []
    running = archive.start(spark, settings)
    run_until(spark, running, stop or threading.Event(), stop_ms_max=30_000, on_batch=told.append)
    return told


def enqueued(spark: SparkSession, settings: StreamSettings, queue: str) -> int:
    events = events_of(Lake(settings).events().read(spark))
    return events.where((events.queue == queue) & (events.kind == "job_enqueued")).count()


def test_the_archive_holds_every_event_once_over_runs(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    enqueue(core, queue, 300)
    told = archived(spark, settings)
    assert sum(done.rows for done in told if done.query == archive.EVENTS) > 300
    assert enqueued(spark, settings, queue) == 300
    enqueue(core, queue, 50)
    archived(spark, settings)
    archived(spark, settings)
    assert enqueued(spark, settings, queue) == 350
    events = Lake(settings).events().read(spark)
    assert events.count() == events.select("partition", "offset").distinct().count()


def test_batches_are_as_large_as_told_and_the_lag_shrinks(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    enqueue(core, queue, 900)
    told = archived(spark, settings.model_copy(update={"spark_archive_events_max": 400}))
    batches = [done for done in told if done.query == archive.EVENTS]
    assert len(batches) >= 3
    assert all(done.rows <= 400 for done in batches)
    lags = [done.lag for done in batches]
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 0
    assert lags[-1] == 0


def test_a_continuous_job_stops_when_told_and_goes_on_where_it_was(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    continuous = settings.model_copy(update={"spark_once": False, "spark_archive_interval_s": 0.2})
    enqueue(core, queue, 10)
    stop = threading.Event()
    running = archive.start(spark, continuous)

    def stop_at_the_first(done: BatchDone) -> None:
        stop.set()

    run_until(spark, running, stop, stop_ms_max=30_000, on_batch=stop_at_the_first)
    assert not spark.streams.active
    enqueue(core, queue, 10)
    archived(spark, settings)
    assert enqueued(spark, settings, queue) == 20


def test_one_failed_query_ends_the_others_and_is_told_in_a_sentence(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    enqueue(core, queue, 1)
    nobody = settings.model_copy(update={"spark_endpoint": "127.0.0.1:1", "spark_once": False, "spark_retry_ms": 0})
    running = rollup.start(spark, nobody)
    with pytest.raises(JobError) as raised:
        run_until(spark, running, threading.Event(), stop_ms_max=0)
    assert str(raised.value).startswith("rollup: ")
    assert len(str(raised.value).splitlines()) == 1
    assert "127.0.0.1:1" in str(raised.value)
    assert not spark.streams.active


def test_the_rollup_counts_what_the_archive_holds(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    enqueue(core, queue, 40)

    async def finish(client: Client) -> None:
        for job in await client.dequeue(queue, jobs_max=25, lease_ms=60_000):
            await client.acknowledge(job)

    with_client(core, finish)
    short = settings.model_copy(
        update={
            "spark_once": False,
            "spark_rollup_window_s": 1,
            "spark_rollup_late_ms": 0,
            "spark_rollup_interval_s": 2,
        }
    )
    running = rollup.start(spark, short)
    stop = threading.Event()

    def rows() -> tuple[int, int, int]:
        rolled = Lake(short).rollup().read(spark).where(f"queue = '{queue}'")
        found = rolled.selectExpr("sum(arrivals)", "sum(departures)", "sum(wait_count)").first()
        assert found is not None
        return tuple(value or 0 for value in found)  # type: ignore[return-value]

    def stop_when_told(_: BatchDone) -> None:
        # Snapshots of the core go on every second, and close the window of an idle queue.
        if rows() == (40, 25, 25):
            stop.set()

    run_until(spark, running, stop, stop_ms_max=30_000, on_batch=stop_when_told)
    assert rows() == (40, 25, 25)


def restore_settings(settings: StreamSettings, **more: Any) -> RestoreSettings:
    return RestoreSettings(spark_lake=settings.spark_lake, spark_endpoint=settings.spark_endpoint, **more)


@dataclass(frozen=True)
class Filled:
    """Two tables, and the lake that holds them: `carried` with values, which is gone, and how it was; `bare` without.

    Filling and archiving takes seconds: tests restore into tables of their own, and archive nothing more."""

    settings: StreamSettings
    carried: str
    bare: str
    before: dict[bytes, tuple[bytes, int]]


async def fill(client: Client, table: str) -> None:
    await client.create_table(table, TableSettings(events_carry_values=True))
    for number in range(250):
        await client.put_row(table, b"row %d" % number, b"first")
    await client.put_row(table, b"row 7", b"", ttl_ms=3_600_000)
    await client.delete_row(table, b"row 8")
    await client.put_row(table, b"short", b"gone", ttl_ms=1)


async def rows_in(client: Client, table: str) -> dict[bytes, tuple[bytes, int]]:
    return {row.key: (row.value, row.expires_at_ms) async for row in client.scan_rows(table)}


@pytest.fixture(scope="module")
def filled(core: CorePart, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    carried, bare = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("carried", "bare"))
    with_client(core, lambda client: fill(client, carried))

    async def fill_bare(client: Client) -> None:
        await client.create_table(bare)
        await client.put_row(bare, b"a", b"unseen")
        await client.put_row(bare, b"b", b"")

    with_client(core, fill_bare)
    settings = settings_of(core, spark, tmp_path_factory.mktemp("filled"))
    archived(spark, settings)
    before = with_client(core, lambda client: rows_in(client, carried))
    with_client(core, lambda client: client.delete_table(carried))
    return Filled(settings, carried, bare, before)


class TestRestore:
    """From the archive back through the core."""

    def test_a_table_comes_back_as_it_was_and_again_the_same(
        self, core: CorePart, queue: str, spark: SparkSession, filled: Filled
    ) -> None:
        settings, before, copy = filled.settings, filled.before, f"{queue} copy"
        wanted = restore.Wanted(filled.carried, copy)
        done = restore.run(spark, restore_settings(settings), wanted)
        assert (done.rows, done.missing, done.loaded.written) == (249, 0, 249)
        after = with_client(core, lambda client: rows_in(client, copy))
        assert {key: value for key, (value, _) in after.items()} == {key: value for key, (value, _) in before.items()}
        # The API takes times to live: a deadline comes back as well as both clocks and a call's time allow.
        assert abs(after[b"row 7"][1] - before[b"row 7"][1]) < 60_000
        assert {key for key, (_, until) in after.items() if until} == {b"row 7"}

        with pytest.raises(TableNotEmptyError, match="--existing merge"):
            restore.run(spark, restore_settings(settings), wanted)
        restore.run(spark, restore_settings(settings, spark_existing="merge"), wanted)
        assert with_client(core, lambda client: rows_in(client, copy)).keys() == after.keys()

        with_client(core, lambda client: client.put_row(copy, b"of later", b"x"))
        restore.run(spark, restore_settings(settings, spark_existing="replace", spark_ttl="none"), wanted)
        replaced = with_client(core, lambda client: rows_in(client, copy))
        assert replaced == {key: (value, 0) for key, (value, _) in after.items()}

    def test_values_that_were_not_carried_are_counted_and_refused_before_anything_is_written(
        self, core: CorePart, queue: str, spark: SparkSession, filled: Filled
    ) -> None:
        wanted = restore.Wanted(filled.bare, f"{queue} copy")
        with pytest.raises(JobError, match="1 rows have no value"):
            restore.run(spark, restore_settings(filled.settings), wanted)
        with_client(core, lambda client: self._is_missing(client, f"{queue} copy"))
        done = restore.run(spark, restore_settings(filled.settings, spark_missing_allowed=True), wanted)
        assert (done.rows, done.missing, done.loaded.written) == (2, 1, 1)

    def test_a_dry_run_writes_nothing(self, core: CorePart, queue: str, spark: SparkSession, filled: Filled) -> None:
        wanted = restore.Wanted(filled.carried, f"{queue} copy", dry_run=True)
        done = restore.run(spark, restore_settings(filled.settings), wanted)
        assert (done.rows, done.loaded.written) == (249, 0)
        with_client(core, lambda client: self._is_missing(client, f"{queue} copy"))

    async def _is_missing(self, client: Client, table: str) -> None:
        assert table not in [each.name async for each in client.list_tables()]


def test_the_report_is_of_what_the_lake_holds(
    core: CorePart, queue: str, spark: SparkSession, settings: StreamSettings
) -> None:
    enqueue(core, queue, 5)
    archived(spark, settings)
    written = report.run(spark, ReportSettings(spark_lake=settings.spark_lake))
    assert queue in Path(written.page).read_text()


class TestCommands:
    """`python -m quintet_spark`."""

    def test_all_faults_are_told_at_once(self, tmp_path: Path) -> None:
        options = ("--retry-ms", "soon", "--conf", "no pair", "--sink", "paper")
        ended = CliRunner().invoke(main, ["archive", *options])
        assert ended.exit_code == 78
        for name in ("SPARK_RETRY_MS", "SPARK_CONF", "SPARK_SINK"):
            assert f"QUINTET_{name}" in ended.stderr
        ended = CliRunner().invoke(main, ["archive", "--token-file", str(tmp_path / "none"), "--key-file", __file__])
        assert ended.exit_code == 78
        assert "QUINTET_SPARK_TOKEN_FILE" in ended.stderr
        assert "both, or neither" in ended.stderr

    @pytest.mark.parametrize("job", ["archive", "rollup", "run", "report", "restore", "pipeline"])
    def test_every_job_tells_its_options_and_variables(self, job: str) -> None:
        ended = CliRunner().invoke(main, [job, "--help"])
        assert ended.exit_code == 0
        assert "QUINTET_SPARK_LAKE" in ended.stdout.replace("\n", "").replace(" ", "")

    def test_two_jobs_run_in_one_driver_until_they_are_told_to_stop(
        self, core: CorePart, queue: str, tmp_path: Path
    ) -> None:
        enqueue(core, queue, 5)
        options = ("--endpoint", core.target, "--lake", str(tmp_path / "lake"), "--log-format", "json")
        quick = ("--archive-interval-s", "0.2", "--rollup-interval-s", "0.2", "--master", "local[2]")
        with subprocess.Popen(
            (*COMMAND, "run", "archive", "rollup", *options, *quick), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            waiting = {archive.EVENTS, archive.METRICS, rollup.NAME}
            for line in process.stderr:
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("event") == "batch_done":
                    assert {"rows", "rows_per_s", "lag"} <= said.keys()
                    waiting -= {said["query"]}
                if not waiting:
                    process.send_signal(signal.SIGTERM)
                    break
            rest = process.stderr.read()
            assert process.wait() == 0
        assert '"event":"stopped"' in rest

    def test_a_lake_without_an_archive_is_told_in_a_sentence(self, tmp_path: Path) -> None:
        options = ("--lake", str(tmp_path), "--log-format", "json", "--master", "local[1]")
        ended = subprocess.run((*COMMAND, "report", *options), capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        [line] = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith('{"error"')]
        assert "nothing has been written there yet" in line["error"]
