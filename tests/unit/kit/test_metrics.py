"""A metric is declared once, with closed label sets."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from quintet_kit.metrics import (
    SECONDS_BUCKETS,
    Counting,
    Distributing,
    Distribution,
    Gauging,
    Listing,
    MetricSet,
    Observing,
    Tallying,
    metrics_table,
    process_registry,
    series,
)


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


class HotMetrics(MetricSet):
    requests = Tallying("hot_requests_total", "Requests.", command=("put", "get"))
    latency = Distributing("hot_latency_seconds", "Latency.", buckets=(0.1, 1.0), command=("put",))


def test_what_is_kept_as_plain_numbers_is_exposed_alike() -> None:
    metrics = HotMetrics(CollectorRegistry())
    metrics.requests.at("get").count += 2
    for seconds in (0.1, 0.5, 3.0):
        metrics.latency.at("put").observe(seconds)
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert [line for line in lines if line[0] != "#"] == [
        'hot_requests_total{command="put"} 0.0',
        'hot_requests_total{command="get"} 2.0',
        'hot_latency_seconds_bucket{command="put",le="0.1"} 1.0',
        'hot_latency_seconds_bucket{command="put",le="1.0"} 2.0',
        'hot_latency_seconds_bucket{command="put",le="+Inf"} 3.0',
        'hot_latency_seconds_count{command="put"} 3.0',
        'hot_latency_seconds_sum{command="put"} 3.6',
    ]


def test_labels_may_be_known_only_by_the_process() -> None:
    registry = CollectorRegistry()
    family = HotMetrics.requests.create(registry, command=("drop",))
    family.at("drop").count += 1
    assert 'hot_requests_total{command="drop"} 1.0' in generate_latest(registry).decode()
    with pytest.raises(KeyError):
        family.at("put")


def test_values_fall_into_their_buckets() -> None:
    distribution = Distribution(SECONDS_BUCKETS)
    for seconds in (0.0001, 0.0005, 0.003, 100.0):
        distribution.observe(seconds)
    counts = dict(distribution.read()[0])
    assert (counts["0.0005"], counts["0.0025"], counts["0.005"], counts["10.0"], counts["+Inf"]) == (2, 2, 3, 3, 4)


def test_every_process_shows_what_it_takes_of_its_machine() -> None:
    exposed = generate_latest(process_registry()).decode()
    assert "# TYPE process_resident_memory_bytes gauge" in exposed
    assert "# TYPE process_cpu_seconds_total counter" in exposed


class NamedMetrics(MetricSet):
    sizes = Listing("example_size", "Sizes.", "gauge", name="what users name")
    changes = Listing("example_changes_total", "Changes.", "counter", name="what users name")


def test_a_listing_is_read_at_the_scrape() -> None:
    metrics = NamedMetrics(CollectorRegistry())
    assert "example_size{" not in generate_latest(metrics.registry).decode()
    metrics.sizes.at().read = lambda: [(('a "b"\n',), 2.5)]
    metrics.changes.at().read = lambda: [(("",), 1), (("b",), 2)]
    text = generate_latest(metrics.registry).decode()
    assert 'example_size{name="a \\"b\\"\\n"} 2.5' in text
    assert 'example_changes_total{name=""} 1.0' in text
    assert 'example_changes_total{name="b"} 2.0' in text


def test_the_table_says_in_words_what_a_listing_lists() -> None:
    assert "| `example_size` | gauge | `name`: what users name | Sizes. |" in metrics_table(NamedMetrics)


class AllMetrics(ExampleMetrics, NamedMetrics):
    told = Tallying("example_told_total", "Told.", command=("put", "get"))
    waits = Distributing("example_waits_seconds", "Waits.", buckets=(0.1, 1.0, 5.0), command=("put",))


def test_series_are_those_of_the_scrape_that_are_not_zero() -> None:
    metrics = AllMetrics(CollectorRegistry())
    assert series(metrics) == {}
    metrics.requests.at("get", "error").inc()
    metrics.connections.at().set_function(lambda: 3)
    metrics.told.at("put").count += 2
    metrics.waits.at("put").observe(0.5, 3)
    metrics.latency.at("put").observe(0.5)
    metrics.sizes.at().read = lambda: [(("a",), 1)]
    found = series(metrics)
    assert found == {
        'example_requests_total{command="get",outcome="error"}': 1,
        "example_connections": 3,
        'example_told_total{command="put"}': 2,
        'example_waits_seconds_bucket{command="put",le="1.0"}': 3,
        'example_waits_seconds_count{command="put"}': 3,
        'example_waits_seconds_sum{command="put"}': 1.5,
        'example_latency_seconds_bucket{command="put",le="1.0"}': 1,
        'example_latency_seconds_bucket{command="put",le="+Inf"}': 1,
        'example_latency_seconds_count{command="put"}': 1,
        'example_latency_seconds_sum{command="put"}': 0.5,
    }
    lines = generate_latest(metrics.registry).decode().splitlines()
    scraped = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    assert found.items() <= scraped.items()
