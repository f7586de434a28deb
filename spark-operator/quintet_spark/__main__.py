"""`python -m quintet_spark <job>`: the jobs as commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
import msgspec
from pyspark.errors import PySparkException
from quintet_client import QuintetError
from quintet_kit import logs
from quintet_kit.logs import get_logger
from quintet_kit.options import setting_options, settings_of

from quintet_spark.jobs import archive, report, restore, rollup
from quintet_spark.jobs.instants import Instant
from quintet_spark.jobs.loading import TableNotEmptyError
from quintet_spark.jobs.pipeline import Pipeline, PipelineError
from quintet_spark.jobs.running import JobError, Running, run_until, stop_signals
from quintet_spark.jobs.session import BATCH_SHUFFLES, spark_session
from quintet_spark.jobs.settings import ReportSettings, RestoreSettings, SparkSettings, StreamSettings
from quintet_spark.sinks.sink import SinkError

STREAMS: dict[str, Callable[..., list[Running]]] = {archive.NAME: archive.start, rollup.NAME: rollup.start}
FAILED = 1
_options = partial(setting_options, without_prefix="spark_")


@click.group()
def main() -> None:
    """Quintet's logs into a lake of Parquet, and what is made of them.

    Every option is also a variable of the environment, named beside it; all faults are told at once (exit code 78).
    """


@main.command(archive.NAME)
@_options(StreamSettings)
def archive_command(**given: Any) -> None:
    """Archive both logs, record by record, exactly once."""
    _stream((archive.NAME,), given)


@main.command(rollup.NAME)
@_options(StreamSettings)
def rollup_command(**given: Any) -> None:
    """Roll both logs up by queue and minute: counts, waits, depths."""
    _stream((rollup.NAME,), given)


@main.command("run")
@click.argument("jobs", nargs=-1, required=True, type=click.Choice(list(STREAMS)))
@_options(StreamSettings)
def run_command(jobs: tuple[str, ...], **given: Any) -> None:
    """Run streaming JOBS (archive, rollup) together, in one driver."""
    _stream(tuple(dict.fromkeys(jobs)), given)


@main.command("report")
@_options(ReportSettings)
def report_command(**given: Any) -> None:
    """Write the report on what the lake holds: tables, and a page to read."""
    settings = settings_of(ReportSettings, given)
    with _told(settings, "report"), spark_session(settings, "report", shuffles=BATCH_SHUFFLES) as spark:
        written = report.run(spark, settings)
        get_logger().info("report_written", page=written.page, needs_action=written.needs_action)
        click.echo(written.page)


@main.command("restore")
@click.argument("table")
@click.option("--at", "at_ms", type=Instant(), help="As it was at this instant, 2026-03-01T12:00:00Z.  [default: now]")
@click.option("--through-offset", type=click.IntRange(min=0), help="As it was behind this offset of its partition.")
@click.option("--into", help="Table to write to.  [default: the same]")
@click.option("--dry-run", is_flag=True, help="Rebuild and count, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a sentence at the end.")
@_options(RestoreSettings)
def restore_command(
    table: str,
    at_ms: int | None,
    through_offset: int | None,
    into: str | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Rebuild TABLE as it was at an instant from the archive, and write it back through a core."""
    if at_ms is not None and through_offset is not None:
        raise click.UsageError("--at and --through-offset say the same thing: give one of them")
    settings = settings_of(RestoreSettings, given)
    wanted = restore.Wanted(table, table if into is None else into, at_ms, through_offset, dry_run)
    with _told(settings, "restore"), spark_session(settings, "restore", shuffles=BATCH_SHUFFLES) as spark:
        done = restore.run(spark, settings, wanted)
        _say_restored(done, wanted, as_json)


@main.command("pipeline")
@click.option("--seconds", type=click.IntRange(5, 3600), default=60, show_default=True, help="Length of the load.")
@click.option("--folder", help="Where the lake and the report go.  [default: a new folder in the temporary one]")
@click.option("--rate", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Jobs a second, about.")
@_options(SparkSettings)
def pipeline_command(seconds: int, folder: str | None, rate: int, **given: Any) -> None:
    """Show it all: a Quintet of its own with a synthetic load, archive and rollup beside it, then the report."""
    settings = settings_of(SparkSettings, given)
    with _told(settings, "pipeline"):
        click.echo(Pipeline(settings, seconds, folder, rate).run())


def _stream(jobs: tuple[str, ...], given: dict[str, Any]) -> None:
    settings = settings_of(StreamSettings, given)
    name = "-".join(jobs)
    with _told(settings, name), spark_session(settings, name) as spark, stop_signals() as stop:
        running: list[Running] = []
        for job in jobs:
            running += STREAMS[job](spark, settings)
        get_logger().info("started", queries=[each.name for each in running], lake=settings.spark_lake)
        run_until(spark, running, stop, stop_ms_max=settings.spark_stop_ms_max)
        get_logger().info("stopped" if stop.is_set() else "finished")


def _say_restored(done: restore.Restored, wanted: restore.Wanted, as_json: bool) -> None:
    record = {
        "table": wanted.table,
        "into": wanted.into,
        "partition": done.cut.partition,
        "through_offset": done.cut.through_offset,
        "rows": done.rows,
        "missing": done.missing,
        "written": done.loaded.written,
        "lapsed": done.loaded.lapsed,
        "dry_run": wanted.dry_run,
    }
    if as_json:
        click.echo(msgspec.json.encode(record).decode())
    elif wanted.dry_run:
        click.echo(f"{done.rows} rows would be written to {wanted.into!r}; {done.missing} have no value.")
    else:
        click.echo(
            f"{done.loaded.written} rows written to {wanted.into!r}; the time of {done.loaded.lapsed} has passed, "
            f"{done.missing} have no value."
        )


@contextmanager
def _told(settings: SparkSettings, name: str) -> Iterator[None]:
    """Logs of a job; and what ends it, in one sentence."""
    logs.configure(name, settings.log_level, settings.log_format)
    try:
        yield
    except (JobError, SinkError, PipelineError, TableNotEmptyError, QuintetError) as error:
        get_logger().error("failed", error=str(error))
        sys.exit(FAILED)
    except PySparkException as error:
        get_logger().error("failed", error=str(error).splitlines()[0])
        sys.exit(FAILED)


if __name__ == "__main__":
    main(prog_name="python -m quintet_spark")
