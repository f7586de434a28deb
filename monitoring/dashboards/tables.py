"""Tables: rows, what changes them, who follows."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from monitoring.dashboards.frame import HERE, Panels, choice, frame, with_rows
from monitoring.dashboards.panels import COUNT, RATE, SECONDS, Query, lines, quantiles, ranking

CHOSEN = f'{HERE}, namespace=~"$namespace", table=~"$table"'
BY_TABLE = "installation, namespace, table"
VERBS = "put_row|get_row|delete_row|scan_rows|write_rows"


def dashboard() -> Dashboard:
    """All tables, or some."""
    about = "Key-value tables: rows, what changes them, and who follows the changes."
    variables = (
        choice("namespace", "Namespace", "quintet_table_rows", all_of_them=True),
        choice("table", "Table", "quintet_table_rows", f'{HERE}, namespace=~"$namespace"', all_of_them=True),
    )
    rows = [("Rows", _rows()), ("Operations", _operations()), ("Who follows", _followers())]
    return with_rows(frame("quintet-tables", "Quintet: tables", about, *variables), rows)


def _changes(kind: str, legend: str) -> Query:
    of_kind = f'quintet_table_events_total{{kind="{kind}", {CHOSEN}}}'
    return Query(f"sum(max by ({BY_TABLE}) (rate({of_kind}[$__rate_interval])))", legend)


def _rows() -> Panels:
    return [
        lines(
            "Rows",
            "Of the ten largest tables.",
            COUNT,
            Query(f"topk(10, max by ({BY_TABLE}) (quintet_table_rows{{{CHOSEN}}}))", "{{namespace}}/{{table}}"),
        ),
        lines(
            "Changes",
            "Rows put, deleted, and gone at the end of their time to live.",
            RATE,
            _changes("row_put", "put"),
            _changes("row_deleted", "deleted"),
            _changes("row_expired", "expired"),
        ),
        ranking(
            "Rows of tables",
            "The largest tables.",
            COUNT,
            Query(f"topk(15, max by ({BY_TABLE}) (quintet_table_rows{{{CHOSEN}}}))"),
        ),
    ]


def _operations() -> Panels:
    rate = f'rate(quintet_core_operations_total{{verb=~"{VERBS}", {HERE}}}[$__rate_interval])'
    not_ok = f'rate(quintet_core_operations_total{{verb=~"{VERBS}", outcome!="ok", {HERE}}}[$__rate_interval])'
    return [
        lines(
            "Operations",
            "Reads and writes of rows answered, of all tables.",
            RATE,
            Query(f"sum by (verb) ({rate})", "{{verb}}"),
            stacked=True,
        ),
        lines(
            "Refused and failed",
            "By outcome; row_not_found is an answer like others.",
            RATE,
            Query(f"sum by (outcome) ({not_ok}) > 0", "{{outcome}}"),
        ),
        lines(
            "Time of an operation",
            "On sessions, from arrival to answer; of writes, disk included.",
            SECONDS,
            *quantiles("quintet_core_session_operation_seconds", f'verb=~"{VERBS}", {HERE}'),
            alert="QuintetLatencyHigh",
        ),
    ]


def _followers() -> Panels:
    return [
        lines(
            "Watches",
            "Watches and subscriptions that follow the log, and events told to them.",
            COUNT,
            Query(f"sum(quintet_core_watches{{{HERE}}})", "watches"),
            Query(f"sum(rate(quintet_core_watch_events_total{{{HERE}}}[$__rate_interval]))", "events a second"),
        ),
        lines(
            "Behind",
            "Events that the last of those who read the log is behind, and how often one was too slow.",
            COUNT,
            Query(f"max(quintet_core_watch_lag_events{{{HERE}}})", "events behind"),
            Query(f"sum(increase(quintet_core_watch_falls_total{{{HERE}}}[5m]))", "too slow, in 5 minutes"),
        ),
        lines(
            "ZeroMQ notifications",
            "Changes published; and times that some were not, because the log no longer had them.",
            COUNT,
            Query(f"sum(rate(quintet_zmq_kv_notifications_total{{{HERE}}}[$__rate_interval]))", "a second"),
            Query(f"sum(increase(quintet_zmq_kv_notification_gaps_total{{{HERE}}}[5m]))", "gaps, in 5 minutes"),
            Query(
                f"sum(increase(quintet_zmq_kv_replies_undeliverable_total{{{HERE}}}[5m]))",
                "replies nobody took, in 5 minutes",
            ),
            alert="QuintetNotificationsLost",
        ),
    ]
