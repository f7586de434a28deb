"""The figures that the project set itself, against a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import etcd
from benchmarks.log_scenarios import (
    ARCHIVED,
    EVENTS_OFF,
    EVENTS_WRITTEN,
    FOLLOWED,
    NOT_READ,
    PARQUET,
)
from benchmarks.log_scenarios import LOOPS as LOG_LOOPS
from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, Results
from benchmarks.row_scenarios import ETCD, NOTIFICATIONS, REDIS_SET, UPDATES_PER_S, ZEROMQ_UPDATE
from benchmarks.scenarios import (
    BEANSTALKD_ALWAYS,
    ETZEL_LINES,
    ETZEL_WEBSOCKET,
    JOB_CENTRE,
    PENDING,
    PENDING_LOOPS,
    PIPELINED,
    SESSION,
    TASKFLUX,
)

_RATE_KEPT = 0.98
"""Share of the asked rate of updates below which a latency says nothing about that rate."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach. `reached` is None when the run did not measure it."""

    what: str
    wanted: str
    measured: str
    reached: bool | None


def targets(plan: Plan, results: Results) -> list[Target]:
    """All of them."""
    return [
        *_throughput_targets(plan, results),
        *_latency_targets(results),
        *_pending_targets(plan, results),
        *_row_targets(results),
        *_log_targets(results),
    ]


def _throughput_targets(plan: Plan, results: Results) -> Iterator[Target]:
    def lifecycles_per_s(scenario: str) -> float | None:
        found = results.find(scenario, 500, plan.queues)
        return found.lifecycles_per_s if found else None

    yield _at_least("Session, 500 loops: lifecycles/s", 25_000, lifecycles_per_s(SESSION))
    yield _at_least("Job Centre, 500 connections: lifecycles/s", 12_000, lifecycles_per_s(JOB_CENTRE))
    ratio = _ratio(lifecycles_per_s(JOB_CENTRE), lifecycles_per_s(BEANSTALKD_ALWAYS))
    yield _at_least("Job Centre, 500 connections: times beanstalkd -f 0", 2.5, ratio)
    pipelined = results.find(PIPELINED, 1)
    requests_per_s = pipelined.operations_per_s if pipelined else None
    yield _at_least("Job Centre, one pipelining connection: requests/s", 10_000, requests_per_s)
    yield _at_least("TaskFlux, 500 connections: lifecycles/s", 6_000, lifecycles_per_s(TASKFLUX))
    for scenario in (ETZEL_WEBSOCKET, ETZEL_LINES):
        yield _at_least(f"{scenario}, 500 connections: lifecycles/s", 8_000, lifecycles_per_s(scenario))


def _latency_targets(results: Results) -> Iterator[Target]:
    ours, theirs = results.find(JOB_CENTRE, 1), results.find(BEANSTALKD_ALWAYS, 1)
    ratio = theirs.lifecycles_per_s / ours.lifecycles_per_s if ours and theirs else None
    yield _at_most("Job Centre, 1 connection: lifecycle in times of beanstalkd -f 0", 4.5, ratio)


def _pending_targets(plan: Plan, results: Results) -> Iterator[Target]:
    found = [m for jobs in plan.pending_jobs if (m := results.find(PENDING.format(jobs=jobs), PENDING_LOOPS))]
    among = f"{' to '.join(f'{n:,}' for n in plan.pending_jobs)} jobs pending"
    time_ratio = found[0].operations_per_s / found[-1].operations_per_s if len(found) > 1 else None
    cpu_ratio = _served_cpu(found[-1]) / _served_cpu(found[0]) if len(found) > 1 else None
    yield _at_most(f"Time per operation, {among}, times", 1.5, time_ratio)
    yield _at_most(f"CPU per operation of adapter, core and Redis, {among}, times", 1.5, cpu_ratio)
    largest = max(results.pending_job_bytes, default=0)
    yield _at_most(
        "Redis memory per pending job beyond its payload, bytes", 350, results.pending_job_bytes.get(largest)
    )


def _row_targets(results: Results) -> Iterator[Target]:
    update = results.find(ZEROMQ_UPDATE.format(value="1 KiB"), 500)
    for what, wanted, theirs in (
        ("etcd", 1.3, results.find(ETCD, etcd.CLIENTS)),
        ("Redis SET", 0.2, results.find(REDIS_SET.format(value="1 KiB"), 500)),
    ):
        ratio = update.operations_per_s / theirs.operations_per_s if update and theirs else None
        yield _at_least(f"ZeroMQ UPDATE, 1 KiB, 500 clients: times {what}", wanted, ratio)
    told = results.find(NOTIFICATIONS, 1)
    kept = told is not None and told.operations_per_s >= UPDATES_PER_S * _RATE_KEPT
    p99_ms = told.operation_p99_us / 1000 if told and kept else None
    yield _at_most(f"ZeroMQ notifications at {UPDATES_PER_S:,} updates/s: p99 from reply, ms", 20, p99_ms)


def _log_targets(results: Results) -> Iterator[Target]:
    for what, wanted, scenario, without in (
        ("Writing the events of jobs", 15, EVENTS_WRITTEN, EVENTS_OFF),
        ("A reader of blocks that follows the log", 20, FOLLOWED, NOT_READ),
        ("The archive job beside", 20, ARCHIVED, NOT_READ),
    ):
        ratio = _ratio(_lifecycles_per_s(results, scenario), _lifecycles_per_s(results, without))
        lost = None if ratio is None else 100 * (1 - ratio)
        yield _at_most(f"{what}: lifecycles/s lost of a Session, %", wanted, lost)
    parquet = results.find(PARQUET, 1)
    yield _at_least(
        "Log to Parquet, local[2], core and Redis beside: events/s",
        150_000,
        parquet.operations_per_s if parquet else None,
    )


def _lifecycles_per_s(results: Results, scenario: str) -> float | None:
    found = results.find(scenario, LOG_LOOPS)
    return found.lifecycles_per_s if found else None


def _served_cpu(m: Measurement) -> float:
    return sum(used for name, used in m.cpu_us_per_operation.items() if name != "load")


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _at_least(what: str, wanted: float, measured: float | None) -> Target:
    return Target(what, f">= {_figure(wanted)}", _figure(measured), None if measured is None else measured >= wanted)


def _at_most(what: str, wanted: float, measured: float | None) -> Target:
    return Target(what, f"<= {_figure(wanted)}", _figure(measured), None if measured is None else measured <= wanted)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
