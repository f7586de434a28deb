"""The report's verdicts."""

from pathlib import Path

from benchmarks.etcd import CLIENTS
from benchmarks.log_scenarios import EVENTS_OFF, EVENTS_WRITTEN, FOLLOWED, NOT_READ, PARQUET
from benchmarks.measurement import Measurement, Samples, percentile
from benchmarks.plan import Plan, Results
from benchmarks.row_scenarios import ETCD, NOTIFICATIONS, REDIS_SET, ZEROMQ_UPDATE
from benchmarks.scenarios import BEANSTALKD_ALWAYS, JOB_CENTRE, PENDING, PENDING_LOOPS
from benchmarks.targets import Target, targets

PLAN = Plan(Path(), 1.0, 5.0, (1, 500), 1, 1, (1000, 1_000_000))


def measured(scenario: str, loops: int, lifecycles: int, cpu_seconds: float = 1.0) -> Measurement:
    samples = Samples(seconds=1.0, operations=3 * lifecycles, lifecycles=lifecycles)
    samples.cpu_seconds = {"load": 5.0, "core": cpu_seconds}
    return Measurement.of(scenario, loops, 1, samples, others_seconds=0.0)


def verdicts(*measurements: Measurement) -> dict[str, Target]:
    results = Results(announce=lambda _: None, measurements=list(measurements))
    return {target.what: target for target in targets(PLAN, results)}


def test_what_a_run_did_not_measure_is_neither_reached_nor_missed() -> None:
    assert {target.reached for target in verdicts().values()} == {None}


def test_job_centre_is_held_against_beanstalkd_of_the_same_run() -> None:
    found = verdicts(measured(JOB_CENTRE, 500, 13_000), measured(BEANSTALKD_ALWAYS, 500, 6_500))
    assert found["Job Centre, 500 connections: lifecycles/s"].reached is True
    assert found["Job Centre, 500 connections: times beanstalkd -f 0"].reached is False


def updated(scenario: str, clients: int, per_s: int, p99_ms: float = 1.0) -> Measurement:
    samples = Samples(seconds=1.0, operations=per_s, operation_latencies=[p99_ms / 1000] * 10)
    return Measurement.of(scenario, clients, 1, samples, others_seconds=0.0)


def test_zeromq_is_held_against_etcd_and_redis_of_the_same_run() -> None:
    found = verdicts(
        updated(ZEROMQ_UPDATE.format(value="1 KiB"), 500, 12_000),
        updated(ETCD, CLIENTS, 9_000),
        updated(REDIS_SET.format(value="1 KiB"), 500, 66_000),
    )
    times_etcd = found["ZeroMQ UPDATE, 1 KiB, 500 clients: times etcd"]
    assert (times_etcd.measured, times_etcd.reached) == ("1.33", True)
    assert found["ZeroMQ UPDATE, 1 KiB, 500 clients: times Redis SET"].reached is False


def test_notifications_count_only_at_the_rate_that_was_asked() -> None:
    what = "ZeroMQ notifications at 5,000 updates/s: p99 from reply, ms"
    assert verdicts(updated(NOTIFICATIONS, 1, 4_990, p99_ms=21))[what].reached is False
    assert verdicts(updated(NOTIFICATIONS, 1, 4_990, p99_ms=19))[what].reached is True
    assert verdicts(updated(NOTIFICATIONS, 1, 2_000, p99_ms=19))[what].reached is None


def test_the_median_round_counts() -> None:
    rounds = [measured(JOB_CENTRE, 500, lifecycles) for lifecycles in (20_000, 11_000, 13_000)]
    assert verdicts(*rounds)["Job Centre, 500 connections: lifecycles/s"].measured == "13,000"


def test_the_load_generator_is_no_part_of_the_cost_among_pending_jobs() -> None:
    few = measured(PENDING.format(jobs=1000), PENDING_LOOPS, 1000, cpu_seconds=1.0)
    many = measured(PENDING.format(jobs=1_000_000), PENDING_LOOPS, 1000, cpu_seconds=1.6)
    cost = next(target for what, target in verdicts(few, many).items() if what.startswith("CPU per operation"))
    assert (cost.measured, cost.reached) == ("1.6", False)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 99) == 2.0
    assert percentile([], 50) == 0.0


def test_the_log_is_held_against_runs_without_it() -> None:
    found = verdicts(
        measured(EVENTS_WRITTEN, 500, 8_600),
        measured(EVENTS_OFF, 500, 10_000),
        measured(FOLLOWED, 500, 7_900),
        measured(NOT_READ, 500, 10_000),
        updated(PARQUET, 1, 150_000),
    )
    events = found["Writing the events of jobs: lifecycles/s lost of a Session, %"]
    assert (events.measured, events.reached) == ("14", True)
    assert found["A reader of blocks that follows the log: lifecycles/s lost of a Session, %"].reached is False
    assert found["The archive job beside: lifecycles/s lost of a Session, %"].reached is None
    assert found["Log to Parquet, local[2], core and Redis beside: events/s"].reached is True
