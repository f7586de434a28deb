"""What a queue, a table or a process looked like at an instant, as the metrics log keeps it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class MetricKind(enum.IntEnum):
    """What a snapshot is of, as quintet.v1.MetricKind."""

    QUEUE = 1
    TABLE = 2
    PROCESS = 3


QUEUE_TOTALS = (
    "job_enqueued", "job_dequeued", "job_acknowledged", "job_released", "job_lease_expired", "job_owner_closed",
    "job_extended", "job_deleted", "job_ready", "job_expired", "job_redriven", "job_dead_lettered", "job_died",
)  # fmt: skip
"""The totals of a queue, in the order of the record; all but the last are kinds of events."""
TABLE_TOTALS = ("row_put", "row_deleted", "row_expired")
"""The same of a table; the other numbers are 0."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A queue or a table. `interval_ms`: since its snapshot before, 0 when there was none. `ready`: of a table, rows.
    `totals`: 13 numbers since it was made, named by QUEUE_TOTALS or TABLE_TOTALS. `rates`: their growth a second, over
    the interval; empty where the snapshot before is not known."""

    kind: MetricKind
    namespace: str
    name: str
    at_ms: int
    interval_ms: int
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_age_ms: int
    totals: tuple[int, ...]
    rates: tuple[float, ...] = ()

    @property
    def held(self) -> int:
        """Jobs in all states, or rows."""
        return self.ready + self.delayed + self.leased + self.dead

    def rate(self, at: int) -> float:
        """The rate of the total in this place; 0 while it is not known."""
        return self.rates[at] if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """A process: its series, as /metrics names them, to their values."""

    process: str
    replica: str
    at_ms: int
    interval_ms: int
    values: Mapping[str, float]
