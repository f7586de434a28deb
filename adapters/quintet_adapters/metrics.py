"""Metrics of an adapter process, counted in plain integers on the hot path and read when scraped.

prometheus_client's own counters and histograms cost about 1.6 microseconds for each request between them; these a
fifth of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from quintet_kit.metrics import SECONDS_BUCKETS, Counting, Gauging, MetricSet, Observing

from quintet_adapters.messages import OUTCOMES, CommandCounts

_COMMANDS_OF: Final = "those of the protocol"


class Tally:
    """Something that only grows; add to `count`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Latencies:
    """A distribution of seconds."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one in."""
        self._counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self._sum += seconds

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets and the sum, as prometheus_client wants them."""
        bounds = [*(f"{bound:g}" for bound in SECONDS_BUCKETS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


class AdapterMetricSet(MetricSet):
    """What every adapter process shows. (Declared here, kept by `AdapterMetrics`.)"""

    connections = Gauging("quintet_adapter_connections", "Open client connections.")
    session_connected = Gauging("quintet_adapter_session_connected", "1 while operations flow to the core.")
    in_flight = Gauging("quintet_adapter_operations_in_flight", "Operations the core has not answered, waits apart.")
    opened = Counting("quintet_adapter_connections_opened_total", "Client connections accepted.")
    refused = Counting("quintet_adapter_connections_refused_total", "Client connections closed at once.")
    received_bytes = Counting("quintet_adapter_received_bytes_total", "Bytes from clients.")
    sent_bytes = Counting("quintet_adapter_sent_bytes_total", "Bytes to clients.")
    leases_lost = Counting("quintet_adapter_leases_lost_total", "Times that the session lapsed, leases and all.")
    closed_for_lost_leases = Counting(
        "quintet_adapter_connections_closed_for_lost_leases_total",
        "Connections closed because their clients' leases were gone.",
    )
    doubts = Counting(
        "quintet_adapter_leases_in_doubt_total",
        "Dequeues whose answer was lost, so that their owner's leases had to be settled with the core.",
    )
    requests = Counting(
        "quintet_adapter_requests_total", "Commands answered.", command=(_COMMANDS_OF,), outcome=OUTCOMES
    )
    seconds = Observing(
        "quintet_adapter_request_seconds",
        "From a command's request to the core to its result; waits included.",
        command=(_COMMANDS_OF,),
    )


class AdapterMetrics:
    """The metrics of one adapter process for a protocol with these commands."""

    def __init__(self, registry: CollectorRegistry, commands: Sequence[str]) -> None:
        self.registry = registry
        self.connections = AdapterMetricSet.connections.create(registry).at()
        self.session_connected = AdapterMetricSet.session_connected.create(registry).at()
        self.in_flight = AdapterMetricSet.in_flight.create(registry).at()
        self.opened = Tally()
        self.refused = Tally()
        self.received_bytes = Tally()
        self.sent_bytes = Tally()
        self.leases_lost = Tally()
        self.closed_for_lost_leases = Tally()
        self.doubts = Tally()
        self.requests: CommandCounts = CommandCounts(dict.fromkeys(product(commands, OUTCOMES), 0))
        self.seconds: Mapping[str, Latencies] = {command: Latencies() for command in commands}
        registry.register(_Reader(self))

    def read(self) -> Iterator[Metric]:
        """Everything counted so far."""
        tallies = {
            AdapterMetricSet.opened: self.opened,
            AdapterMetricSet.refused: self.refused,
            AdapterMetricSet.received_bytes: self.received_bytes,
            AdapterMetricSet.sent_bytes: self.sent_bytes,
            AdapterMetricSet.leases_lost: self.leases_lost,
            AdapterMetricSet.closed_for_lost_leases: self.closed_for_lost_leases,
            AdapterMetricSet.doubts: self.doubts,
        }
        for declaration, tally in tallies.items():
            yield CounterMetricFamily(declaration.name, declaration.help, value=tally.count)
        yield self._read_requests()
        yield self._read_seconds()

    def _read_requests(self) -> Metric:
        family = CounterMetricFamily(
            AdapterMetricSet.requests.name,
            AdapterMetricSet.requests.help,
            labels=tuple(AdapterMetricSet.requests.labels),
        )
        for labels, count in self.requests.items():
            family.add_metric(labels, count)
        return family

    def _read_seconds(self) -> Metric:
        family = HistogramMetricFamily(
            AdapterMetricSet.seconds.name, AdapterMetricSet.seconds.help, labels=tuple(AdapterMetricSet.seconds.labels)
        )
        for command, latencies in self.seconds.items():
            buckets, total = latencies.read()
            family.add_metric([command], buckets, total)
        return family


class ZmqKvMetricSet(MetricSet):
    """What the ZeroMQ key-value adapter shows besides. (Declared here, kept by `ZmqKvMetrics`.)"""

    published = Counting("quintet_zmq_kv_notifications_total", "Changes of rows published.")
    gaps = Counting(
        "quintet_zmq_kv_notification_gaps_total",
        "Times that changes were not published, because the core's event log no longer held them.",
    )
    undeliverable = Counting(
        "quintet_zmq_kv_replies_undeliverable_total", "Replies whose client was gone, or took nothing for too long."
    )


class ZmqKvMetrics:
    """The metrics that only the ZeroMQ key-value adapter has."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Tally()
        self.gaps = Tally()
        self.undeliverable = Tally()
        registry.register(_Reader(self))

    def read(self) -> Iterator[Metric]:
        """Everything counted so far."""
        tallies = {
            ZmqKvMetricSet.published: self.published,
            ZmqKvMetricSet.gaps: self.gaps,
            ZmqKvMetricSet.undeliverable: self.undeliverable,
        }
        for declaration, tally in tallies.items():
            yield CounterMetricFamily(declaration.name, declaration.help, value=tally.count)


class _Reader:
    def __init__(self, metrics: AdapterMetrics | ZmqKvMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.read()
