"""The event log of a core as tests want it: with something of everything in it, and read the plain way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from quintet.v1 import event_service_pb2 as wire
from quintet.v1.event_pb2 import Event, EventKind
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.job_pb2 import JobState
from quintet_client.client import Client
from quintet_client.table import TableSettings, TimeToLive

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READ_EVENTS_MAX = 1000
# No row expires while tests compare what is in the log.
_LONG_MS = 86_400_000


def working(target: str, work: Callable[[Client], Awaitable[Any]], namespace: str = "default") -> Any:
    """What `work` returns, given a client of the core at `target`."""

    async def run() -> Any:
        async with Client(target, namespace=namespace) as client:
            return await work(client)

    return asyncio.run(run())


def put_jobs(target: str, queue: str, jobs: int) -> None:
    """Some jobs."""
    working(target, lambda client: client.enqueue_many(queue, [b"x"] * jobs))


def put_everything(target: str, namespace: str = "default", queues: int = 6, jobs: int = 40) -> None:
    """Jobs that are taken, acknowledged, released with a reason, deleted; rows with and without values."""

    async def work(client: Client) -> None:
        for number in range(queues):
            queue = f"wörk-{number}"
            await client.enqueue_many(queue, [b"p" * size for size in range(jobs)])
            for place, job in enumerate(await client.dequeue(queue, jobs_max=jobs // 2)):
                if place % 3 == 0:
                    await client.acknowledge(job)
                elif place % 3 == 1:
                    await client.release(job, failure_reason="näh")
                else:
                    await client.delete(job.id)
        for table, carries in (("values", True), ("keys", False)):
            await client.create_table(table, TableSettings(events_carry_values=carries))
            for number in range(20):
                await client.put_row(
                    table, b"k\xff%d" % number, b"v" * number, ttl_ms=number * _LONG_MS if number else TimeToLive.CLEAR
                )
            await client.delete_row(table, b"k\xff3")

    working(target, work, namespace)


def partitions_of(target: str, consumer: str = "", log: wire.Log.ValueType = wire.LOG_EVENTS) -> list[wire.Partition]:
    """What the log holds."""
    with grpc.insecure_channel(target) as channel:
        request = wire.ListPartitionsRequest(consumer=consumer, log=log)
        return list(EventServiceStub(channel).ListPartitions(request).partitions)


def event_rows_of(target: str) -> list[dict[str, Any]]:
    """Every event that is held, as a row of quintet_spark.schemas.EVENTS without payload, by ReadEvents."""
    with grpc.insecure_channel(target) as channel:
        service = EventServiceStub(channel)
        return [
            _row(event)
            for held in service.ListPartitions(wire.ListPartitionsRequest()).partitions
            for event in _events(service, held)
        ]


def _events(service: Any, held: wire.Partition) -> list[Event]:
    found: list[Event] = []
    after = held.first_offset - 1
    while after < held.last_offset:
        request = wire.ReadEventsRequest(partition=held.partition, after_offset=after, events_max=_READ_EVENTS_MAX)
        found += service.ReadEvents(request).events
        after = found[-1].offset
    return [event for event in found if event.offset <= held.last_offset]


def _row(event: Event) -> dict[str, Any]:
    of_row = EventKind.EVENT_KIND_ROW_PUT <= event.kind <= EventKind.EVENT_KIND_ROW_EXPIRED
    return {
        "partition": event.partition,
        "offset": event.offset,
        "kind": EventKind.Name(event.kind).removeprefix("EVENT_KIND_").lower(),
        "at": _instant(event.at_ms),
        "namespace": event.namespace,
        "queue": None if event.table else event.queue,
        "table": event.table or None,
        "job_id": event.job_id or None,
        "rank": event.rank if event.job_id else None,
        "attempt": event.attempt,
        "wait_ms": event.wait_ms,
        "service_ms": event.service_ms,
        "payload_bytes": event.payload_bytes,
        "state": JobState.Name(event.state).removeprefix("JOB_STATE_").lower() if event.state else None,  # type: ignore[arg-type]
        "detail": event.detail or None,
        "key": event.key if of_row else None,
        "expires_at": _instant(event.expires_at_ms) if event.expires_at_ms else None,
    }


def _instant(at_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at_ms)
