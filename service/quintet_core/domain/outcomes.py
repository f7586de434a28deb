"""What operations answer when they are carried out. A Refusal stands in the place of any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quintet_core.domain.errors import Refusal
from quintet_core.domain.job import Job, JobState, LeasedRecord


@dataclass(slots=True)
class Enqueued:
    """Ids in the order of the jobs; `deduplicated` are those that name earlier jobs."""

    ids: list[int]
    deduplicated: list[int]


@dataclass(slots=True)
class Dequeued:
    """Leased jobs, best first; none when nothing was ready."""

    jobs: list[LeasedRecord]


@dataclass(slots=True)
class Awaited:
    """Whether one of the queues had a ready job just now."""

    ready: bool


@dataclass(slots=True)
class Acknowledged:
    """The job is gone."""


@dataclass(slots=True)
class Released:
    """Where the job went; None when its time to live was over."""

    state: JobState | None


@dataclass(slots=True)
class Extended:
    """The new deadline."""

    deadline_at_ms: int


@dataclass(slots=True)
class Deleted:
    """The state that the job was in."""

    state: JobState


@dataclass(slots=True)
class JobPage:
    """Jobs, and the cursor behind the last of them; None at the end."""

    jobs: list[Job]
    cursor: tuple[bytes, bytes] | None


_T = TypeVar("_T")
Done = Callable[[_T | Refusal], None]
