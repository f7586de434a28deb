"""Queues as a caller sees them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quintet.v1 import queue_pb2


class QueueStructure(StrEnum):
    """What a queue promises about its order; informational."""

    UNSPECIFIED = "unspecified"
    HEAP = "heap"
    ARRAY = "array"

    @property
    def wire(self) -> queue_pb2.QueueStructure.ValueType:
        """The API's value."""
        return queue_pb2.QueueStructure.Value(f"QUEUE_STRUCTURE_{self.name}")


class PauseDirection(StrEnum):
    """What a pause stops: `in` enqueue, `out` dequeue."""

    IN = "in"
    OUT = "out"
    BOTH = "both"

    @property
    def wire(self) -> queue_pb2.PauseDirection.ValueType:
        """The API's value."""
        return queue_pb2.PauseDirection.Value(f"PAUSE_DIRECTION_{self.name}")


_STRUCTURES = {structure.wire: structure for structure in QueueStructure}
_PAUSES = {direction.wire: direction for direction in PauseDirection}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. None: no limit; 0 and "": the core's default (`proto/quintet/v1/queue.proto`)."""

    structure: QueueStructure = QueueStructure.UNSPECIFIED
    jobs_max: int | None = None
    payload_bytes_max: int | None = None
    rank_range: tuple[int, int] | None = None
    """Lowest and highest rank, both included."""
    lease_ms: int = 0
    attempts_max: int = 0
    backoff_ms: int = 0
    backoff_max_ms: int = 0
    dead_letter_queue: str = ""
    content_type: str = ""

    def to_wire(self) -> queue_pb2.QueueSettings:
        """The API's message."""
        rank_range = self.rank_range and queue_pb2.RankRange(min=self.rank_range[0], max=self.rank_range[1])
        return queue_pb2.QueueSettings(
            structure=self.structure.wire,
            jobs_max=self.jobs_max,
            payload_bytes_max=self.payload_bytes_max,
            rank_range=rank_range or None,
            lease_ms=self.lease_ms,
            attempts_max=self.attempts_max,
            backoff_ms=self.backoff_ms,
            backoff_max_ms=self.backoff_max_ms,
            dead_letter_queue=self.dead_letter_queue,
            content_type=self.content_type,
        )

    @classmethod
    def of_wire(cls, settings: queue_pb2.QueueSettings) -> QueueSettings:
        """The settings of the API's message."""
        ranks = settings.rank_range
        return cls(
            structure=_STRUCTURES.get(settings.structure, QueueStructure.UNSPECIFIED),
            jobs_max=settings.jobs_max if settings.HasField("jobs_max") else None,
            payload_bytes_max=settings.payload_bytes_max if settings.HasField("payload_bytes_max") else None,
            rank_range=(ranks.min, ranks.max) if settings.HasField("rank_range") else None,
            lease_ms=settings.lease_ms,
            attempts_max=settings.attempts_max,
            backoff_ms=settings.backoff_ms,
            backoff_max_ms=settings.backoff_max_ms,
            dead_letter_queue=settings.dead_letter_queue,
            content_type=settings.content_type,
        )


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Jobs of a queue by state."""

    ready: int
    delayed: int
    leased: int
    dead: int

    @classmethod
    def of_wire(cls, counts: queue_pb2.QueueCounts) -> QueueCounts:
        """The counts of the API's message."""
        return cls(counts.ready, counts.delayed, counts.leased, counts.dead)

    @property
    def total(self) -> int:
        """Jobs in all states."""
        return self.ready + self.delayed + self.leased + self.dead


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it stood when the core answered. `paused_until_ms` 0: until resumed."""

    namespace: str
    name: str
    settings: QueueSettings
    paused: PauseDirection | None
    paused_until_ms: int
    counts: QueueCounts
    created_at_ms: int
    partition: int

    @classmethod
    def of_wire(cls, queue: queue_pb2.Queue) -> Queue:
        """The queue of the API's message."""
        return cls(
            namespace=queue.namespace,
            name=queue.name,
            settings=QueueSettings.of_wire(queue.settings),
            paused=_PAUSES.get(queue.paused),
            paused_until_ms=queue.paused_until_ms,
            counts=QueueCounts.of_wire(queue.counts),
            created_at_ms=queue.created_at_ms,
            partition=queue.partition,
        )
