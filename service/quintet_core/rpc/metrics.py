"""MetricsService: the newest snapshots, and snapshots as they are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from quintet.v1 import metrics_service_pb2 as pb
from quintet.v1 import metrics_service_pb2_grpc

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.limits import Limits
from quintet_core.domain.snapshot import MetricKind, ProcessSnapshot, Snapshot
from quintet_core.rpc import wire
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.door import Context, Door
from quintet_core.rpc.following import Observe
from quintet_core.rpc.status import abort
from quintet_core.watching.snapshots import Follower, Known, NewestSnapshots, Written

VERB = "stream"
SERVICE = pb.DESCRIPTOR.services_by_name["MetricsService"].full_name
# A response beyond this is one that a client would not take.
SNAPSHOT_BYTES_MAX = 60 << 20
STREAM_BYTES = 1 << 20
ENCODED_AT_ONCE = 200

# Each method's name is the API's.
# ruff: noqa: N802


class MetricsServicer(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Reads what the core knows already: no call goes to Redis."""

    def __init__(self, newest: NewestSnapshots, limits: Limits, door: Door, observe: Observe) -> None:
        self._newest = newest
        self._limits = limits
        self._door = door
        self._observe = observe
        self._streams = 0

    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> bytes:  # type: ignore[override]
        """The newest snapshots of what the caller may see."""
        access = current_access()

        async def work() -> bytes | Refusal:
            sees = _seen(request.namespace, access)
            known: list[Written] = [each for each in self._newest.known() if sees(each.namespace)]
            if sees(""):
                known += self._newest.processes()
            encoded = [response async for response in _responses(known)]
            if sum(map(len, encoded)) > SNAPSHOT_BYTES_MAX:
                return refusal(Reason.LIMIT_EXCEEDED, "too many queues and tables for one answer: name a namespace")
            return b"".join(encoded)

        return await self._door.wait(context, "snapshot", request.namespace or None, work, _itself)

    async def Stream(self, request: pb.StreamRequest, context: Context) -> None:  # type: ignore[override]
        """Snapshots as they are written, until the caller leaves or the core drains."""
        access = current_access()
        refused = self._refused(request.namespace, access)
        self._observe(VERB, refused)
        if refused is not None:
            await abort(context, refused)
        follower = self._newest.follow(_seen(request.namespace, access))
        self._streams += 1
        try:
            ended = await _tell(context, follower)
        finally:
            self._streams -= 1
            self._newest.leave(follower)
        await abort(context, ended)

    def _refused(self, namespace: str, access: Access) -> Refusal | None:
        if not access.permits(VERB, namespace or None):
            return refusal(Reason.PERMISSION_DENIED)
        most = self._limits.metrics_streams_max
        if self._streams >= most:
            return refusal(Reason.TOO_MANY_IN_FLIGHT, "too many streams of snapshots", max=str(most))
        return None


async def _tell(context: Context, follower: Follower) -> Refusal:
    # At once, so that a client knows that it is served.
    await context.write(b"")
    while isinstance(told := await follower.take(), list):
        async for response in _responses(told):
            await context.write(response)
    return told


async def _responses(written: Sequence[Written]) -> AsyncIterator[bytes]:
    """Fields joined to responses of bounded size. Others have their turn in between: there may be many thousands."""
    gathered: list[bytes] = []
    size = 0
    for place, each in enumerate(written, start=1):
        gathered.append(_encoded(each))
        size += len(gathered[-1])
        if size >= STREAM_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
        if place % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    if gathered:
        yield b"".join(gathered)


def _seen(namespace: str, access: Access) -> Callable[[str], bool]:
    """Which namespaces are told of. That of processes is "": they are for who may see every namespace."""
    return (lambda seen: seen == namespace) if namespace else access.sees


def _encoded(written: Written) -> bytes:
    """As a field of SnapshotResponse, and of StreamResponse, which have the same."""
    if isinstance(written, ProcessSnapshot):
        return pb.SnapshotResponse(processes=[_process(written)]).SerializeToString()
    if written.encoded is None:
        written.encoded = _thing(written)
    return written.encoded


def _thing(known: Known) -> bytes:
    snapshot = known.unpack()
    if snapshot.kind is MetricKind.TABLE:
        return pb.SnapshotResponse(tables=[_table(snapshot)]).SerializeToString()
    return pb.SnapshotResponse(queues=[_queue(snapshot)]).SerializeToString()


def _queue(snapshot: Snapshot) -> pb.QueueSnapshot:
    totals = dict(zip(_QUEUE_TOTALS, snapshot.totals, strict=True))
    return pb.QueueSnapshot(
        namespace=snapshot.namespace,
        queue=snapshot.name,
        at_ms=snapshot.at_ms,
        interval_ms=snapshot.interval_ms,
        ready=snapshot.ready,
        delayed=snapshot.delayed,
        leased=snapshot.leased,
        dead=snapshot.dead,
        oldest_ready_age_ms=snapshot.oldest_ready_age_ms,
        enqueued_rate=snapshot.rate(0),
        dequeued_rate=snapshot.rate(1),
        acknowledged_rate=snapshot.rate(2),
        **totals,
    )


_QUEUE_TOTALS = (
    "enqueued_total", "dequeued_total", "acknowledged_total", "released_total", "lease_expired_total",
    "owner_closed_total", "extended_total", "deleted_total", "became_ready_total", "expired_total", "redriven_total",
    "dead_lettered_total", "died_total",
)  # fmt: skip
"""The totals of a record, as QueueSnapshot names them."""


def _table(snapshot: Snapshot) -> pb.TableSnapshot:
    put, deleted, expired, *_ = snapshot.totals
    return pb.TableSnapshot(
        namespace=snapshot.namespace,
        table=snapshot.name,
        at_ms=snapshot.at_ms,
        interval_ms=snapshot.interval_ms,
        rows=snapshot.ready,
        put_total=put,
        deleted_total=deleted,
        expired_total=expired,
        put_rate=snapshot.rate(0),
        deleted_rate=snapshot.rate(1),
    )


def _process(snapshot: ProcessSnapshot) -> pb.ProcessSnapshot:
    return pb.ProcessSnapshot(
        process=snapshot.process,
        replica=snapshot.replica,
        at_ms=snapshot.at_ms,
        interval_ms=snapshot.interval_ms,
        values=snapshot.values,
    )


def _itself(encoded: bytes) -> bytes:
    return encoded


def metrics_handlers(servicer: MetricsServicer) -> tuple[str, dict[str, Any]]:
    """The service, and what the generated registration does, but that responses are encoded already."""
    snapshot = grpc.unary_unary_rpc_method_handler(
        servicer.Snapshot, request_deserializer=pb.SnapshotRequest.FromString, response_serializer=wire.serialize
    )
    stream = grpc.unary_stream_rpc_method_handler(
        servicer.Stream, request_deserializer=pb.StreamRequest.FromString, response_serializer=wire.serialize
    )
    return SERVICE, {"Snapshot": snapshot, "Stream": stream}
