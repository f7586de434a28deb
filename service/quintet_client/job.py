"""Jobs as a caller sees them: frozen values, instants in epoch milliseconds of the store's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quintet.v1 import job_pb2


class JobState(StrEnum):
    """Where a job is."""

    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"

    @property
    def wire(self) -> job_pb2.JobState.ValueType:
        """The API's value."""
        return job_pb2.JobState.Value(f"JOB_STATE_{self.name}")

    @classmethod
    def of_wire(cls, value: int) -> JobState:
        """The state of the API's value. Raises ValueError for one this client does not know."""
        return _STATES[value]


_STATES: Mapping[int, JobState] = {state.wire: state for state in JobState}


class Placement(StrEnum):
    """Where a job goes that comes back."""

    ORIGINAL = "original"
    TAIL = "tail"

    @property
    def wire(self) -> job_pb2.Placement.ValueType:
        """The API's value."""
        return job_pb2.Placement.Value(f"PLACEMENT_{self.name}")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue; what is left out is the queue's setting. See `proto/quintet/v1/job.proto` for each bound."""

    payload: bytes = b""
    content_type: str = ""
    rank: int = 0
    delay_ms: int = 0
    time_to_live_ms: int = 0
    deduplication_key: str = ""
    deduplication_window_ms: int = 0
    attempts_max: int = 0
    lease_ms: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> job_pb2.NewJob:
        """The API's message."""
        return job_pb2.NewJob(
            payload=self.payload,
            content_type=self.content_type,
            rank=self.rank,
            delay_ms=self.delay_ms,
            time_to_live_ms=self.time_to_live_ms,
            deduplication_key=self.deduplication_key,
            deduplication_window_ms=self.deduplication_window_ms,
            attempts_max=self.attempts_max,
            lease_ms=self.lease_ms,
            attributes=self.attributes,
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job until `deadline_at_ms` (0: as long as its owner lives)."""

    token: int
    deadline_at_ms: int
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stood when the core answered. `expires_at_ms` 0: never; `attempts_max` 0: no limit."""

    id: int
    namespace: str
    queue: str
    payload: bytes
    content_type: str
    rank: int
    state: JobState
    enqueued_at_ms: int
    available_at_ms: int
    expires_at_ms: int
    attempts: int
    attempts_max: int
    failure_reason: str
    lease: Lease | None
    deduplication_key: str
    attributes: Mapping[str, str]
    payload_bytes: int

    @classmethod
    def of_wire(cls, job: job_pb2.Job) -> Job:
        """The job of the API's message."""
        lease = Lease(job.lease.token, job.lease.deadline_at_ms, job.lease.worker) if job.HasField("lease") else None
        return cls(
            id=job.id,
            namespace=job.namespace,
            queue=job.queue,
            payload=job.payload,
            content_type=job.content_type,
            rank=job.rank,
            state=JobState.of_wire(job.state),
            enqueued_at_ms=job.enqueued_at_ms,
            available_at_ms=job.available_at_ms,
            expires_at_ms=job.expires_at_ms,
            attempts=job.attempts,
            attempts_max=job.attempts_max,
            failure_reason=job.failure_reason,
            lease=lease,
            deduplication_key=job.deduplication_key,
            attributes=dict(job.attributes),
            payload_bytes=job.payload_bytes,
        )
