"""Adapters: who is connected, what they ask, how long it takes, what goes wrong."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from monitoring.dashboards.frame import HERE, Panels, choice, frame, with_rows
from monitoring.dashboards.panels import BYTES_RATE, COUNT, RATE, RATIO, SECONDS, Limits, Query, lines, number

CHOSEN = f'{HERE}, adapter=~"$adapter"'


def dashboard() -> Dashboard:
    """All protocols, or some."""
    about = "The protocol adapters: who is connected, what they ask, how long it takes, what goes wrong."
    adapter = choice("adapter", "Adapter", "quintet_adapter_connections", all_of_them=True)
    rows = [("Now", _now()), ("Commands", _commands()), ("Connections", _connections()), ("Leases", _leases())]
    return with_rows(frame("quintet-protocols", "Quintet: protocols", about, adapter), rows)


def _rate(metric: str) -> str:
    return f"rate({metric}{{{CHOSEN}}}[$__rate_interval])"


def _now() -> Panels:
    return [
        number(
            "With a core",
            "Adapters whose operations flow.",
            COUNT,
            Query(f"sum(quintet_adapter_session_connected{{{CHOSEN}}})"),
            width=6,
            limits=Limits(red=1, falling=True),
            alert="QuintetAdapterWithoutSession",
        ),
        number(
            "Connections",
            "Open client connections.",
            COUNT,
            Query(f"sum(quintet_adapter_connections{{{CHOSEN}}})"),
            width=6,
        ),
        number(
            "In flight",
            "Operations that the core has not answered, waits apart.",
            COUNT,
            Query(f"sum(quintet_adapter_operations_in_flight{{{CHOSEN}}})"),
            width=6,
        ),
        number(
            "Failing",
            "Commands that end as unavailable or failed, among all.",
            RATIO,
            Query(f"max(installation_adapter:quintet_adapter_faults:ratio_rate5m{{{CHOSEN}}})"),
            width=6,
            limits=Limits(0.001, 0.01),
            alert="QuintetAdapterErrorRatioHigh",
        ),
    ]


def _commands() -> Panels:
    requests = _rate("quintet_adapter_requests_total")
    seconds = _rate("quintet_adapter_request_seconds_bucket")
    return [
        lines(
            "By protocol",
            "Commands answered.",
            RATE,
            Query(f"sum by (adapter) ({requests})", "{{adapter}}"),
            stacked=True,
        ),
        lines(
            "By command",
            "Commands answered, of those that are used.",
            RATE,
            Query(f"sum by (adapter, command) ({requests}) > 0", "{{adapter}} {{command}}"),
        ),
        lines(
            "By outcome",
            "Of commands: ok, empty (no job, no row), refused (by a rule), unavailable, failed.",
            RATE,
            Query(f"sum by (outcome) ({requests})", "{{outcome}}"),
            alert="QuintetAdapterErrorRatioHigh",
        ),
        lines(
            "Time of a command, p99",
            "From its request to the core to its result. Commands that wait for a job wait on purpose.",
            SECONDS,
            Query(
                f"histogram_quantile(0.99, sum by (adapter, command, le) ({seconds})) >= 0", "{{adapter}} {{command}}"
            ),
            width=12,
        ),
        lines(
            "Time of a command, median",
            "As beside it, for the one in the middle.",
            SECONDS,
            Query(
                f"histogram_quantile(0.5, sum by (adapter, command, le) ({seconds})) >= 0", "{{adapter}} {{command}}"
            ),
            width=12,
        ),
    ]


def _connections() -> Panels:
    return [
        lines(
            "Connections",
            "Open client connections. ZeroMQ has none: its clients are counted while they wait for a reply.",
            COUNT,
            Query(f"sum by (adapter) (quintet_adapter_connections{{{CHOSEN}}})", "{{adapter}}"),
        ),
        lines(
            "Opened and refused",
            "Client connections accepted, and those closed at once because there are too many.",
            RATE,
            Query(f"sum by (adapter) ({_rate('quintet_adapter_connections_opened_total')})", "{{adapter}} opened"),
            Query(
                f"sum by (adapter) ({_rate('quintet_adapter_connections_refused_total')}) > 0", "{{adapter}} refused"
            ),
            alert="QuintetConnectionsRefused",
        ),
        lines(
            "Bytes",
            "From and to clients.",
            BYTES_RATE,
            Query(f"sum by (adapter) ({_rate('quintet_adapter_received_bytes_total')})", "{{adapter}} in"),
            Query(f"sum by (adapter) ({_rate('quintet_adapter_sent_bytes_total')})", "{{adapter}} out"),
        ),
    ]


def _leases() -> Panels:
    def in_five_minutes(metric: str) -> str:
        return f"sum by (adapter) (increase({metric}{{{CHOSEN}}}[5m]))"

    return [
        lines(
            "Sessions lost",
            "Times that an adapter's session lapsed, leases and all, in five minutes.",
            COUNT,
            Query(in_five_minutes("quintet_adapter_leases_lost_total"), "{{adapter}}"),
            alert="QuintetLeasesLost",
        ),
        lines(
            "Closed for lost leases",
            "Connections closed so that no client works on under a lease that is gone, in five minutes.",
            COUNT,
            Query(in_five_minutes("quintet_adapter_connections_closed_for_lost_leases_total"), "{{adapter}}"),
        ),
        lines(
            "Leases in doubt",
            "Dequeues whose answer was lost, so that the adapter settled with the core what it holds, in five minutes.",
            COUNT,
            Query(in_five_minutes("quintet_adapter_leases_in_doubt_total"), "{{adapter}}"),
        ),
    ]
