"""Counting in plain integers, shown as Prometheus wants it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from quintet_adapters.metrics import AdapterMetrics, AdapterMetricSet
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_kit.metrics import declarations


def exposed(metrics: AdapterMetrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_every_metric_declared_is_shown_from_the_start() -> None:
    shown = exposed(AdapterMetrics(CollectorRegistry(), JobCentre.commands))
    for declaration in declarations(AdapterMetricSet).values():
        assert any(name.startswith(declaration.name) for name in shown), declaration.name
    for command in JobCentre.commands:
        assert shown[f'quintet_adapter_requests_total{{command="{command}",outcome="ok"}}'] == 0


def test_what_is_counted_is_shown() -> None:
    metrics = AdapterMetrics(CollectorRegistry(), ("put",))
    metrics.requests["put", "ok"] += 2
    metrics.sent_bytes.count += 7
    metrics.seconds["put"].observe(0.2)
    shown = exposed(metrics)
    assert shown['quintet_adapter_requests_total{command="put",outcome="ok"}'] == 2
    assert shown["quintet_adapter_sent_bytes_total"] == 7
    assert shown['quintet_adapter_request_seconds_count{command="put"}'] == 1
