"""`python -m benchmarks`: Quintet beside beanstalkd, etcd and Redis itself, in one run. `make bench` runs it.

Everything it starts listens on loopback or unix sockets, on free ports, with its files in one folder on a real disk,
and is gone afterwards.
"""

from __future__ import annotations

import quintet_kit.early  # noqa: F401 - before everything else

# isort: split

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from rich.console import Console

from benchmarks.disk import fdatasync_latency, refuse_memory_file_system
from benchmarks.log_scenarios import LogScenarios
from benchmarks.plan import Bench, Plan, Results
from benchmarks.report import show, write_json
from benchmarks.row_scenarios import RowScenarios
from benchmarks.scenarios import QueueScenarios
from benchmarks.stack import quintet

RESULTS = Path(__file__).parent / "results"
CONTENDERS = {"beanstalkd": "beanstalkd", "etcd": "etcd-server", "etcdctl": "etcd-client"}
"""Programs measured for comparison, and their packages."""


def _numbers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(",") if part)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of integers, such as 1,50,500") from error


@click.command()
@click.option("--seconds", default=5.0, show_default=True, help="Measured time of each scenario.")
@click.option("--warm-up", default=1.0, show_default=True, help="Seconds before it that are not counted.")
@click.option("--loops", default="1,50,500", show_default=True, callback=_numbers, help="Concurrent lifecycles.")
@click.option("--queues", default=1, show_default=True, help="Queues that the loops share evenly.")
@click.option("--wide-queues", default=16, show_default=True, help="The most loops once more, on this many queues.")
@click.option(
    "--pending",
    default="1000,1000000",
    show_default=True,
    callback=_numbers,
    help="Pending jobs among which the cost of an operation is measured; empty for none.",
)
@click.option("--rounds", default=1, show_default=True, help="Measure this many times; the medians count.")
@click.option("--only", multiple=True, help="Only scenarios whose name contains this; may be repeated.")
@click.option("--without-quintet", is_flag=True, help="Only beanstalkd, etcd and bare Redis.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(tempfile.gettempdir()),
    show_default=True,
    help="Where the files of every contender go; must be on a disk.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the JSON instead of the table; it is written to a file either way."
)
def main(
    seconds: float,
    warm_up: float,
    loops: tuple[int, ...],
    queues: int,
    wide_queues: int,
    pending: tuple[int, ...],
    rounds: int,
    only: tuple[str, ...],
    without_quintet: bool,
    directory: Path,
    as_json: bool,
) -> None:
    """Measure jobs and rows through every door of Quintet, beside beanstalkd, etcd and Redis itself."""
    # Whatever ends the run, what it started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        refuse_memory_file_system(directory)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    progress = Console(stderr=True)
    for program, package in CONTENDERS.items():
        if not shutil.which(program):
            progress.print(f"{program} is not installed (Debian: apt-get install {package}): measuring without it.")
    with _folder(directory) as folder:
        plan = Plan(folder, warm_up, seconds, loops, queues, wide_queues, pending, rounds, only)
        results = Results(
            announce=lambda what: progress.print(f"{what} ...", style="dim", markup=False, highlight=False)
        )
        disks = [fdatasync_latency(folder)]
        try:
            with nullcontext() if without_quintet else quintet(folder) as stack:
                _measure(Bench(plan, stack, results))
        finally:
            disks.append(fdatasync_latency(folder))
            path = write_json(RESULTS, plan, disks, results)
    if as_json:
        sys.stdout.write(path.read_text())
    else:
        show(plan, disks, results)
        progress.print(f"Written to {path}", highlight=False, soft_wrap=True)
    for failure in results.failures:
        progress.print(f"failed: {failure}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(1 if results.failures else 0)


def _measure(bench: Bench) -> None:
    queues, rows = QueueScenarios(bench), RowScenarios(bench)
    for number in range(bench.plan.rounds):
        queues.one_round()
        # etcd's own measurement takes a minute: once is enough.
        rows.one_round(with_etcd=number == 0)
    if bench.stack:
        queues.pending(bench.stack)
        LogScenarios(bench).run(bench.stack)


@contextmanager
def _folder(directory: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="quintet-bench-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
