"""The page: one HTML file that needs nothing else, from rows that were counted already. Pure: rows in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from quintet_spark.report import charts, wording
from quintet_spark.report.charts import Chart, Series
from quintet_spark.report.findings import Findings, Row, find
from quintet_spark.report.options import HOUR_MS, ReportOptions

RANKED_SHOWN = 10
DAYS_SHOWN = 31
_SUMMED = ("arrivals", "deliveries", "completions", "failures", "deaths", "redeliveries", "backlog_end", "dead_end")
_VERDICTS = ("growing", "draining", "steady", "not enough data", "empty", "gone")


@dataclass(frozen=True)
class PageRows:
    """What the page tells, as rows of the tables (see transforms.report and transforms.capacity).

    queues and forecasts are what is judged; queues_total says how many there are, when not all fit. busiest, slowest
    and failing are in order and cut to what is shown; poison is in order. overall is the sum over all queues, days
    that of each day, the newest first. traffic: bucket of traffic_bucket_ms -> arrivals, completions, failures;
    backlog: bucket of bucket_ms -> jobs; backlogs: the same of each queue (namespace, queue) whose forecast is shown.
    """

    generated_at_ms: int
    first_at_ms: int | None = None
    last_at_ms: int | None = None
    events: int = 0
    snapshots: int = 0
    overall: Row = field(default_factory=dict)
    days: Sequence[Row] = ()
    queues: Sequence[Row] = ()
    queues_total: int = 0
    busiest: Sequence[Row] = ()
    slowest: Sequence[Row] = ()
    failing: Sequence[Row] = ()
    poison: Sequence[Row] = ()
    poison_total: int = 0
    forecasts: Sequence[Row] = ()
    bucket_ms: int = HOUR_MS
    traffic_bucket_ms: int = HOUR_MS
    traffic: Mapping[int, Row] = field(default_factory=dict)
    traffic_source: str = "events"
    backlog: Mapping[int, float] = field(default_factory=dict)
    backlogs: Mapping[tuple[str, str], Mapping[int, float]] = field(default_factory=dict)


def render(rows: PageRows, options: ReportOptions) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("quintet_spark.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {
            "name": wording.name,
            "visible": wording.visible,
            "shortened": wording.shortened,
            "count": wording.count,
            "percent": wording.percent,
            "duration": wording.duration,
            "rate": wording.rate,
            "slope": wording.slope,
            "instant": wording.instant,
            "moment": wording.moment,
        }
    )
    return environment.get_template("page.html.j2").render(_context(rows, options))


def _context(rows: PageRows, options: ReportOptions) -> dict[str, Any]:
    findings = find(rows.queues, rows.forecasts, rows.poison, options)
    shown = _forecasts_shown(rows.forecasts, options)
    return {
        "rows": rows,
        "options": options,
        "findings": findings,
        "headline": headline(rows, findings),
        "charts": _charts(rows),
        "rest": _rest(rows),
        "several_namespaces": len({row["namespace"] for row in rows.queues}) > 1,
        "slowest": rows.slowest[:RANKED_SHOWN],
        "wait_max_ms": max((row["wait_p95_ms"] for row in rows.slowest), default=0),
        "failing": rows.failing[:RANKED_SHOWN],
        "poison": rows.poison[: options.jobs_shown],
        "days": rows.days[:DAYS_SHOWN],
        "forecasts": [(row, _sparkline(row, rows, options)) for row in shown],
        "verdict_counts": _verdict_counts(rows.forecasts),
        "end": forecast_end,
        "unknown": wording.UNKNOWN,
    }


def headline(rows: PageRows, findings: Findings) -> str:
    """The whole report in one sentence."""
    if not rows.queues:
        return "There is nothing to report: no queue has any event or snapshot in this time."
    if findings.actions:
        number = len(findings.actions)
        return "One thing needs action." if number == 1 else f"{number} things need action."
    if findings.watches:
        return "Nothing needs action; something is worth watching."
    return "All is well."


def _rest(rows: PageRows) -> dict[str, Any] | None:
    """The sum over the queues that are not shown."""
    more = rows.queues_total - len(rows.busiest)
    if more <= 0:
        return None
    shown = {name: sum(row[name] or 0 for row in rows.busiest) for name in _SUMMED}
    return {"queues": more, **{name: (rows.overall[name] or 0) - shown[name] for name in _SUMMED}}


def _forecasts_shown(forecasts: Sequence[Row], options: ReportOptions) -> list[Row]:
    told = [row for row in forecasts if row["verdict"] in ("growing", "draining", "steady", "not enough data")]
    return sorted(told, key=_by_urgency)[: options.queues_shown]


def _by_urgency(row: Row) -> tuple[int, float, int, str, str]:
    slope = row["slope"] if row["slope"] is not None else 0.0
    return _VERDICTS.index(row["verdict"]), -abs(slope), -row["backlog"], row["namespace"], row["queue"]


def shown_queues(forecasts: Sequence[Row], options: ReportOptions) -> list[tuple[str, str]]:
    """The queues whose forecast the page shows."""
    return [(row["namespace"], row["queue"]) for row in _forecasts_shown(forecasts, options)]


def _verdict_counts(forecasts: Sequence[Row]) -> list[tuple[str, int]]:
    counts = [(verdict, sum(row["verdict"] == verdict for row in forecasts)) for verdict in _VERDICTS]
    return [(verdict, number) for verdict, number in counts if number]


def forecast_end(row: Row, options: ReportOptions) -> str:
    """When a forecast's line ends, in words."""
    likely, early, late = (row[f"reached_{word}_hours"] for word in ("in", "earliest", "latest"))
    if row["verdict"] == "draining":
        what = "empty"
    elif row["verdict"] == "growing" and options.length_max is not None:
        what = f"{wording.count(options.length_max)} jobs"
    else:
        return wording.UNKNOWN
    if likely is None:
        return f"{what} in more than a year"
    between = f" to {wording.duration(late * HOUR_MS)}" if late is not None else " or later"
    return f"{what} in {wording.duration(likely * HOUR_MS)} ({wording.duration(early * HOUR_MS)}{between})"


