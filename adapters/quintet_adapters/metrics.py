"""Metrics of an adapter process, counted in plain numbers on the hot path and read when scraped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from quintet_kit.metrics import Counting, Distributing, Gauging, MetricSet, Tallying

from quintet_adapters.messages import OUTCOMES, CommandCounts

_COMMANDS_OF: Final = "those of the protocol"


class AdapterMetricSet(MetricSet):
    """What every adapter process shows. (Declared here, kept by `AdapterMetrics`.)"""

    connections = Gauging("quintet_adapter_connections", "Open client connections.")
    session_connected = Gauging("quintet_adapter_session_connected", "1 while operations flow to the core.")
    in_flight = Gauging("quintet_adapter_operations_in_flight", "Operations the core has not answered, waits apart.")
    opened = Tallying("quintet_adapter_connections_opened_total", "Client connections accepted.")
    refused = Tallying("quintet_adapter_connections_refused_total", "Client connections closed at once.")
    received_bytes = Tallying("quintet_adapter_received_bytes_total", "Bytes from clients.")
    sent_bytes = Tallying("quintet_adapter_sent_bytes_total", "Bytes to clients.")
    leases_lost = Tallying("quintet_adapter_leases_lost_total", "Times that the session lapsed, leases and all.")
    closed_for_lost_leases = Tallying(
        "quintet_adapter_connections_closed_for_lost_leases_total",
        "Connections closed because their clients' leases were gone.",
    )
    doubts = Tallying(
        "quintet_adapter_leases_in_doubt_total",
        "Dequeues whose answer was lost, so that their owner's leases had to be settled with the core.",
    )
    requests = Counting(
        "quintet_adapter_requests_total", "Commands answered.", command=(_COMMANDS_OF,), outcome=OUTCOMES
    )
    seconds = Distributing(
        "quintet_adapter_request_seconds",
        "From a command's request to the core to its result; waits included.",
        command=(_COMMANDS_OF,),
    )


class AdapterMetrics:
    """The metrics of one adapter process for a protocol with these commands."""

    def __init__(self, registry: CollectorRegistry, commands: Sequence[str]) -> None:
        self.registry = registry
        declared = AdapterMetricSet
        self.connections = declared.connections.create(registry).at()
        self.session_connected = declared.session_connected.create(registry).at()
        self.in_flight = declared.in_flight.create(registry).at()
        self.opened = declared.opened.create(registry).at()
        self.refused = declared.refused.create(registry).at()
        self.received_bytes = declared.received_bytes.create(registry).at()
        self.sent_bytes = declared.sent_bytes.create(registry).at()
        self.leases_lost = declared.leases_lost.create(registry).at()
        self.closed_for_lost_leases = declared.closed_for_lost_leases.create(registry).at()
        self.doubts = declared.doubts.create(registry).at()
        self.requests: CommandCounts = CommandCounts(dict.fromkeys(product(commands, OUTCOMES), 0))
        registry.register(_Requests(self.requests))
        seconds = declared.seconds.create(registry, command=commands)
        self.seconds = {command: seconds.at(command) for command in commands}


class _Requests:
    """How commands ended, as protocols count it, for prometheus_client."""

    def __init__(self, counts: CommandCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        declared = AdapterMetricSet.requests
        family = CounterMetricFamily(declared.name, declared.help, labels=tuple(declared.labels))
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class ZmqKvMetricSet(MetricSet):
    """What the ZeroMQ key-value adapter shows besides. (Declared here, kept by `ZmqKvMetrics`.)"""

    published = Tallying("quintet_zmq_kv_notifications_total", "Changes of rows published.")
    gaps = Tallying(
        "quintet_zmq_kv_notification_gaps_total",
        "Times that changes were not published, because the core's event log no longer held them.",
    )
    undeliverable = Tallying(
        "quintet_zmq_kv_replies_undeliverable_total", "Replies whose client was gone, or took nothing for too long."
    )


class ZmqKvMetrics:
    """The metrics that only the ZeroMQ key-value adapter has."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = ZmqKvMetricSet.published.create(registry).at()
        self.gaps = ZmqKvMetricSet.gaps.create(registry).at()
        self.undeliverable = ZmqKvMetricSet.undeliverable.create(registry).at()
