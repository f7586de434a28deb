"""Queues, their settings and their counts."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PauseDirection(enum.IntEnum):
    """As quintet.v1.PauseDirection; NONE is its UNSPECIFIED."""

    NONE = 0
    IN = 1
    OUT = 2
    BOTH = 3


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`None` is no limit. Milliseconds; 0 is the default of each (60 s lease, no backoff, an hour at most of it)."""

    structure: int = 0
    jobs_max: int | None = None
    payload_bytes_max: int | None = None
    rank_range: tuple[int, int] | None = None
    lease_ms: int = 0
    attempts_max: int = 0
    backoff_ms: int = 0
    backoff_max_ms: int = 0
    dead_letter_queue: str = ""
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Jobs by state."""

    ready: int
    delayed: int
    leased: int
    dead: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it stands. `paused_until_ms` 0: until resumed."""

    namespace: str
    name: str
    settings: QueueSettings
    paused: PauseDirection
    paused_until_ms: int
    counts: QueueCounts
    created_at_ms: int
    partition: int
