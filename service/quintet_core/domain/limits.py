"""Every bound of the core that a request can meet, in one place, and the checks of what callers send against them.

Each check raises CallerError; what it names is a field of the API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintet_core.domain.errors import CallerError, Reason, broken, exceeded, refusal
from quintet_core.domain.job import RANK_MAX, RANK_MIN, NewJob
from quintet_core.domain.queue import QueueSettings

DAY_MS = 86_400_000
PAGE_DEFAULT = 100
DEDUPLICATION_WINDOW_MS_DEFAULT = 300_000
# As far as records and ids can count.
ATTEMPTS_MAX = 2**31 - 1
SEQUENCE_MAX = 2**53
# A byte, or two, of a record hold these lengths.
LABEL_BYTES_FORMAT_MAX = 255
TEXT_BYTES_FORMAT_MAX = 32_768


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that are settings, each `QUINTET_` and its name in capitals."""

    payload_bytes_max: int = 4 * 1024 * 1024
    batch_jobs_max: int = 100
    batch_bytes_max: int = 8 * 1024 * 1024
    batch_rows_max: int = 100
    redrive_ids_max: int = 1000
    queues_per_dequeue_max: int = 1000
    tables_per_watch_max: int = 1000
    wait_ms_max: int = 2**32 - 1
    lease_ms_max: int = 365 * DAY_MS
    delay_ms_max: int = 36_525 * DAY_MS
    name_bytes_max: int = 4096
    namespace_bytes_max: int = 255
    label_bytes_max: int = 255
    key_bytes_max: int = 4096
    failure_reason_bytes_max: int = 1024
    attributes_max: int = 64
    attributes_bytes_max: int = 4096
    page_max: int = 1000
    events_per_read_max: int = 10_000
    owners_max: int = 200_000
    parked_max: int = 100_000
    awaiting_max: int = 100_000
    event_subscriptions_max: int = 100
    block_streams_max: int = 64
    metrics_streams_max: int = 100
    consumers_max: int = 100
    namespaces_max: int = 1000
    watches_max: int = 1000
    queued_operations_max: int = 200_000
    queued_bytes_max: int = 256 << 20

    def check_namespace(self, namespace: str) -> None:
        """1 to namespace_bytes_max bytes of UTF-8."""
        if len(namespace) * 4 > self.namespace_bytes_max:
            _check_bytes("namespace", namespace, self.namespace_bytes_max)

    def check_name(self, name: str, what: str = "queue") -> None:
        """At most name_bytes_max bytes of UTF-8."""
        if len(name) * 4 > self.name_bytes_max:
            _check_bytes(what, name, self.name_bytes_max)

    def check_label(self, what: str, label: str) -> None:
        """At most label_bytes_max bytes of UTF-8."""
        if label:
            _check_bytes(what, label, self.label_bytes_max)

    def check_key(self, key: bytes, what: str = "key") -> None:
        """At most key_bytes_max bytes."""
        if len(key) > self.key_bytes_max:
            raise exceeded(what, self.key_bytes_max, len(key))

    def check_payload(self, payload: bytes) -> None:
        """At most payload_bytes_max bytes."""
        if len(payload) > self.payload_bytes_max:
            raise payload_too_large(self.payload_bytes_max)

    def check_failure_reason(self, reason: str) -> None:
        """At most failure_reason_bytes_max bytes of UTF-8."""
        _check_bytes("failure_reason", reason, self.failure_reason_bytes_max)

    def page_size(self, asked: int) -> int:
        """How many a page holds at most: what was asked for, 0 for the usual."""
        check_span("page_size", asked, self.page_max)
        return asked or min(PAGE_DEFAULT, self.page_max)

    def check_new_job(self, job: NewJob) -> None:
        """Everything about a job that does not depend on its queue."""
        self.check_payload(job.payload)
        if not RANK_MIN <= job.rank <= RANK_MAX:
            raise broken("rank must fit into 64 bits", field="rank")
        if job.delay_ms or job.time_to_live_ms or job.lease_ms or job.attempts_max:
            check_span("delay_ms", job.delay_ms, self.delay_ms_max)
            check_span("time_to_live_ms", job.time_to_live_ms, self.delay_ms_max)
            check_span("lease_ms", job.lease_ms, self.lease_ms_max)
            check_span("attempts_max", job.attempts_max, ATTEMPTS_MAX)
        self.check_label("content_type", job.content_type)
        if job.deduplication_key:
            self.check_label("deduplication_key", job.deduplication_key)
            check_span("deduplication_window_ms", job.deduplication_window_ms, self.lease_ms_max)
        if job.attributes:
            self._check_attributes(job.attributes)

    def _check_attributes(self, attributes: dict[str, str]) -> None:
        if len(attributes) > self.attributes_max:
            raise exceeded("attributes", self.attributes_max, len(attributes))
        size = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
        if size > self.attributes_bytes_max:
            raise exceeded("attributes", self.attributes_bytes_max, size)

    def check_batch(self, jobs: Sequence[NewJob]) -> None:
        """1 to batch_jobs_max jobs of batch_bytes_max payload bytes in all, each within bounds."""
        if not jobs:
            raise broken("jobs must not be empty", field="jobs")
        if len(jobs) > self.batch_jobs_max:
            raise exceeded("jobs", self.batch_jobs_max, len(jobs))
        for job in jobs:
            self.check_new_job(job)
        if len(jobs) > 1 and (size := sum(len(job.payload) for job in jobs)) > self.batch_bytes_max:
            raise exceeded("payload bytes of a batch", self.batch_bytes_max, size)

    def check_settings(self, queue: str, settings: QueueSettings) -> None:
        """The settings of a queue, by themselves."""
        if not 0 <= settings.structure <= 2:
            raise broken("structure is unknown", field="structure")
        if settings.jobs_max is not None:
            check_span("jobs_max", settings.jobs_max, SEQUENCE_MAX)
        if settings.payload_bytes_max is not None:
            check_span("payload_bytes_max", settings.payload_bytes_max, SEQUENCE_MAX)
        if settings.rank_range is not None and settings.rank_range[0] > settings.rank_range[1]:
            raise broken("rank_range.max must be at least rank_range.min", field="rank_range")
        check_span("lease_ms", settings.lease_ms, self.lease_ms_max)
        check_span("attempts_max", settings.attempts_max, ATTEMPTS_MAX)
        check_span("backoff_ms", settings.backoff_ms, self.lease_ms_max)
        check_span("backoff_max_ms", settings.backoff_max_ms, self.lease_ms_max)
        self.check_name(settings.dead_letter_queue, "dead_letter_queue")
        if settings.dead_letter_queue and settings.dead_letter_queue == queue:
            raise broken("a queue cannot be its own dead-letter queue", field="dead_letter_queue")
        self.check_label("content_type", settings.content_type)


def _check_bytes(what: str, text: str, limit: int) -> None:
    size = len(text.encode())
    if size > limit:
        raise exceeded(what, limit, size)


def check_span(what: str, value: int, limit: int) -> None:
    """Between 0 and a limit, both included."""
    if not 0 <= value <= limit:
        raise broken(f"{what} must be from 0 to {limit}, not {value}", field=what)


def check_id(job_id: int) -> bool:
    """Whether a number can be the id of a job at all; one that cannot is an unknown job, not a fault."""
    return 0 < job_id < SEQUENCE_MAX


def payload_too_large(limit: int) -> CallerError:
    """Names the limit, in bytes."""
    return CallerError(
        refusal(Reason.PAYLOAD_TOO_LARGE, f"the payload is larger than the limit of {limit} bytes", max=str(limit))
    )