def _charts(rows: PageRows) -> list[Chart]:
    drawn: list[Chart] = []
    if rows.traffic:
        step = rows.traffic_bucket_ms
        values = {name: {at: row[name] for at, row in rows.traffic.items()} for name in _TRAFFIC}
        times, _ = charts.filled(values["arrivals"], step)
        series = [Series(name, name, charts.filled(each, step)[1]) for name, each in values.items()]
        what = f"Arrivals, completions and failures of all queues in each {wording.duration(step)}"
        drawn.append(charts.chart("Jobs", what, times, series, _span(rows)))
    if rows.backlog:
        times, backlog = charts.filled(dict(rows.backlog), rows.bucket_ms, gap=None)
        line = [Series("backlog", "backlog", backlog)]
        drawn.append(charts.chart("Backlog", "Jobs ready, delayed or leased in all queues", times, line, _span(rows)))
    return drawn


def _span(rows: PageRows) -> tuple[int, int]:
    """Both charts show the same time."""
    times = [*rows.traffic, *rows.backlog]
    return min(times), max(times)


_TRAFFIC = ("arrivals", "completions", "failures")


def _sparkline(row: Row, rows: PageRows, options: ReportOptions) -> dict[str, str] | None:
    """A queue's backlog while its forecast looked at it, as a small line without axes, and the fitted one."""
    since = row["as_of_ms"] - options.forecast_window_ms
    values = {at: each for at, each in rows.backlogs.get((row["namespace"], row["queue"]), {}).items() if at >= since}
    if len(values) < 2:
        return None
    times, backlog = charts.filled(values, rows.bucket_ms, gap=None)
    top = max(1.0, *(value for value in backlog if value is not None))
    return {"path": charts.path(times, backlog, top, (times[0], times[-1])), "fit": _fit(row, times, top)}


def _fit(row: Row, times: Sequence[int], top: float) -> str:
    if row["slope"] is None:
        return ""
    ends = (times[0], times[-1])
    fitted = [row["fit_at_end"] + row["slope"] * (at - row["as_of_ms"]) / HOUR_MS for at in ends]
    return charts.path(ends, [min(top, max(0.0, value)) for value in fitted], top, ends)
