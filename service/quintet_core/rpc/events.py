"""EventService: a thin door onto the event log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from quintet.v1 import event_service_pb2 as pb

from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Event
from quintet_core.domain.limits import Limits, check_span
from quintet_core.operations.consumers import ConsumerOperations
from quintet_core.rpc import convert, wire
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.blocks import BlockStreams
from quintet_core.rpc.consumers import ConsumerServicer
from quintet_core.rpc.door import Context, Door
from quintet_core.rpc.following import Followings, Observe, check_offset, check_partition
from quintet_core.storage.log_reader import LogReader
from quintet_core.storage.redis_store import RedisStore
from quintet_core.watching.interest import EventInterest
from quintet_core.watching.watcher import Batch, Watcher
from quintet_core.watching.watches import Watches

EVENTS_DEFAULT = 1000
VERB = "subscribe"
SERVICE = pb.DESCRIPTOR.services_by_name["EventService"].full_name

# Each method's name is the API's.
# ruff: noqa: N802


class EventServicer(ConsumerServicer):
    """Reads of the log, named consumers, and subscriptions."""

    def __init__(
        self,
        store: RedisStore,
        reader: LogReader,
        consumers: ConsumerOperations,
        watches: Watches,
        limits: Limits,
        door: Door,
        observe: Observe,
    ) -> None:
        super().__init__(consumers, door)
        self._store = store
        self._limits = limits
        self._watches = watches
        self._followings = Followings(watches, limits.event_subscriptions_max, "subscriptions", observe)
        self._block_streams = BlockStreams(store, reader, limits.block_streams_max, observe)

    async def ReadEvents(self, request: pb.ReadEventsRequest, context: Context) -> pb.ReadEventsResponse:
        """Events behind an offset. Those of namespaces that the caller does not see are left out."""
        access = current_access()

        async def work() -> tuple[list[Event], int] | Refusal:
            check_partition(request.partition, self._store.partitions)
            check_offset("after_offset", request.after_offset)
            check_span("events_max", request.events_max, self._limits.events_per_read_max)
            limit = request.events_max or min(EVENTS_DEFAULT, self._limits.events_per_read_max)
            return await self._store.read_events(request.partition, request.after_offset, limit)

        def message(outcome: tuple[list[Event], int]) -> pb.ReadEventsResponse:
            events, last = outcome
            seen = [convert.event(event) for event in events if access.unlimited or access.sees(event.namespace)]
            return pb.ReadEventsResponse(events=seen, last_offset=last)

        return await self._door.wait(context, "read_events", None, work, message)

    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> None:  # type: ignore[override]
        """Events as they are committed, until the caller leaves or the core drains."""
        access = current_access()
        namespace = request.namespace or None
        await self._followings.serve(context, VERB, namespace, lambda: self._open(request, access), _events)

    async def ReadBlocks(self, request: pb.ReadBlocksRequest, context: Context) -> None:  # type: ignore[override]
        """A range of a log as it is stored, in blocks."""
        await self._block_streams.serve(context, request)

    async def _open(self, request: pb.SubscribeRequest, access: Access) -> Watcher | Refusal:
        starts: dict[int, int] = {}
        for start in request.starts:
            check_partition(start.partition, self._store.partitions)
            check_offset("after_offset", start.after_offset)
            starts[start.partition] = start.after_offset
        return await self._watches.open(
            EventInterest(_chosen(request.namespace, access)),
            range(self._store.partitions),
            starts,
            from_earliest=request.from_earliest,
            may_be_ahead=True,
        )


def _chosen(namespace: str, access: Access) -> Callable[[str], bool]:
    return (lambda seen: seen == namespace) if namespace else access.sees


def _events(batch: Batch) -> bytes:
    return batch.data


def subscribe_handlers(servicer: EventServicer) -> tuple[str, dict[str, Any]]:
    """The service, and what the generated registration does, but that responses are encoded already."""
    subscribe = grpc.unary_stream_rpc_method_handler(
        servicer.Subscribe, request_deserializer=pb.SubscribeRequest.FromString, response_serializer=wire.serialize
    )
    return SERVICE, {"Subscribe": subscribe}
