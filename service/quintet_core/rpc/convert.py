"""Messages of the API to plain data of the domain, and back.

Enqueue, dequeue and acknowledge are on the hot path of a session: messages are made with one call, and fields that
hold their default are left out, because setting a field costs more than testing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quintet.v1 import admin_service_pb2, event_pb2, event_service_pb2, job_pb2, queue_pb2, queue_service_pb2

from quintet_core.domain.errors import broken
from quintet_core.domain.event import Event, EventKind, PartitionLog
from quintet_core.domain.job import Job, JobState, NewJob, Placement
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.domain.outcomes import (
    Acknowledged,
    Awaited,
    Deleted,
    Dequeued,
    Enqueued,
    Extended,
    JobPage,
    Released,
)
from quintet_core.domain.queue import PauseDirection, Queue, QueueCounts, QueueSettings
from quintet_core.rpc import page_token
from quintet_core.storage.records import unpack_leased

NAMESPACE_DEFAULT = "default"


class _LeaseNamed(Protocol):
    """Acknowledge, release and extend requests."""

    @property
    def token(self) -> int: ...
    @property
    def any_lease(self) -> bool: ...


# --- what requests name


def namespace_of(request: Any) -> str:
    """The namespace that a request is about."""
    namespace: str = request.namespace
    return namespace or NAMESPACE_DEFAULT


def token_of(request: _LeaseNamed) -> int | None:
    """The fencing token; None for whichever lease."""
    return None if request.any_lease else request.token


def queue_of(request: Any) -> str | None:
    """The queue that an id must be in, when the request names one."""
    return request.queue if request.HasField("queue") else None


def new_job(message: job_pb2.NewJob) -> NewJob:
    """A job as a caller puts it."""
    attributes = message.attributes
    return NewJob(
        message.payload,
        message.content_type,
        message.rank,
        message.delay_ms,
        message.time_to_live_ms,
        message.deduplication_key,
        message.deduplication_window_ms,
        message.attempts_max,
        message.lease_ms,
        dict(attributes) if attributes else {},
    )


def is_plain(message: job_pb2.NewJob) -> bool:
    """Whether nothing is said of the job but payload, content type and rank."""
    return not (
        message.delay_ms
        or message.time_to_live_ms
        or message.deduplication_key
        or message.attempts_max
        or message.lease_ms
        or message.attributes
    )


def new_jobs(request: queue_service_pb2.EnqueueRequest) -> list[NewJob]:
    """The jobs of an enqueue, in order."""
    messages = request.jobs
    if len(messages) == 1:  # the end of an iteration costs as much as the job
        return [new_job(messages[0])]
    return [new_job(message) for message in messages]


def placement(value: int) -> Placement:
    """UNSPECIFIED is ORIGINAL. Raises CallerError."""
    if value == Placement.TAIL:
        return Placement.TAIL
    if value in (0, Placement.ORIGINAL):
        return Placement.ORIGINAL
    raise broken("placement is unknown", field="placement")


def job_state(value: int, default: JobState) -> JobState:
    """Raises CallerError for a state there is not."""
    if not value:
        return default
    try:
        return JobState(value)
    except ValueError:
        raise broken("state is unknown", field="state") from None


def redriven_state(value: int) -> JobState:
    """DEAD or DELAYED. Raises CallerError."""
    state = job_state(value, JobState.DEAD)
    if state not in (JobState.DEAD, JobState.DELAYED):
        raise broken("state must be DEAD or DELAYED", field="state")
    return state


def purged_states(values: Sequence[int]) -> list[JobState]:
    """Without LEASED, each once. Raises CallerError."""
    states = list(dict.fromkeys(job_state(value, JobState.READY) for value in values))
    if JobState.LEASED in states:
        raise broken("leased jobs are not purged; delete them by id", field="states")
    return states


def pause_direction(value: int) -> PauseDirection:
    """UNSPECIFIED is BOTH. Raises CallerError."""
    try:
        return PauseDirection(value) or PauseDirection.BOTH
    except ValueError:
        raise broken("direction is unknown", field="direction") from None


def settings_of(message: queue_pb2.QueueSettings) -> QueueSettings:
    """Queue settings as a caller sends them."""
    low_high = message.rank_range
    return QueueSettings(
        structure=message.structure,
        jobs_max=message.jobs_max if message.HasField("jobs_max") else None,
        payload_bytes_max=message.payload_bytes_max if message.HasField("payload_bytes_max") else None,
        rank_range=(low_high.min, low_high.max) if message.HasField("rank_range") else None,
        lease_ms=message.lease_ms,
        attempts_max=message.attempts_max,
        backoff_ms=message.backoff_ms,
        backoff_max_ms=message.backoff_max_ms,
        dead_letter_queue=message.dead_letter_queue,
        content_type=message.content_type,
    )


def jobs_cursor(token: str) -> tuple[bytes, bytes] | None:
    """The place behind which a page of jobs begins. Raises CallerError for a token this core did not give."""
    if not token:
        return None
    parts = page_token.decode(token, 2)
    return parts[0], parts[1]


def queues_cursor(token: str) -> str | None:
    """The name behind which a page of queues begins. Raises CallerError."""
    if not token:
        return None
    try:
        return page_token.decode(token, 1)[0].decode()
    except UnicodeDecodeError:
        raise page_token.unknown() from None


# --- what replies hold


def job(told: Job) -> job_pb2.Job:
    """A job as it stands."""
    message = job_pb2.Job(
        id=told.id,
        namespace=told.namespace,
        queue=told.queue,
        payload=told.payload,
        state=told.state,  # type: ignore[arg-type]
        enqueued_at_ms=told.enqueued_at_ms,
        available_at_ms=told.available_at_ms,
        attempts=told.attempts,
        payload_bytes=told.payload_bytes,
    )
    if told.rank:
        message.rank = told.rank
    lease = told.lease
    if lease is not None:
        message.lease.token = lease.token
        if lease.deadline_at_ms:
            message.lease.deadline_at_ms = lease.deadline_at_ms
        if lease.worker:
            message.lease.worker = lease.worker
    if told.content_type:
        message.content_type = told.content_type
    if told.expires_at_ms or told.attempts_max or told.failure_reason or told.deduplication_key or told.attributes:
        _add_rare(message, told)
    return message


def _add_rare(message: job_pb2.Job, told: Job) -> None:
    message.expires_at_ms = told.expires_at_ms
    message.attempts_max = told.attempts_max
    message.failure_reason = told.failure_reason
    message.deduplication_key = told.deduplication_key
    message.attributes.update(told.attributes)


def enqueued(outcome: Enqueued) -> queue_service_pb2.EnqueueResponse:
    """Ids."""
    if outcome.deduplicated:
        return queue_service_pb2.EnqueueResponse(ids=outcome.ids, deduplicated_ids=outcome.deduplicated)
    return queue_service_pb2.EnqueueResponse(ids=outcome.ids)


def dequeued(outcome: Dequeued) -> queue_service_pb2.DequeueResponse:
    """Leased jobs."""
    return queue_service_pb2.DequeueResponse(jobs=[job(unpack_leased(taken)) for taken in outcome.jobs])


def jobs_awaited(outcome: Awaited) -> queue_service_pb2.AwaitJobsResponse:
    """Whether a queue had a job."""
    return queue_service_pb2.AwaitJobsResponse(ready=outcome.ready)


_ACKNOWLEDGE_RESPONSE = queue_service_pb2.AcknowledgeResponse()


def acknowledged(_: Acknowledged) -> queue_service_pb2.AcknowledgeResponse:
    """Always the same empty message; not to be changed."""
    return _ACKNOWLEDGE_RESPONSE


def released(outcome: Released) -> queue_service_pb2.ReleaseResponse:
    """Where the job went; UNSPECIFIED when its time to live was over."""
    return queue_service_pb2.ReleaseResponse(state=outcome.state)  # type: ignore[arg-type]


def extended(outcome: Extended) -> queue_service_pb2.ExtendResponse:
    """The deadline."""
    return queue_service_pb2.ExtendResponse(deadline_at_ms=outcome.deadline_at_ms)


def deleted(outcome: Deleted) -> queue_service_pb2.DeleteResponse:
    """The state it was in."""
    return queue_service_pb2.DeleteResponse(state=outcome.state)  # type: ignore[arg-type]


def peeked(outcome: JobPage) -> queue_service_pb2.PeekResponse:
    """Jobs that were looked at."""
    return queue_service_pb2.PeekResponse(jobs=[job(seen) for seen in outcome.jobs])


def job_got(outcome: Job) -> queue_service_pb2.GetJobResponse:
    """One job."""
    return queue_service_pb2.GetJobResponse(job=job(outcome))


def jobs_listed(outcome: JobPage) -> queue_service_pb2.ListJobsResponse:
    """A page of jobs."""
    token = page_token.encode(*outcome.cursor) if outcome.cursor else ""
    return queue_service_pb2.ListJobsResponse(jobs=[job(seen) for seen in outcome.jobs], next_page_token=token)


def counts(outcome: QueueCounts) -> queue_pb2.QueueCounts:
    """Jobs by state."""
    return queue_pb2.QueueCounts(ready=outcome.ready, delayed=outcome.delayed, leased=outcome.leased, dead=outcome.dead)


def counted(outcome: QueueCounts) -> queue_service_pb2.CountResponse:
    """Jobs by state."""
    return queue_service_pb2.CountResponse(counts=counts(outcome))


def settings(told: QueueSettings) -> queue_pb2.QueueSettings:
    """Queue settings as they stand; absent limits stay absent."""
    ranks = told.rank_range
    return queue_pb2.QueueSettings(
        structure=told.structure,  # type: ignore[arg-type]
        jobs_max=told.jobs_max,
        payload_bytes_max=told.payload_bytes_max,
        rank_range=queue_pb2.RankRange(min=ranks[0], max=ranks[1]) if ranks else None,
        lease_ms=told.lease_ms,
        attempts_max=told.attempts_max,
        backoff_ms=told.backoff_ms,
        backoff_max_ms=told.backoff_max_ms,
        dead_letter_queue=told.dead_letter_queue,
        content_type=told.content_type,
    )


def queue(told: Queue) -> queue_pb2.Queue:
    """A queue as it stands."""
    return queue_pb2.Queue(
        namespace=told.namespace,
        name=told.name,
        settings=settings(told.settings),
        paused=told.paused,  # type: ignore[arg-type]
        paused_until_ms=told.paused_until_ms,
        counts=counts(told.counts),
        created_at_ms=told.created_at_ms,
        partition=told.partition,
    )


def queue_created(outcome: Queue) -> queue_service_pb2.CreateQueueResponse:
    """The queue."""
    return queue_service_pb2.CreateQueueResponse(queue=queue(outcome))


def queue_updated(outcome: Queue) -> queue_service_pb2.UpdateQueueResponse:
    """The queue."""
    return queue_service_pb2.UpdateQueueResponse(queue=queue(outcome))


def queue_got(outcome: Queue) -> queue_service_pb2.GetQueueResponse:
    """The queue."""
    return queue_service_pb2.GetQueueResponse(queue=queue(outcome))


def queue_deleted(jobs: int) -> queue_service_pb2.DeleteQueueResponse:
    """How many jobs were in it."""
    return queue_service_pb2.DeleteQueueResponse(jobs=jobs)


def paused(outcome: Queue) -> queue_service_pb2.PauseResponse:
    """The queue."""
    return queue_service_pb2.PauseResponse(queue=queue(outcome))


def resumed(outcome: Queue) -> queue_service_pb2.ResumeResponse:
    """The queue."""
    return queue_service_pb2.ResumeResponse(queue=queue(outcome))


def purged(jobs: int) -> queue_service_pb2.PurgeResponse:
    """How many jobs went."""
    return queue_service_pb2.PurgeResponse(jobs=jobs)


def redriven(jobs: int) -> queue_service_pb2.RedriveResponse:
    """How many jobs are ready now."""
    return queue_service_pb2.RedriveResponse(jobs=jobs)


def queues_listed(outcome: tuple[list[Queue], str | None]) -> queue_service_pb2.ListQueuesResponse:
    """A page of queues, and the last name when there is more."""
    found, last = outcome
    token = "" if last is None else page_token.encode(last.encode())
    return queue_service_pb2.ListQueuesResponse(queues=[queue(told) for told in found], next_page_token=token)


def event(told: Event) -> event_pb2.Event:
    """One change."""
    message = event_pb2.Event(
        partition=told.partition,
        offset=told.offset,
        kind=told.kind,  # type: ignore[arg-type]
        at_ms=told.at_ms,
        namespace=told.namespace,
        queue=told.queue,
        job_id=told.job_id,
        rank=told.rank,
        attempt=told.attempt,
        wait_ms=told.wait_ms,
        service_ms=told.service_ms,
        payload_bytes=told.payload_bytes,
        state=told.state,
        detail=told.detail,
    )
    if told.payload is not None:
        message.payload = told.payload
    if told.kind >= EventKind.ROW_PUT:
        message.table, message.key, message.expires_at_ms = told.table, told.key, told.expires_at_ms
        if told.value is not None:
            message.value = told.value
    return message


def partition(told: PartitionLog) -> event_service_pb2.Partition:
    """What a partition's log holds."""
    return event_service_pb2.Partition(
        partition=told.partition,
        first_offset=told.first_offset,
        last_offset=told.last_offset,
        committed_offset=told.committed_offset,
        epoch=told.epoch,
        first_at_ms=told.first_at_ms,
        last_at_ms=told.last_at_ms,
    )


def namespace_settings(message: admin_service_pb2.NamespaceSettings) -> NamespaceSettings:
    """What a caller says of a namespace."""
    return NamespaceSettings(message.job_events_off, message.events_carry_payloads, message.events_carry_values)


def namespace_got(told: NamespaceSettings) -> admin_service_pb2.GetNamespaceResponse:
    """What holds for a namespace."""
    settings = admin_service_pb2.NamespaceSettings(
        job_events_off=told.job_events_off,
        events_carry_payloads=told.events_carry_payloads,
        events_carry_values=told.events_carry_values,
    )
    return admin_service_pb2.GetNamespaceResponse(settings=settings)


def namespace_updated(_: None) -> admin_service_pb2.UpdateNamespaceResponse:
    """It is done."""
    return admin_service_pb2.UpdateNamespaceResponse()
