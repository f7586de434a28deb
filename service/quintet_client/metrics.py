"""Snapshots of queues, tables and processes as a caller sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quintet.v1 import metrics_service_pb2 as wire


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue at an instant. `interval_ms`: since the snapshot before; 0: it is the first. Totals are events since the
    queue was made, rates per second over the interval."""

    namespace: str
    queue: str
    at_ms: int
    interval_ms: int
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_age_ms: int
    enqueued_total: int
    dequeued_total: int
    acknowledged_total: int
    released_total: int
    lease_expired_total: int
    owner_closed_total: int
    extended_total: int
    deleted_total: int
    became_ready_total: int
    expired_total: int
    redriven_total: int
    dead_lettered_total: int
    died_total: int
    enqueued_rate: float
    dequeued_rate: float
    acknowledged_rate: float

    @classmethod
    def of_wire(cls, snapshot: wire.QueueSnapshot) -> QueueSnapshot:
        """The snapshot of the API's message."""
        return cls(**{name: getattr(snapshot, name) for name in cls.__dataclass_fields__})

    @property
    def held(self) -> int:
        """Jobs in all states."""
        return self.ready + self.delayed + self.leased + self.dead


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at an instant; as `QueueSnapshot`."""

    namespace: str
    table: str
    at_ms: int
    interval_ms: int
    rows: int
    put_total: int
    deleted_total: int
    expired_total: int
    put_rate: float
    deleted_rate: float

    @classmethod
    def of_wire(cls, snapshot: wire.TableSnapshot) -> TableSnapshot:
        """The snapshot of the API's message."""
        return cls(**{name: getattr(snapshot, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """A process at an instant: its series, as its /metrics names them, but for those that are 0."""

    process: str
    replica: str
    at_ms: int
    interval_ms: int
    values: Mapping[str, float]

    @classmethod
    def of_wire(cls, snapshot: wire.ProcessSnapshot) -> ProcessSnapshot:
        """The snapshot of the API's message."""
        return cls(snapshot.process, snapshot.replica, snapshot.at_ms, snapshot.interval_ms, dict(snapshot.values))


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Some of each, in no order."""

    queues: list[QueueSnapshot]
    tables: list[TableSnapshot]
    processes: list[ProcessSnapshot]

    @classmethod
    def of_wire(cls, response: wire.SnapshotResponse | wire.StreamResponse) -> Snapshots:
        """The snapshots of the API's message."""
        return cls(
            [QueueSnapshot.of_wire(each) for each in response.queues],
            [TableSnapshot.of_wire(each) for each in response.tables],
            [ProcessSnapshot.of_wire(each) for each in response.processes],
        )
