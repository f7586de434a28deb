"""Jobs, leases and where a job can be."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

RANK_MIN = -(2**63)
RANK_MAX = 2**63 - 1


class JobState(enum.IntEnum):
    """As quintet.v1.JobState. A job is in exactly one of these."""

    DELAYED = 1
    READY = 2
    LEASED = 3
    DEAD = 4


class Placement(enum.IntEnum):
    """Where a job goes that comes back from a lease. As quintet.v1.Placement."""

    ORIGINAL = 1
    TAIL = 2


@dataclass(slots=True)
class NewJob:
    """A job as a caller puts it. Milliseconds count from now; 0 is the default of each."""

    payload: bytes
    content_type: str = ""
    rank: int = 0
    delay_ms: int = 0
    time_to_live_ms: int = 0
    deduplication_key: str = ""
    deduplication_window_ms: int = 0
    attempts_max: int = 0
    lease_ms: int = 0
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Lease:
    """`deadline_at_ms` 0: it lasts as long as its owner."""

    token: int
    deadline_at_ms: int
    worker: str = ""


@dataclass(slots=True)
class Job:
    """A job as it stands. Instants are epoch milliseconds of the partition's clock."""

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
    attributes: dict[str, str]
    payload_bytes: int


@dataclass(slots=True)
class LeasedRecord:
    """A job that has just been leased, as the store keeps it: few who hand jobs on look at all of it. Unpacked by
    `storage.records.unpack_leased`."""

    id: int
    namespace: str
    queue: str
    run: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead job that is to move to the queue `to`. `token` of its last lease tells this death from any other."""

    job: Job
    token: int
    to: str


@dataclass(slots=True, eq=False)
class LeaseTerms:
    """Terms of a dequeue. `session` and `owner` of 8 bytes each make an owner lease, else `lease_ms` counts (0: the
    job's, then the queue's). `session_ttl_ms` is how long a session lives that is new in the partition."""

    lease_ms: int = 0
    session: bytes = b""
    owner: bytes = b""
    placement_on_close: int = 1
    worker: str = ""
    session_ttl_ms: int = 0
    # What the store made of these terms: an owner's dequeues mostly have the same.
    packed: dict[tuple[str, str, int, bool, bool], tuple[int, tuple[int, bytes]]] = field(
        default_factory=dict, repr=False
    )
