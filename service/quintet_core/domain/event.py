"""One change of a queue, job, table or row, as the event log keeps it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EventKind(enum.IntEnum):
    """Kinds of events of tables and rows, as quintet.v1.EventKind."""

    ROW_PUT = 30
    ROW_DELETED = 31
    ROW_EXPIRED = 32
    TABLE_CREATED = 40
    TABLE_UPDATED = 41
    TABLE_DELETED = 42


class Log(enum.StrEnum):
    """The logs of a partition, by the names that the function library knows."""

    EVENTS = "events"
    METRICS = "metrics"


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
    # Of events of tables and rows, whose `queue` is empty.
    table: str = ""
    key: bytes = b""
    expires_at_ms: int = 0
    value: bytes | None = None
    # Of jobs put where events carry payloads.
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What a partition's log holds: records first_offset to last_offset; committed_offset is -1 for none. Times are
    those of the oldest and the newest, 0 where there is none."""

    partition: int
    first_offset: int
    last_offset: int
    committed_offset: int
    epoch: int
    first_at_ms: int = 0
    last_at_ms: int = 0
