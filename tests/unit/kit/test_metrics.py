"""A metric is declared once, with closed label sets."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from quintet_kit.metrics import Counting, Gauging, MetricSet, Observing, metrics_table


class ExampleMetrics(MetricSet):
    requests = Counting("example_requests_total", "Requests.", command=("put", "get"), outcome=("ok", "error"))
    connections = Gauging("example_connections", "Open connections.")
    latency = Observing("example_latency_seconds", "Latency.", buckets=(0.1, 1.0), command=("put",))


def test_every_child_is_exposed_from_the_start() -> None:
    text = generate_latest(ExampleMetrics(CollectorRegistry()).registry).decode()
    assert text.count("example_requests_total{") == 4
    assert 'example_requests_total{command="put",outcome="ok"} 0.0' in text


def test_children_are_found_by_their_label_values_in_declared_order() -> None:
    metrics = ExampleMetrics(CollectorRegistry())
    metrics.requests.at("get", "error").inc()
    metrics.connections.at().set(3)
    metrics.latency.at("put").observe(0.5)
    text = generate_latest(metrics.registry).decode()
    assert 'example_requests_total{command="get",outcome="error"} 1.0' in text
    assert "example_connections 3.0" in text
    assert 'example_latency_seconds_bucket{command="put",le="1.0"} 1.0' in text


def test_a_label_value_outside_the_declared_set_is_refused() -> None:
    with pytest.raises(KeyError):
        ExampleMetrics(CollectorRegistry()).requests.at("drop", "ok")


def test_two_instances_share_nothing() -> None:
    one, two = ExampleMetrics(CollectorRegistry()), ExampleMetrics(CollectorRegistry())
    one.connections.at().set(1)
    assert "example_connections 0.0" in generate_latest(two.registry).decode()


def test_the_table_names_every_metric() -> None:
    assert metrics_table(ExampleMetrics).splitlines()[2:] == [
        "| `example_requests_total` | counter | `command`: put, get; `outcome`: ok, error | Requests. |",
        "| `example_connections` | gauge |  | Open connections. |",
        "| `example_latency_seconds` | histogram | `command`: put | Latency. |",
    ]
