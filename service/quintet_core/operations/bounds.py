"""Checks of what callers send. Each raises CallerError; what it names is a field of the API."""

from __future__ import annotations

from collections.abc import Sequence

from quintet_core.domain import limits
from quintet_core.domain.errors import CallerError, Reason, broken, exceeded, refusal
from quintet_core.domain.job import RANK_MAX, RANK_MIN, NewJob
from quintet_core.domain.limits import Limits
from quintet_core.domain.queue import QueueSettings


def check_namespace(namespace: str) -> None:
    """1 to 255 bytes of UTF-8."""
    if len(namespace) * 4 > limits.NAMESPACE_BYTES_MAX:
        _check_bytes("namespace", namespace, limits.NAMESPACE_BYTES_MAX)


def check_name(queue: str) -> None:
    """At most 4096 bytes of UTF-8."""
    if len(queue) * 4 > limits.NAME_BYTES_MAX:
        _check_bytes("queue", queue, limits.NAME_BYTES_MAX)


def _check_bytes(what: str, text: str, limit: int) -> None:
    size = len(text.encode())
    if size > limit:
        raise exceeded(what, limit, size)


def check_label(what: str, label: str) -> None:
    """At most 255 bytes of UTF-8."""
    if label:
        _check_bytes(what, label, limits.LABEL_BYTES_MAX)


def check_span(what: str, value: int, limit: int) -> None:
    """Between 0 and a limit, both included."""
    if not 0 <= value <= limit:
        raise broken(f"{what} must be from 0 to {limit}, not {value}", field=what)


def check_payload(payload: bytes, bounds: Limits) -> None:
    """At most QUINTET_PAYLOAD_BYTES_MAX."""
    if len(payload) > bounds.payload_bytes_max:
        raise payload_too_large(bounds.payload_bytes_max)


def check_new_job(job: NewJob, bounds: Limits) -> None:
    """Everything about a job that does not depend on its queue."""
    check_payload(job.payload, bounds)
    if not RANK_MIN <= job.rank <= RANK_MAX:
        raise broken("rank must fit into 64 bits", field="rank")
    if job.delay_ms or job.time_to_live_ms or job.lease_ms or job.attempts_max:
        check_span("delay_ms", job.delay_ms, limits.DELAY_MS_MAX)
        check_span("time_to_live_ms", job.time_to_live_ms, limits.DELAY_MS_MAX)
        check_span("lease_ms", job.lease_ms, limits.LEASE_MS_MAX)
        check_span("attempts_max", job.attempts_max, limits.ATTEMPTS_MAX)
    check_label("content_type", job.content_type)
    if job.deduplication_key:
        check_label("deduplication_key", job.deduplication_key)
        check_span("deduplication_window_ms", job.deduplication_window_ms, limits.LEASE_MS_MAX)
    if job.attributes:
        _check_attributes(job.attributes)


def payload_too_large(limit: int) -> CallerError:
    """Names the limit, in bytes."""
    return CallerError(
        refusal(Reason.PAYLOAD_TOO_LARGE, f"the payload is larger than the limit of {limit} bytes", max=str(limit))
    )


def _check_attributes(attributes: dict[str, str]) -> None:
    if len(attributes) > limits.ATTRIBUTES_MAX:
        raise exceeded("attributes", limits.ATTRIBUTES_MAX, len(attributes))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
    if size > limits.ATTRIBUTES_BYTES_MAX:
        raise exceeded("attributes", limits.ATTRIBUTES_BYTES_MAX, size)


def check_batch(jobs: Sequence[NewJob], bounds: Limits) -> None:
    """1 to batch_jobs_max jobs of batch_bytes_max payload bytes in all, each within bounds."""
    if not jobs:
        raise broken("jobs must not be empty", field="jobs")
    if len(jobs) > bounds.batch_jobs_max:
        raise exceeded("jobs", bounds.batch_jobs_max, len(jobs))
    for job in jobs:
        check_new_job(job, bounds)
    if len(jobs) > 1 and (size := sum(len(job.payload) for job in jobs)) > bounds.batch_bytes_max:
        raise exceeded("payload bytes of a batch", bounds.batch_bytes_max, size)


def check_id(job_id: int) -> bool:
    """Whether a number can be the id of a job at all; one that cannot is an unknown job, not a fault."""
    return 0 < job_id < limits.SEQUENCE_MAX


def check_settings(queue: str, settings: QueueSettings) -> None:
    """The settings of a queue, by themselves."""
    if not 0 <= settings.structure <= 2:
        raise broken("structure is unknown", field="structure")
    if settings.jobs_max is not None:
        check_span("jobs_max", settings.jobs_max, limits.SEQUENCE_MAX)
    if settings.payload_bytes_max is not None:
        check_span("payload_bytes_max", settings.payload_bytes_max, limits.SEQUENCE_MAX)
    if settings.rank_range is not None and settings.rank_range[0] > settings.rank_range[1]:
        raise broken("rank_range.max must be at least rank_range.min", field="rank_range")
    check_span("lease_ms", settings.lease_ms, limits.LEASE_MS_MAX)
    check_span("attempts_max", settings.attempts_max, limits.ATTEMPTS_MAX)
    check_span("backoff_ms", settings.backoff_ms, limits.LEASE_MS_MAX)
    check_span("backoff_max_ms", settings.backoff_max_ms, limits.LEASE_MS_MAX)
    check_name(settings.dead_letter_queue)
    if settings.dead_letter_queue and settings.dead_letter_queue == queue:
        raise broken("a queue cannot be its own dead-letter queue", field="dead_letter_queue")
    check_label("content_type", settings.content_type)
