"""One change of a queue or job, as the event log keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Event:
    """As quintet.v1.Event. `offset` counts the partition's events from 1, without gaps."""

    partition: int
    offset: int
    kind: int
    at_ms: int
    namespace: str
    queue: str
    job_id: int
    rank: int
    attempt: int
    wait_ms: int
    service_ms: int
    payload_bytes: int
    state: int
    detail: str


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What a partition's log holds: events first_offset to last_offset; committed_offset is -1 for none."""

    partition: int
    first_offset: int
    last_offset: int
    committed_offset: int
    epoch: int
