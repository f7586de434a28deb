"""What the numbers mean: what needs action, what is worth watching, what is fine. Plain words, pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quintet_spark.report.options import HOUR_MS, ReportOptions
from quintet_spark.report.wording import count, duration, listed, name, percent, plural

Row = Mapping[str, Any]
DELIVERIES_JUDGED_MIN = 20
"""A share of fewer deliveries says little: it is worth watching, not acting."""
FAILURES_WATCHED_MIN = 10
FAILURE_SHARE_WATCHED = 0.1
OLD_MS = HOUR_MS
GROWTH_MIN = 10
"""Jobs, and below it the share of its backlog, that a queue must have grown by in the time looked at."""
GROWTH_SHARE_MIN = 0.1
MINUTES_PER_HOUR = 60


@dataclass(frozen=True)
class Finding:
    """One sentence, and the section of the page (its anchor) that shows why."""

    sentence: str
    section: str


@dataclass
class Findings:
    """All findings, each list with the gravest first."""

    actions: list[Finding] = field(default_factory=list)
    watches: list[Finding] = field(default_factory=list)
    fine: list[Finding] = field(default_factory=list)


def find(queues: Sequence[Row], forecasts: Sequence[Row], poison: Sequence[Row], options: ReportOptions) -> Findings:
    """Judge the service levels of queues, their forecasts, and the poison jobs."""
    findings = Findings()
    _judge_capacity(forecasts, options, findings)
    _judge_deaths(queues, findings)
    _judge_waits(queues, options, findings)
    _judge_failures(queues, findings)
    _judge_poison(poison, options, findings)
    _judge_ages(queues, findings)
    return findings


def _names(rows: Iterable[Row]) -> str:
    return listed([name(row["queue"]) for row in rows])


def _verb(rows: Sequence[Row], one: str, many: str) -> str:
    return one if len(rows) == 1 else many


def _judge_capacity(forecasts: Sequence[Row], options: ReportOptions, findings: Findings) -> None:
    growing = sorted((row for row in forecasts if _grows_to_speak_of(row, options)), key=lambda row: -row["slope"])
    soon = (row for row in growing if _is_full_soon(row, options))
    full = sorted(soon, key=lambda row: row["reached_in_hours"])
    overloaded = [row for row in growing if row not in full and _is_overloaded(row)]
    rest = [row for row in growing if row not in full and row not in overloaded]
    for row in full[:3]:
        findings.actions.append(Finding(_full_sentence(row, options), "capacity"))
    if len(full) > 3:
        sentence = f"{plural(len(full) - 3, 'more queue')} will reach {count(options.length_max)} jobs as well."
        findings.actions.append(Finding(sentence, "capacity"))
    if overloaded:
        verb = _verb(overloaded, "grows: more arrives than its", "grow: more arrives than their")
        findings.actions.append(Finding(f"{_names(overloaded)} {verb} workers complete.", "capacity"))
    if rest:
        verb = _verb(rest, "grows, though its workers are", "grow, though their workers are")
        findings.watches.append(Finding(f"{_names(rest)} {verb} not known to be busy all the time.", "capacity"))
    if forecasts and not growing:
        known = [row for row in forecasts if row["verdict"] not in ("not enough data", "gone")]
        if known:
            findings.fine.append(
                Finding(f"No backlog grows to speak of, of {plural(len(known), 'queue')} judged.", "capacity")
            )


def _grows_to_speak_of(row: Row, options: ReportOptions) -> bool:
    """Of many queues a few seem to grow by chance, and by little: the least growth likely must be worth a sentence."""
    if row["verdict"] != "growing":
        return False
    least = row["slope_low"] * row["points"] / MINUTES_PER_HOUR
    return _is_full_soon(row, options) or least >= max(GROWTH_MIN, GROWTH_SHARE_MIN * row["backlog"])


def _is_full_soon(row: Row, options: ReportOptions) -> bool:
    hours = row["reached_in_hours"]
    return hours is not None and hours * HOUR_MS <= options.alarm_within_ms


def _is_overloaded(row: Row) -> bool:
    return row["capacity_rate"] == 0 or (row["utilisation"] is not None and row["utilisation"] >= 1)


def _full_sentence(row: Row, options: ReportOptions) -> str:
    hours, limit = row["reached_in_hours"], f"{count(options.length_max)} jobs"
    if hours == 0:
        return f"{_names([row])} holds {count(row['backlog'])} jobs, its limit is {limit}, and it grows."
    return f"{_names([row])} will hold {limit} in about {duration(hours * HOUR_MS)}, if it goes on as now."


def _judge_deaths(queues: Sequence[Row], findings: Findings) -> None:
    dying = sorted((row for row in queues if row["deaths"]), key=lambda row: -row["deaths"])
    lying = sum(row["dead_end"] or 0 for row in queues)
    if dying:
        deaths = sum(row["deaths"] for row in dying)
        verb = "used up its" if deaths == 1 else "used up their"
        sentence = f"{plural(deaths, 'job')} {verb} attempts and died, in {_names(dying)}."
        findings.actions.append(Finding(sentence, "failing"))
    else:
        findings.fine.append(Finding("No job died.", "failing"))
    if lying:
        sentence = f"{plural(lying, 'dead job')} {'waits' if lying == 1 else 'wait'} to be redriven or deleted."
        findings.watches.append(Finding(sentence, "failing"))


def _judge_waits(queues: Sequence[Row], options: ReportOptions, findings: Findings) -> None:
    timed = [row for row in queues if row["deliveries_timed"]]
    late = sorted(
        (row for row in timed if row["in_target_share"] < options.target_share), key=lambda row: row["in_target_share"]
    )
    target = f"{percent(options.target_share)} of deliveries within {duration(options.target_wait_ms)}"
    many = [row for row in late if row["deliveries_timed"] >= DELIVERIES_JUDGED_MIN]
    few = [row for row in late if row["deliveries_timed"] < DELIVERIES_JUDGED_MIN]
    for rows, findings_of in ((many, findings.actions), (few, findings.watches)):
        if rows:
            verb = _verb(rows, "misses", "miss")
            worst = f"{'it kept' if len(rows) == 1 else 'the worst kept'} {percent(rows[0]['in_target_share'])}"
            note = "" if rows is many else ", of few deliveries"
            findings_of.append(Finding(f"{_names(rows)} {verb} the target of {target}: {worst}{note}.", "slowest"))
    kept = len(timed) - len(late)
    if kept:
        all_of = "All" if not late else f"{count(kept)} of"
        sentence = f"{all_of} {plural(len(timed), 'queue')} with deliveries kept the target: {target}."
        findings.fine.append(Finding(sentence, "slowest"))


def _judge_failures(queues: Sequence[Row], findings: Findings) -> None:
    failing = sorted(
        (
            row
            for row in queues
            if (row["failures"] or 0) >= FAILURES_WATCHED_MIN and (row["failure_share"] or 0) >= FAILURE_SHARE_WATCHED
        ),
        key=lambda row: -row["failure_share"],
    )
    if failing:
        verb = _verb(failing, "gets", "get")
        sentence = (
            f"{_names(failing)} {verb} at least {percent(FAILURE_SHARE_WATCHED)} of deliveries back unfinished, "
            f"up to {percent(failing[0]['failure_share'])}."
        )
        findings.watches.append(Finding(sentence, "failing"))


def _judge_poison(poison: Sequence[Row], options: ReportOptions, findings: Findings) -> None:
    again = [row for row in poison if not row["deaths"] and row["outcome"] in ("ready", "delayed", "leased")]
    if again:
        verb = "was" if len(again) == 1 else "were"
        sentence = (
            f"{plural(len(again), 'job')} that still {'exists' if len(again) == 1 else 'exist'} {verb} delivered "
            f"{count(options.poison_deliveries)} times or more."
        )
        findings.watches.append(Finding(sentence, "poison"))


def _judge_ages(queues: Sequence[Row], findings: Findings) -> None:
    old = sorted(
        (row for row in queues if (row["oldest_age_end_ms"] or 0) >= OLD_MS), key=lambda row: -row["oldest_age_end_ms"]
    )
    if old:
        verb = _verb(old, "holds a job that has", "hold jobs that have")
        sentence = f"{_names(old)} {verb} been ready for up to {duration(old[0]['oldest_age_end_ms'])}."
        findings.watches.append(Finding(sentence, "queues"))
