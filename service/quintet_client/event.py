"""Events of the log as a caller sees them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from quintet.v1 import event_pb2, event_service_pb2

from quintet_client.job import JobState


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `kind`: the API's word ("job_enqueued"); `job_id` 0: of the queue; `state` None: the job is gone.

    Of a table or row `table` is set and `queue` empty. `value` is there when the table's events, or those of its
    namespace, carry values; `payload`, of job_enqueued, when those of its namespace carry payloads.
    """

    partition: int
    offset: int
    kind: str
    at_ms: int
    namespace: str
    queue: str
    job_id: int
    rank: int
    attempt: int
    wait_ms: int
    service_ms: int
    payload_bytes: int
    state: JobState | None
    detail: str
    table: str = ""
    key: bytes = b""
    expires_at_ms: int = 0
    value: bytes | None = None
    payload: bytes | None = None

    @classmethod
    def of_wire(cls, event: event_pb2.Event) -> Event:
        """The event of the API's message."""
        return cls(
            partition=event.partition,
            offset=event.offset,
            kind=kind_of(event.kind),
            at_ms=event.at_ms,
            namespace=event.namespace,
            queue=event.queue,
            job_id=event.job_id,
            rank=event.rank,
            attempt=event.attempt,
            wait_ms=event.wait_ms,
            service_ms=event.service_ms,
            payload_bytes=event.payload_bytes,
            state=JobState.of_wire(event.state) if event.state else None,
            detail=event.detail,
            table=event.table,
            key=event.key,
            expires_at_ms=event.expires_at_ms,
            value=event.value if event.HasField("value") else None,
            payload=event.payload if event.HasField("payload") else None,
        )


def kind_of(value: int) -> str:
    """The API's word for a kind of event."""
    # A kind that a newer core knows and this client does not must not end a subscription.
    name = event_pb2.EventKind.DESCRIPTOR.values_by_number.get(value)
    return name.name.removeprefix("EVENT_KIND_").lower() if name is not None else f"kind_{value}"


@dataclass(frozen=True, slots=True)
class Partition:
    """The offsets a partition's log holds, and from when they are (0: none); `committed_offset` None: the consumer has
    none."""

    partition: int
    first_offset: int
    last_offset: int
    committed_offset: int | None
    epoch: int
    first_at_ms: int = 0
    last_at_ms: int = 0

    @classmethod
    def of_wire(cls, partition: event_service_pb2.Partition) -> Partition:
        """The partition of the API's message."""
        return cls(
            partition=partition.partition,
            first_offset=partition.first_offset,
            last_offset=partition.last_offset,
            committed_offset=partition.committed_offset if partition.committed_offset >= 0 else None,
            epoch=partition.epoch,
            first_at_ms=partition.first_at_ms,
            last_at_ms=partition.last_at_ms,
        )


class Log(enum.StrEnum):
    """The logs of a core: of changes, and of what queues, tables and processes looked like once an interval."""

    EVENTS = "events"
    METRICS = "metrics"

    @property
    def wire(self) -> event_service_pb2.Log.ValueType:
        """The API's value."""
        return event_service_pb2.LOG_METRICS if self is Log.METRICS else event_service_pb2.LOG_EVENTS


@dataclass(frozen=True, slots=True)
class Consumer:
    """A named consumer of a log: records behind what it has committed, over all partitions, and the most of one."""

    name: str
    epoch: int
    lag: int
    lag_max: int


@dataclass(frozen=True, slots=True)
class OpenedConsumer:
    """A consumer that was opened: commit with its epoch; begin where each partition's `committed_offset` says."""

    name: str
    epoch: int
    partitions: tuple[Partition, ...]
