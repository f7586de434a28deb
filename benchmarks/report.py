"""The table, the targets and the JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.beanstalkd import FSYNC_ARGUMENTS
from benchmarks.disk import DiskLatency
from benchmarks.measurement import Measurement
from benchmarks.scenarios import (
    BEANSTALKD_ALWAYS,
    JOB_CENTRE,
    PENDING,
    PENDING_LOOPS,
    PIPELINED,
    SESSION,
    Plan,
    Results,
)

# Each column shows the process of that name; the server is whichever keeps the jobs.
CPU_COLUMNS = {"load": ("load",), "adapter": ("adapter",), "core": ("core",), "server": ("redis", "beanstalkd")}
CONSOLE_WIDTH_MIN = 130


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach. `reached` is None when the run did not measure it."""

    what: str
    wanted: str
    measured: str
    reached: bool | None


def targets(plan: Plan, results: Results) -> list[Target]:
    """The figures that the project set itself, against this run."""
    return [*_throughput_targets(plan, results), *_latency_targets(results), *_pending_targets(plan, results)]


def _throughput_targets(plan: Plan, results: Results) -> Iterator[Target]:
    session = results.find(SESSION, 500, plan.queues)
    job_centre = results.find(JOB_CENTRE, 500, plan.queues)
    beanstalkd = results.find(BEANSTALKD_ALWAYS, 500, plan.queues)
    pipelined = results.find(PIPELINED, 1, 1)
    requests_per_s = pipelined.operations_per_s if pipelined else None
    yield _at_least("Session, 500 loops: lifecycles/s", 25_000, session.lifecycles_per_s if session else None)
    yield _at_least(
        "Job Centre, 500 connections: lifecycles/s", 12_000, job_centre.lifecycles_per_s if job_centre else None
    )
    ratio = job_centre.lifecycles_per_s / beanstalkd.lifecycles_per_s if job_centre and beanstalkd else None
    yield _at_least("Job Centre, 500 connections: times beanstalkd -f 0", 2.5, ratio)
    yield _at_least("Job Centre, one pipelining connection: requests/s", 10_000, requests_per_s)


def _latency_targets(results: Results) -> Iterator[Target]:
    ours, theirs = results.find(JOB_CENTRE, 1, 1), results.find(BEANSTALKD_ALWAYS, 1, 1)
    ratio = theirs.lifecycles_per_s / ours.lifecycles_per_s if ours and theirs else None
    yield _at_most("Job Centre, 1 connection: lifecycle in times of beanstalkd -f 0", 4.5, ratio)


def _pending_targets(plan: Plan, results: Results) -> Iterator[Target]:
    found = [m for jobs in plan.pending_jobs if (m := results.find(PENDING.format(jobs=jobs), PENDING_LOOPS, 1))]
    among = f"{' to '.join(f'{n:,}' for n in plan.pending_jobs)} jobs pending"
    time_ratio = found[0].operations_per_s / found[-1].operations_per_s if len(found) > 1 else None
    cpu_ratio = _served_cpu(found[-1]) / _served_cpu(found[0]) if len(found) > 1 else None
    yield _at_most(f"Time per operation, {among}, times", 1.5, time_ratio)
    yield _at_most(f"CPU per operation of adapter, core and Redis, {among}, times", 1.5, cpu_ratio)
    largest = max(results.pending_job_bytes, default=0)
    yield _at_most(
        "Redis memory per pending job beyond its payload, bytes", 350, results.pending_job_bytes.get(largest)
    )


def _served_cpu(m: Measurement) -> float:
    return sum(used for name, used in m.cpu_us_per_operation.items() if name != "load")


def _at_least(what: str, wanted: float, measured: float | None) -> Target:
    return Target(what, f">= {_figure(wanted)}", _figure(measured), None if measured is None else measured >= wanted)


def _at_most(what: str, wanted: float, measured: float | None) -> Target:
    return Target(what, f"<= {_figure(wanted)}", _figure(measured), None if measured is None else measured <= wanted)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def show(plan: Plan, disks: Sequence[DiskLatency], results: Results) -> None:
    """Print disk, measurements and targets."""
    console = Console()
    console.width = max(console.width, CONSOLE_WIDTH_MIN)
    for disk in disks:
        console.print(
            f"fdatasync of an append in {disk.directory} ({disk.file_system}): "
            f"p50 {disk.p50_us:.0f} µs, p99 {disk.p99_us:.0f} µs, {disk.samples} samples",
            highlight=False,
            soft_wrap=True,
        )
    console.print(_measurement_table(results.medians()))
    for jobs, job_bytes in results.pending_job_bytes.items():
        console.print(
            f"Redis memory per job beyond its payload, {jobs:,} pending: {job_bytes:.0f} bytes", highlight=False
        )
    console.print(_target_table(targets(plan, results)))


def _measurement_table(measurements: Sequence[Measurement]) -> Table:
    title = "A lifecycle is put, take, delete. Latency p50 / p99 in ms; CPU in µs per operation (each of the three)."
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("scenario", no_wrap=True)
    figures = ("loops", "queues", "lifecycles/s", "lifecycle", "operation")
    for heading in (*figures, *(f"{name}\nCPU" for name in CPU_COLUMNS), "others\nCPUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for m in measurements:
        table.add_row(m.scenario, *_cells(m), end_section=m.scenario == list(FSYNC_ARGUMENTS)[-1])
    return table


def _cells(m: Measurement) -> Iterator[str]:
    yield from (str(m.loops), str(m.queues), f"{m.lifecycles_per_s:,.0f}")
    yield _latencies(m.lifecycle_p50_us, m.lifecycle_p99_us)
    yield _latencies(m.operation_p50_us, m.operation_p99_us)
    for names in CPU_COLUMNS.values():
        yield "".join(_digits(m.cpu_us_per_operation[name]) for name in names if name in m.cpu_us_per_operation)
    yield f"{m.others_cpus:.2f}"


def _latencies(p50_us: float, p99_us: float) -> str:
    return f"{_digits(p50_us / 1000)} / {_digits(p99_us / 1000)}" if p99_us else ""


def _digits(value: float) -> str:
    """Three digits or so."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _target_table(found: Sequence[Target]) -> Table:
    table = Table(title="Targets", title_justify="left", box=SIMPLE)
    for heading in ("figure", "wanted", "measured", ""):
        table.add_column(heading)
    for target in found:
        verdict = {None: "not measured", True: "[green]reached[/]", False: "[red]missed[/]"}[target.reached]
        table.add_row(target.what, target.wanted, target.measured, verdict)
    return table


def write_json(directory: Path, plan: Plan, disks: Sequence[DiskLatency], results: Results) -> Path:
    """Write everything to a file of its own in `directory`, named by the time; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = directory / f"{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "at": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "plan": {name: value for name, value in asdict(plan).items() if name != "directory"},
        "fdatasync": [asdict(disk) for disk in disks],
        "measurements": [asdict(measurement) for measurement in results.measurements],
        "pending_job_bytes": results.pending_job_bytes,
        "targets": [asdict(target) for target in targets(plan, results)],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def machine() -> dict[str, str | int]:
    """What it ran on."""
    return {
        "kernel": platform.release(),
        "processors": os.cpu_count() or 0,
        "processor": _processor(),
        "python": platform.python_version(),
        "redis": _version("redis-server", "--version"),
        "beanstalkd": _version("beanstalkd", "-v"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(*command: str) -> str:
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
