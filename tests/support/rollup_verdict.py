"""Whether a rollup says of each queue and window what the events and snapshots in it say, computed anew in SQL."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tests.support.event_verdict import answers

_STATES = ("ready", "delayed", "leased", "dead")
_KINDS = (
    "enqueued",
    "dequeued",
    "acknowledged",
    "released",
    "lease_expired",
    "owner_closed",
    "extended",
    "deleted",
    "ready",
    "expired",
    "redriven",
    "dead_lettered",
)
_GONE = ("acknowledged", "deleted", "expired", "dead_lettered")
_RANK_ERROR = 2 / 10_000
"""What the rollup says of its percentiles: so far off in rank, relative to the number of values. Below 5000: exact."""

_TOLD = """
CREATE TEMP TABLE told AS
SELECT namespace, queue, at_ms // $window_ms * $window_ms AS start_ms, kind, attempt, wait_ms, service_ms, state
FROM events WHERE kind LIKE 'job_%'
"""

_SEEN = """
CREATE TEMP TABLE seen AS
SELECT namespace, name AS queue, at_ms // $window_ms * $window_ms AS start_ms, "offset",
  ready, delayed, leased, dead, oldest_ready_age_ms
FROM metrics WHERE kind = 'queue'
"""

_COUNTS = f"""
CREATE TEMP TABLE counts AS
SELECT namespace, queue, start_ms,
  {", ".join(f"count(*) FILTER (kind = 'job_{kind}') AS {kind}" for kind in _KINDS)},
  count(*) FILTER (kind = 'job_enqueued') AS arrivals,
  count(*) FILTER (kind IN ({", ".join(f"'job_{kind}'" for kind in _GONE)})) AS departures,
  count(*) FILTER (kind = 'job_dequeued' AND attempt > 1) AS redeliveries,
  count(*) FILTER (kind IN ('job_released', 'job_lease_expired', 'job_owner_closed') AND state = 'dead') AS died,
  count(*) FILTER (kind = 'job_dequeued') AS wait_count,
  sum(wait_ms) FILTER (kind = 'job_dequeued') AS wait_ms_sum,
  max(wait_ms) FILTER (kind = 'job_dequeued') AS wait_ms_max,
  count(*) FILTER (kind = 'job_acknowledged') AS service_count,
  sum(service_ms) FILTER (kind = 'job_acknowledged') AS service_ms_sum,
  max(service_ms) FILTER (kind = 'job_acknowledged') AS service_ms_max
FROM told GROUP BY ALL
"""

_DEPTHS = f"""
CREATE TEMP TABLE depths AS
SELECT namespace, queue, start_ms, count(*) AS snapshots,
  {", ".join(f'max({state}) AS {state}_max, arg_max({state}, "offset") AS {state}_last' for state in _STATES)},
  max(oldest_ready_age_ms) AS oldest_ready_age_ms_max
FROM seen GROUP BY ALL
"""

_COUNTED = (*_KINDS, "arrivals", "departures", "redeliveries", "died", "wait_count", "service_count", "snapshots")
_NULLABLE = (
    *("wait_ms_sum", "wait_ms_max", "service_ms_sum", "service_ms_max", "oldest_ready_age_ms_max"),
    *(f"{state}_{which}" for state in _STATES for which in ("max", "last")),
)
_KEY = "namespace, queue, start_ms"


def rollup_differences(events: pa.Table, metrics: pa.Table, rollup: pa.Table, window_s: int = 60) -> list[str]:
    """One line for each kind of difference; none when the rollup is right and whole.

    `events` as in `tests.support.event_record.RECORD`; `metrics` with the columns of the metric archive and at_ms;
    `rollup` with window_start_ms and window_end_ms in place of instants. All three of the same windows.
    """
    with duckdb.connect() as db:
        for name, table in (("events", events), ("metrics", metrics), ("rollup", rollup)):
            db.register(name, table)
        for statement in (_TOLD, _SEEN, _COUNTS, _DEPTHS):
            db.execute(statement.replace("$window_ms", str(window_s * 1000)))
        db.execute(f"CREATE TEMP TABLE expected AS FROM counts FULL JOIN depths USING ({_KEY})")
        db.execute("CREATE TEMP TABLE found AS SELECT *, window_start_ms AS start_ms FROM rollup")
        return answers(db, _questions(window_s))


def _questions(window_s: int) -> dict[str, str]:
    joined = f"FROM expected e JOIN found f USING ({_KEY})"
    differing = [
        *((name, f"coalesce(e.{name}, 0)", f"f.{name}") for name in _COUNTED),
        *((name, f"e.{name}", f"f.{name}") for name in _NULLABLE),
        ("window_end", f"start_ms + {window_s * 1000}", "f.window_end_ms"),
        ("date", "CAST(make_timestamp(start_ms * 1000) AS DATE)", "f.date"),
        ("departure_rate", f"coalesce(e.departures, 0) / {window_s}.0", "f.departure_rate"),
    ]
    return {
        "windows that are missing": f"SELECT {_KEY} FROM expected ANTI JOIN found USING ({_KEY})",
        "windows in which nothing was": f"SELECT {_KEY} FROM found ANTI JOIN expected USING ({_KEY})",
        "windows that are told twice": f"SELECT {_KEY}, count(*) AS times FROM found GROUP BY ALL HAVING times > 1",
        **{
            f"{name} differs": f"SELECT {_KEY}, {expected} AS expected, {found} AS found {joined}"
            f" WHERE {expected} IS DISTINCT FROM {found}"
            for name, expected, found in differing
        },
        **{
            f"{name}_ms_p{percent} is too far off": _of_percentile(name, kind, percent)
            for name, kind in (("wait", "job_dequeued"), ("service", "job_acknowledged"))
            for percent in (50, 95, 99)
        },
    }


def _of_percentile(name: str, kind: str, percent: int) -> str:
    """Windows whose percentile is not a value that occurred at the rank asked for, or near enough to it."""
    value = f"{name}_ms_p{percent}"
    return f"""
        SELECT {_KEY}, {value}, below, upto, n FROM (
          SELECT {_KEY}, any_value(f.{value}) AS {value}, count({name}_ms) AS n,
            count(*) FILTER (t.{name}_ms < f.{value}) AS below, count(*) FILTER (t.{name}_ms <= f.{value}) AS upto,
            greatest(1, ceil(count({name}_ms) * {percent} / 100.0 - 1e-9)) AS rank
          FROM found f LEFT JOIN (FROM told WHERE kind = '{kind}') t USING ({_KEY}) GROUP BY ALL)
        WHERE CASE WHEN n = 0 THEN {value} IS NOT NULL
          ELSE {value} IS NULL OR below = upto
            OR below >= rank + floor(n * {_RANK_ERROR}) OR upto < rank - floor(n * {_RANK_ERROR}) END"""
