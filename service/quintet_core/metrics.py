"""The core's metrics, declared once; and the counting on the hot path, one addition an operation."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Gauge
from quintet_kit.metrics import Counting, Distributing, Family, Gauging, Listing, MetricSet, Tallying

from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.event import Log
from quintet_core.domain.snapshot import QUEUE_TOTALS, TABLE_TOTALS
from quintet_core.domain.verbs import (
    ADMIN_VERBS,
    EVENT_VERBS,
    METRICS_VERBS,
    QUEUE_VERBS,
    SESSION_OPERATIONS,
    SESSION_VERBS,
    STREAM_VERBS,
    TABLE_VERBS,
)

VERBS = (*QUEUE_VERBS, *TABLE_VERBS, *EVENT_VERBS, *METRICS_VERBS, *STREAM_VERBS, *ADMIN_VERBS, *SESSION_VERBS)
OK = "ok"
LOGS = tuple(Log)
OUTCOMES = (OK, *(reason.name.lower() for reason in Reason))
ROUND_TRIP_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
DUTIES = ("due", "lapse", "heartbeat", "review", "sweep", "trim", "letters", "snapshot")
_QUEUE_KINDS, _TABLE_KINDS = ", ".join(QUEUE_TOTALS), ", ".join(TABLE_TOTALS)
_KINDS = f"{_QUEUE_KINDS}, {_TABLE_KINDS}"
_QUEUE = {"namespace": "its namespace", "queue": "its name, or the beginning and a digest of a long one"}
_TABLE = {"namespace": "its namespace", "table": "its name, or the beginning and a digest of a long one"}


class CoreMetrics(MetricSet):
    """The core."""

    operations = Tallying(
        "quintet_core_operations_total",
        "Operations answered, on sessions and calls; streams as they begin.",
        verb=VERBS,
        outcome=OUTCOMES,
    )
    call_seconds = Distributing(
        "quintet_core_call_seconds",
        "Unary calls, from their arrival to their answer; of dequeue and await_jobs, the wait included.",
        verb=(*QUEUE_VERBS, *TABLE_VERBS, *EVENT_VERBS, *METRICS_VERBS, *ADMIN_VERBS),
    )
    session_operation_seconds = Distributing(
        "quintet_core_session_operation_seconds",
        "Operations on sessions, from the arrival of their request to their answer; of dequeue and await_jobs, the wait"
        " included.",
        verb=SESSION_OPERATIONS,
    )
    redis_round_trip_seconds = Distributing(
        "quintet_core_redis_round_trip_seconds",
        "From a batch's sending to its last answer; every change in it is on disk then.",
        ROUND_TRIP_BUCKETS,
    )
    batch_operations = Distributing("quintet_core_batch_operations", "Operations of a batch.", BATCH_BUCKETS)
    batch_calls = Distributing("quintet_core_batch_calls", "Function calls of a batch.", BATCH_BUCKETS)
    queued = Gauging("quintet_core_queued_operations", "Operations that wait for the next batch.")
    sessions = Gauging("quintet_core_sessions", "Sessions with a stream here.")
    owners = Gauging("quintet_core_owners", "Owners of these sessions.")
    parked = Gauging("quintet_core_parked_dequeues", "Dequeues that wait for a job here.")
    awaiting = Gauging("quintet_core_awaiting_jobs", "Calls of await_jobs that wait here, and take no job.")
    ready = Gauging("quintet_core_ready", "1 when work may be sent here.")
    redis_connected = Gauging("quintet_core_redis_connected", "1 when operations can flow to Redis.")
    redis_connects = Counting("quintet_core_redis_connects_total", "Times that operations began to flow to Redis.")
    wake_connected = Gauging("quintet_core_wake_connected", "1 when wake-ups of other cores are heard.")
    durable = Gauging("quintet_core_durable", "1 when Redis writes every change to disk before it answers.")
    aof_last_write_ok = Gauging(
        "quintet_core_aof_last_write_ok", "1 when Redis's last write to its append-only file succeeded."
    )
    duty_failures = Counting("quintet_core_duty_failures_total", "Duties that Redis refused.", duty=DUTIES)
    events_dropped = Counting(
        "quintet_core_events_dropped_total", "Times that the cap cut events that a consumer still wanted."
    )
    snapshots_dropped = Counting(
        "quintet_core_snapshots_dropped_total", "Times that the cap cut snapshots that a consumer still wanted."
    )
    log_records = Gauging(
        "quintet_core_log_records", "Records that a log holds, in the partition that holds most of them.", log=LOGS
    )
    log_cap_ratio = Gauging(
        "quintet_core_log_cap_ratio",
        "The same as a part of the cap; at 1 the oldest go, needed or not.",
        log=LOGS,
    )
    consumer_lag = Listing(
        "quintet_core_consumer_lag_records",
        "Records that a consumer has not committed, over all partitions.",
        "gauge",
        log="the log: " + ", ".join(LOGS),
        consumer="its name; the 100 furthest behind",
    )
    events = Listing(
        "quintet_core_events_total",
        "Events of all queues and tables that there ever were; job_died: of jobs whose attempts were used up.",
        "counter",
        kind=_KINDS,
    )
    queue_jobs = Listing(
        "quintet_queue_jobs", "Jobs of a queue.", "gauge", **_QUEUE, state="ready, delayed, leased, dead"
    )
    queue_oldest_ready_age_seconds = Listing(
        "quintet_queue_oldest_ready_age_seconds",
        "How long the oldest of the jobs that are first of their rank has been ready; of the first 16 ranks.",
        "gauge",
        **_QUEUE,
    )
    queue_events = Listing(
        "quintet_queue_events_total", "Events of a queue since it was made.", "counter", **_QUEUE, kind=_QUEUE_KINDS
    )
    table_rows = Listing("quintet_table_rows", "Rows of a table.", "gauge", **_TABLE)
    table_events = Listing(
        "quintet_table_events_total", "Events of a table since it was made.", "counter", **_TABLE, kind=_TABLE_KINDS
    )
    unlisted_queues = Gauging(
        "quintet_core_unlisted_queues", "Queues and tables that have no series here: there are too many."
    )
    snapshot_age_seconds = Gauging(
        "quintet_core_snapshot_age_seconds",
        "How long ago this core knew all snapshots of a slot; 0 where none are taken on purpose.",
    )
    watches = Gauging("quintet_core_watches", "Watches and subscriptions that follow the event log here.")
    watch_events = Counting(
        "quintet_core_watch_events_total", "Events told to watches and subscriptions, once for each."
    )
    watch_lag_events = Gauging(
        "quintet_core_watch_lag_events",
        "Events that the last of those that read the log is behind what this core has seen of it.",
    )
    watch_falls = Counting(
        "quintet_core_watch_falls_total", "Times that one was too slow for the live end, and went on reading the log."
    )
    tail_connected = Gauging("quintet_core_tail_connected", "1 when the live end of the log is read, for someone.")
    dead_lettered = Counting("quintet_core_dead_lettered_total", "Jobs moved to their dead-letter queue.")


class Recorder:
    """Counts on the hot path."""

    def __init__(self, metrics: CoreMetrics) -> None:
        self._done = {verb: metrics.operations.at(verb, OK) for verb in VERBS}
        self._operations = metrics.operations
        self._calls = metrics.call_seconds
        self._session = metrics.session_operation_seconds
        self._round_trip = metrics.redis_round_trip_seconds.at()
        self._batch_operations = metrics.batch_operations.at()
        self._batch_calls = metrics.batch_calls.at()

    def answered(self, verb: str, outcome: object) -> None:
        """An operation was answered, with an outcome or a Refusal."""
        if isinstance(outcome, Refusal):
            self._operations.at(verb, outcome.reason.name.lower()).count += 1
        else:
            self._done[verb].count += 1

    def session_answered(self, verb: str, times: int, seconds: float) -> None:
        """Operations of one request on a session were answered together, with outcomes."""
        self._done[verb].count += times
        self._session.at(verb).observe(seconds, times)

    def session_refused(self, verb: str, refused: Refusal, seconds: float) -> None:
        """An operation on a session was refused."""
        self.answered(verb, refused)
        self._session.at(verb).observe(seconds)

    def called(self, verb: str, outcome: object, seconds: float) -> None:
        """A unary call was answered."""
        self.answered(verb, outcome)
        self._calls.at(verb).observe(seconds)

    def on_batch(self, operations: int, calls: int, seconds: float) -> None:
        """As storage.pipeline.Observer."""
        self._round_trip.observe(seconds)
        self._batch_operations.observe(operations)
        self._batch_calls.observe(calls)


def read_at_scrape(family: Family[Gauge], read: Callable[[], float]) -> None:
    """Let a gauge without labels be read when it is asked for."""
    family.at().set_function(read)
