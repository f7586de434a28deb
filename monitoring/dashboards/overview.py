"""Is it well, what does it do, what waits: the first look at an installation."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from monitoring.dashboards.frame import HERE, Panels, frame, with_rows
from monitoring.dashboards.panels import (
    BYTES,
    COUNT,
    GREEN,
    RATE,
    RATIO,
    RED,
    SECONDS,
    Limits,
    Query,
    lines,
    number,
    quantiles,
    ranking,
)

BY_QUEUE = "installation, namespace, queue"


def dashboard() -> Dashboard:
    """All of one installation."""
    about = "One Redis with its cores and adapters: whether it is well, what it does, and what waits in it."
    rows = [
        ("Is it well?", _well()),
        ("What clients ask", _work()),
        ("What waits", _backlog()),
        ("Redis, and the cores", _cores()),
    ]
    return with_rows(frame("quintet-overview", "Quintet: overview", about), rows)


def _well() -> Panels:
    yes, no = ("yes", GREEN), ("NO", RED)
    return [
        number(
            "Ready cores",
            "Cores that take work now.",
            COUNT,
            Query(f"sum(quintet_core_ready{{{HERE}}})"),
            limits=Limits(red=1, falling=True),
            alert="QuintetNoReadyCore",
        ),
        number(
            "On disk",
            "Whether every core finds that Redis writes each change to disk before it answers.",
            COUNT,
            Query(f"min(quintet_core_durable{{{HERE}}})"),
            words={"1": yes, "0": no},
            alert="QuintetDurabilityWeak",
        ),
        number(
            "File written",
            "Whether the last write of Redis' append-only file went well.",
            COUNT,
            Query(f"min(quintet_core_aof_last_write_ok{{{HERE}}})"),
            words={"1": yes, "0": no},
            alert="QuintetAofWriteError",
        ),
        number(
            "Alerts",
            "Alerts of Quintet that fire now.",
            COUNT,
            Query(f'count(ALERTS{{alertname=~"Quintet.+", alertstate="firing", {HERE}}}) or vector(0)'),
            limits=Limits(red=1),
        ),
        number(
            "Failing",
            "Operations that fail by our fault or our world's, among all.",
            RATIO,
            Query(f"max(installation:quintet_core_faults:ratio_rate5m{{{HERE}}})"),
            limits=Limits(0.001, 0.01),
            alert="QuintetErrorRatioHigh",
        ),
        number(
            "Adapters",
            "Adapters that have a core.",
            COUNT,
            Query(f"sum(quintet_adapter_session_connected{{{HERE}}})"),
            limits=Limits(red=1, falling=True),
            alert="QuintetAdapterWithoutSession",
        ),
        number(
            "Ready jobs",
            "Jobs that could be taken now, of all queues that have series.",
            COUNT,
            Query(f'sum(max by ({BY_QUEUE}) (quintet_queue_jobs{{state="ready", {HERE}}}))'),
        ),
        number(
            "Oldest job",
            "How long the oldest ready job has waited.",
            SECONDS,
            Query(f"max(quintet_queue_oldest_ready_age_seconds{{{HERE}}})"),
            limits=Limits(600, 3600),
            alert="QuintetBacklogOld",
        ),
    ]


def _work() -> Panels:
    rate = f"rate(quintet_core_operations_total{{{HERE}}}[$__rate_interval])"
    not_ok = f'rate(quintet_core_operations_total{{outcome!="ok", {HERE}}}[$__rate_interval])'
    return [
        lines(
            "Operations",
            "Operations answered, by verb, of all cores together.",
            RATE,
            Query(f"sum by (verb) ({rate}) > 0", "{{verb}}"),
            stacked=True,
        ),
        lines(
            "Refused and failed",
            "Operations that did not end in ok, by outcome. Most are the client's own; an empty queue is none.",
            RATE,
            Query(f"sum by (outcome) ({not_ok}) > 0", "{{outcome}}"),
            alert="QuintetErrorRatioHigh",
        ),
        lines(
            "Time of an operation",
            "On sessions, from arrival to answer, disk included; without those that wait for a job on purpose.",
            SECONDS,
            *quantiles("quintet_core_session_operation_seconds", f'verb!~"dequeue|await_jobs", {HERE}'),
            limits=Limits(red=0.5),
            alert="QuintetLatencyHigh",
        ),
        lines(
            "What happened",
            "Events by kind. They are counted where they are kept, so every core shows the same.",
            RATE,
            Query(
                f"sum by (kind) (max by (installation, kind) (rate(quintet_core_events_total{{{HERE}}}"
                "[$__rate_interval]))) > 0",
                "{{kind}}",
            ),
            width=12,
        ),
        lines(
            "Leases that ran out",
            "Leases that ended without a word from their worker, and all deliveries to compare them with.",
            RATE,
            Query(
                f'sum(max by (installation) (rate(quintet_core_events_total{{kind="job_lease_expired", {HERE}}}'
                "[$__rate_interval])))",
                "run out",
            ),
            Query(
                f'sum(max by (installation) (rate(quintet_core_events_total{{kind="job_dequeued", {HERE}}}'
                "[$__rate_interval])))",
                "deliveries",
            ),
            width=12,
            alert="QuintetLeaseExpiriesRising",
        ),
    ]


def _backlog() -> Panels:
    return [
        lines(
            "Jobs by state",
            "Jobs of all queues that have series.",
            COUNT,
            Query(f"sum by (state) (max by ({BY_QUEUE}, state) (quintet_queue_jobs{{{HERE}}}))", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Oldest ready job",
            "How long the oldest ready job of the ten slowest queues has waited.",
            SECONDS,
            Query(
                f"topk(10, max by ({BY_QUEUE}) (quintet_queue_oldest_ready_age_seconds{{{HERE}}}))",
                "{{namespace}}/{{queue}}",
            ),
            limits=Limits(600, 3600),
            alert="QuintetBacklogOld",
        ),
        lines(
            "Dead jobs",
            "Jobs whose attempts are used up, of the ten queues with most of them.",
            COUNT,
            Query(
                f'topk(10, max by ({BY_QUEUE}) (quintet_queue_jobs{{state="dead", {HERE}}}))', "{{namespace}}/{{queue}}"
            ),
            alert="QuintetDeadJobsGrowing",
        ),
        ranking(
            "Ready jobs",
            "The queues with most ready jobs.",
            COUNT,
            Query(f'topk(15, max by ({BY_QUEUE}) (quintet_queue_jobs{{state="ready", {HERE}}}))'),
            width=12,
        ),
        lines(
            "Without series",
            "Queues and tables beyond the bound of series: no panel or alert by queue sees them.",
            COUNT,
            Query(f"max by (installation) (quintet_core_unlisted_queues{{{HERE}}})", "{{installation}}"),
            width=12,
            alert="QuintetSeriesUnlisted",
        ),
    ]


def _cores() -> Panels:
    round_trip = "quintet_core_redis_round_trip_seconds"
    batch = "quintet_core_batch_operations"
    return [
        lines(
            "Round trip to Redis",
            "From a batch's sending to its last answer; every change in it is on disk then.",
            SECONDS,
            *quantiles(round_trip, HERE),
            limits=Limits(red=0.25),
            alert="QuintetRedisSlow",
        ),
        lines(
            "Operations of a batch",
            "On average. They grow with the load: what comes while Redis works is one batch.",
            COUNT,
            Query(
                f"sum by (instance) (rate({batch}_sum{{{HERE}}}[$__rate_interval]))"
                f" / (sum by (instance) (rate({batch}_count{{{HERE}}}[$__rate_interval])) > 0)",
                "{{instance}}",
            ),
        ),
        lines(
            "Waiting in the core",
            "Operations that wait for the next batch, and requests that wait for a job.",
            COUNT,
            Query(f"sum(quintet_core_queued_operations{{{HERE}}})", "for a batch"),
            Query(f"sum(quintet_core_parked_dequeues{{{HERE}}})", "dequeues for a job"),
            Query(f"sum(quintet_core_awaiting_jobs{{{HERE}}})", "told of a job, without taking it"),
        ),
        lines(
            "Sessions and owners",
            "An adapter holds one session; each of its client connections is an owner.",
            COUNT,
            Query(f"sum(quintet_core_sessions{{{HERE}}})", "sessions"),
            Query(f"sum(quintet_core_owners{{{HERE}}})", "owners"),
        ),
        lines(
            "Connections to Redis and failing duties",
            "How often operations began to flow to Redis, and duties by the clock that failed, in five minutes.",
            COUNT,
            Query(f"sum(increase(quintet_core_redis_connects_total{{{HERE}}}[5m]))", "connections"),
            Query(f"sum by (duty) (increase(quintet_core_duty_failures_total{{{HERE}}}[5m])) > 0", "failed: {{duty}}"),
            alert="QuintetDutyFailures",
        ),
        lines(
            "Processor",
            "Seconds of a processor a second, by process. A core uses at most one.",
            RATIO,
            Query(
                f'rate(process_cpu_seconds_total{{job=~"quintet-(core|adapter)", {HERE}}}[$__rate_interval])',
                "{{instance}} {{adapter}}",
            ),
        ),
        lines(
            "Memory",
            "Resident memory, by process.",
            BYTES,
            Query(
                f'process_resident_memory_bytes{{job=~"quintet-(core|adapter)", {HERE}}}', "{{instance}} {{adapter}}"
            ),
            width=12,
        ),
        lines(
            "Open files",
            "Sockets included, by process.",
            COUNT,
            Query(f'process_open_fds{{job=~"quintet-(core|adapter)", {HERE}}}', "{{instance}} {{adapter}}"),
            width=12,
        ),
    ]
