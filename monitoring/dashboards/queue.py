"""One queue: what is in it, what comes and goes, how it fares."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from monitoring.dashboards.frame import HERE, Panels, choice, frame, with_rows
from monitoring.dashboards.panels import COUNT, RATE, RATIO, SECONDS, Limits, Query, lines, number

QUEUE = f'{HERE}, namespace="$namespace", queue="$queue"'
ARRIVALS = ("job_enqueued",)
DEPARTURES = ("job_acknowledged", "job_deleted", "job_expired", "job_dead_lettered")
GIVEN_BACK = ("job_released", "job_lease_expired", "job_owner_closed")


def dashboard() -> Dashboard:
    """One queue, chosen by namespace and name."""
    about = "What is in one queue, what comes and goes. Every core shows the same of it."
    variables = (
        choice("namespace", "Namespace", "quintet_queue_jobs"),
        choice("queue", "Queue", "quintet_queue_jobs", f'{HERE}, namespace="$namespace"'),
    )
    rows = [("Now", _now()), ("Over time", _over_time()), ("How jobs fare", _fare())]
    return with_rows(frame("quintet-queue", "Quintet: one queue", about, *variables), rows)


def jobs(state: str) -> str:
    """How many jobs the queue has in a state."""
    return f'max(quintet_queue_jobs{{state="{state}", {QUEUE}}})'


def rate(kinds: tuple[str, ...]) -> str:
    """Events a second of the queue, of these kinds together."""
    of_kinds = f'quintet_queue_events_total{{kind=~"{"|".join(kinds)}", {QUEUE}}}'
    return f"sum(max by (installation, kind) (rate({of_kinds}[$__rate_interval])))"


def _now() -> Panels:
    return [
        number("Ready", "Jobs that could be taken now.", COUNT, Query(jobs("ready")), width=4),
        number("Delayed", "Jobs that become ready later.", COUNT, Query(jobs("delayed")), width=4),
        number("Leased", "Jobs that a worker has.", COUNT, Query(jobs("leased")), width=4),
        number(
            "Dead",
            "Jobs whose attempts are used up.",
            COUNT,
            Query(jobs("dead")),
            width=4,
            limits=Limits(1),
            alert="QuintetDeadJobsGrowing",
        ),
        number(
            "Oldest ready job",
            "How long it has waited.",
            SECONDS,
            Query(f"max(quintet_queue_oldest_ready_age_seconds{{{QUEUE}}})"),
            width=4,
            limits=Limits(600, 3600),
            alert="QuintetBacklogOld",
        ),
        number(
            "Time to empty",
            "How long the ready jobs would take at the present pace, if no more came.",
            SECONDS,
            Query(f"{jobs('ready')} / ({rate(DEPARTURES)} > 0)"),
            width=4,
        ),
    ]


def _over_time() -> Panels:
    return [
        lines(
            "Jobs by state",
            "What is in the queue.",
            COUNT,
            Query(f"max by (state) (quintet_queue_jobs{{{QUEUE}}})", "{{state}}"),
            width=12,
            stacked=True,
        ),
        lines(
            "Arrivals and departures",
            "Jobs put, and jobs gone for good: acknowledged, deleted, expired or moved to a dead-letter queue.",
            RATE,
            Query(rate(ARRIVALS), "arrivals"),
            Query(rate(DEPARTURES), "departures"),
            width=12,
        ),
        lines(
            "Oldest ready job",
            "How long the oldest of the jobs that are first of their rank has been ready.",
            SECONDS,
            Query(f"max(quintet_queue_oldest_ready_age_seconds{{{QUEUE}}})", "age"),
            width=12,
            limits=Limits(600, 3600),
            alert="QuintetBacklogOld",
        ),
        lines(
            "All that happened",
            "Events by kind.",
            RATE,
            Query(
                f"max by (kind) (rate(quintet_queue_events_total{{{QUEUE}}}[$__rate_interval])) > 0",
                "{{kind}}",
            ),
            width=12,
        ),
    ]


def _fare() -> Panels:
    return [
        lines(
            "Given back",
            "Deliveries that ended without an acknowledgement: given back, run out, or their connection closed.",
            RATE,
            *(Query(rate((kind,)), kind.removeprefix("job_").replace("_", " ")) for kind in GIVEN_BACK),
            alert="QuintetLeaseExpiriesRising",
        ),
        lines(
            "Share given back",
            "Of the deliveries, how many end without an acknowledgement.",
            RATIO,
            Query(f"{rate(GIVEN_BACK)} / ({rate(('job_dequeued',))} > 0)", "given back"),
            limits=Limits(0.05),
        ),
        lines(
            "Dead jobs",
            "Jobs whose attempts are used up, until somebody redrives or purges them.",
            COUNT,
            Query(jobs("dead"), "dead"),
            alert="QuintetDeadJobsGrowing",
        ),
    ]
