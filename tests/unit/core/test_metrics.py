"""The core's metrics: nothing that is counted gets lost on the way to the scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from quintet_core.domain.errors import Reason, refusal
from quintet_core.metrics import CoreMetrics, Recorder, read_at_scrape


def scrape(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def recorded() -> tuple[CollectorRegistry, CoreMetrics, Recorder]:
    registry = CollectorRegistry()
    metrics = CoreMetrics(registry)
    recorder = Recorder(metrics)
    return registry, metrics, recorder


def test_operations_are_counted_by_verb_and_outcome() -> None:
    registry, _, recorder = recorded()
    recorder.answered("enqueue", object())
    recorder.answered("enqueue", object())
    recorder.answered("enqueue", refusal(Reason.QUEUE_FULL))
    for _ in range(2):  # a second scrape sees the same
        samples = scrape(registry)
        assert samples['quintet_core_operations_total{outcome="ok",verb="enqueue"}'] == 2
        assert samples['quintet_core_operations_total{outcome="queue_full",verb="enqueue"}'] == 1
        assert samples['quintet_core_operations_total{outcome="ok",verb="dequeue"}'] == 0


def test_calls_are_timed() -> None:
    registry, _, recorder = recorded()
    recorder.called("count", object(), 0.003)
    recorder.called("count", object(), 100.0)
    samples = scrape(registry)
    assert samples['quintet_core_call_seconds_bucket{le="0.0025",verb="count"}'] == 0
    assert samples['quintet_core_call_seconds_bucket{le="0.005",verb="count"}'] == 1
    assert samples['quintet_core_call_seconds_bucket{le="+Inf",verb="count"}'] == 2
    assert samples['quintet_core_call_seconds_count{verb="count"}'] == 2
    assert samples['quintet_core_call_seconds_sum{verb="count"}'] == 100.003


def test_a_value_on_a_bound_is_below_it() -> None:
    registry, _, recorder = recorded()
    recorder.on_batch(10, 1, 0.001)
    samples = scrape(registry)
    assert samples['quintet_core_batch_operations_bucket{le="10.0"}'] == 1
    assert samples['quintet_core_batch_operations_bucket{le="5.0"}'] == 0
    assert samples["quintet_core_redis_round_trip_seconds_sum"] == 0.001


def test_gauges_are_read_when_asked_for() -> None:
    registry, metrics, _ = recorded()
    value = 1
    read_at_scrape(metrics.parked, lambda: value)
    assert scrape(registry)["quintet_core_parked_dequeues"] == 1
    value = 7
    assert scrape(registry)["quintet_core_parked_dequeues"] == 7
