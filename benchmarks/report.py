"""The table, the targets and the JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.beanstalkd import FSYNC_ARGUMENTS
from benchmarks.disk import DiskLatency
from benchmarks.log_scenarios import PARQUET
from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, Results
from benchmarks.targets import Target, targets

# Each column shows the process of that name; the server is whichever keeps the jobs.
CPU_COLUMNS = {"load": ("load",), "adapter": ("adapter",), "core": ("core",), "server": ("redis", "beanstalkd", "etcd")}
SPARK_COLUMNS = {"core": ("core",), "Redis": ("redis",), "JVM": ("jvm",), "Python": ("python",)}
CONSOLE_WIDTH_MIN = 140
SCENARIO_WIDTH_MIN = 37


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
    medians = results.medians()
    if lifecycles := [m for m in medians if m.lifecycles_per_s]:
        console.print(_lifecycle_table(lifecycles))
    if rows := [m for m in medians if not m.lifecycles_per_s and m.scenario != PARQUET]:
        console.print(_row_table(rows))
    if parquet := results.find(PARQUET, 1):
        console.print(_parquet_table(parquet))
    for jobs, job_bytes in results.pending_job_bytes.items():
        console.print(
            f"Redis memory per job beyond its payload, {jobs:,} pending: {job_bytes:.0f} bytes", highlight=False
        )
    console.print(_target_table(targets(plan, results)))


def _lifecycle_table(measurements: Sequence[Measurement]) -> Table:
    title = (
        "A lifecycle: put, take, delete; of TaskFlux four operations. Latency p50 / p99 in ms; CPU in µs per operation."
    )
    table = _table(title, "loops", "queues", "lifecycles/s", "lifecycle", "operation")
    for m in measurements:
        figures = (str(m.loops), str(m.queues), f"{m.lifecycles_per_s:,.0f}")
        latencies = (
            _latencies(m.lifecycle_p50_us, m.lifecycle_p99_us),
            _latencies(m.operation_p50_us, m.operation_p99_us),
        )
        end_section = m.scenario == list(FSYNC_ARGUMENTS)[-1]
        table.add_row(m.scenario, *figures, *latencies, *_cpu_cells(m), end_section=end_section)
    return table


def _row_table(measurements: Sequence[Measurement]) -> Table:
    title = "Rows. Latency p50 / p99 in ms; of notifications and watches, from the durable reply to the receipt."
    table = _table(title, "clients", "operations/s", "latency")
    for m in measurements:
        figures = (str(m.loops), f"{m.operations_per_s:,.0f}", _latencies(m.operation_p50_us, m.operation_p99_us))
        table.add_row(m.scenario, *figures, *_cpu_cells(m))
    return table


def _parquet_table(m: Measurement) -> Table:
    title = "The log to Parquet, from the first batch to the last. CPU in µs per event."
    table = _table(title, "seconds", "events", "events/s", columns=SPARK_COLUMNS)
    figures = (f"{m.seconds:.1f}", f"{m.operations_per_s * m.seconds:,.0f}", f"{m.operations_per_s:,.0f}")
    table.add_row(m.scenario, *figures, *_cpu_cells(m, SPARK_COLUMNS))
    return table


def _table(title: str, *figures: str, columns: Mapping[str, Sequence[str]] = CPU_COLUMNS) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("scenario", no_wrap=True, min_width=SCENARIO_WIDTH_MIN)
    for heading in (*figures, *(f"{name}\nCPU" for name in columns), "others\nCPUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cpu_cells(m: Measurement, columns: Mapping[str, Sequence[str]] = CPU_COLUMNS) -> Iterator[str]:
    for names in columns.values():
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
        "failures": results.failures,
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
        "etcd": _version("etcd", "--version").partition("\n")[0],
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(*command: str) -> str:
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
