"""EventService: a thin door onto the event log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from quintet.v1 import event_service_pb2 as pb
from quintet.v1 import event_service_pb2_grpc

from quintet_core.domain.errors import CallerError, Reason, Refusal, broken, refusal
from quintet_core.domain.event import Event, PartitionLog
from quintet_core.domain.limits import SEQUENCE_MAX
from quintet_core.operations import bounds
from quintet_core.rpc import convert
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.door import Context, Door
from quintet_core.rpc.status import abort
from quintet_core.storage.redis_store import RedisStore

EVENTS_DEFAULT = 1000
EVENTS_MAX = 10_000
TAIL_EVENTS = 1000
TAIL_PERIOD_S = 0.2
SUBSCRIPTIONS_MAX = 100

# Each method's name is the API's.
# ruff: noqa: N802


class EventServicer(event_service_pb2_grpc.EventServiceServicer):
    """Reads of the log, and named consumers. `draining` tells when streams are to end."""

    def __init__(self, store: RedisStore, door: Door, draining: asyncio.Event) -> None:
        self._store = store
        self._door = door
        self._draining = draining
        self._subscriptions = 0

    async def ListPartitions(self, request: pb.ListPartitionsRequest, context: Context) -> pb.ListPartitionsResponse:
        """What each partition's log holds."""

        async def work() -> list[PartitionLog] | Refusal:
            bounds.check_label("consumer", request.consumer)
            return await self._logs(range(self._store.partitions), request.consumer)

        def message(logs: list[PartitionLog]) -> pb.ListPartitionsResponse:
            return pb.ListPartitionsResponse(partitions=[convert.partition(log) for log in logs])

        return await self._door.wait(context, "list_partitions", None, work, message)

    async def ReadEvents(self, request: pb.ReadEventsRequest, context: Context) -> pb.ReadEventsResponse:
        """Events behind an offset. Those of namespaces that the caller does not see are left out."""
        access = current_access()

        async def work() -> tuple[list[Event], int] | Refusal:
            self._check_partition(request.partition)
            _check_number("after_offset", request.after_offset)
            bounds.check_span("events_max", request.events_max, EVENTS_MAX)
            limit = request.events_max or EVENTS_DEFAULT
            return await self._store.read_events(request.partition, request.after_offset, limit)

        def message(outcome: tuple[list[Event], int]) -> pb.ReadEventsResponse:
            events, last = outcome
            seen = [convert.event(event) for event in events if access.unlimited or access.sees(event.namespace)]
            return pb.ReadEventsResponse(events=seen, last_offset=last)

        return await self._door.wait(context, "read_events", None, work, message)

    async def CommitOffset(self, request: pb.CommitOffsetRequest, context: Context) -> pb.CommitOffsetResponse:
        """How far a consumer has come."""

        async def work() -> int | Refusal:
            if not request.consumer:
                raise broken("consumer must not be empty", field="consumer")
            bounds.check_label("consumer", request.consumer)
            self._check_partition(request.partition)
            _check_number("offset", request.offset)
            _check_number("epoch", request.epoch)
            return await self._store.commit_offset(request.partition, request.consumer, request.offset, request.epoch)

        def message(offset: int) -> pb.CommitOffsetResponse:
            return pb.CommitOffsetResponse(committed_offset=offset)

        return await self._door.wait(context, "commit_offset", None, work, message)

    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[pb.SubscribeResponse]:
        """Events as they are committed, until the caller leaves or the core drains."""
        access = current_access()
        allowed = (
            access.allows("subscribe", request.namespace) if request.namespace else access.allows_verb("subscribe")
        )
        if not allowed:
            await abort(context, refusal(Reason.PERMISSION_DENIED))
        if self._subscriptions >= SUBSCRIPTIONS_MAX:
            await abort(
                context, refusal(Reason.TOO_MANY_IN_FLIGHT, "too many subscriptions", max=str(SUBSCRIPTIONS_MAX))
            )
        self._subscriptions += 1
        try:
            try:
                offsets = await self._starts(request)
            except CallerError as error:
                offsets = error.refusal
            if isinstance(offsets, Refusal):
                await abort(context, offsets)
            async for response in self._tail(offsets, _chosen(request.namespace, access), context):
                yield response
        finally:
            self._subscriptions -= 1

    async def _starts(self, request: pb.SubscribeRequest) -> dict[int, int] | Refusal:
        """The offset behind which each partition's events are wanted."""
        given: dict[int, int] = {}
        for start in request.starts:
            self._check_partition(start.partition)
            _check_number("after_offset", start.after_offset)
            given[start.partition] = start.after_offset
        missing = [partition for partition in range(self._store.partitions) if partition not in given]
        logs = await self._logs(missing, "")
        if isinstance(logs, Refusal):
            return logs
        for log in logs:
            given[log.partition] = log.first_offset - 1 if request.from_earliest else log.last_offset
        return given

    async def _tail(
        self, offsets: dict[int, int], chosen: Callable[[Event], bool], context: Context
    ) -> AsyncIterator[pb.SubscribeResponse]:
        while not self._draining.is_set():
            any_read = False
            partitions = sorted(offsets)
            answers = await asyncio.gather(
                *(self._store.read_events(partition, offsets[partition], TAIL_EVENTS) for partition in partitions)
            )
            for partition, answer in zip(partitions, answers, strict=True):
                if isinstance(answer, Refusal):
                    await abort(context, answer)
                events = answer[0]
                if events:
                    any_read = True
                    offsets[partition] = events[-1].offset
                if wanted := [convert.event(event) for event in events if chosen(event)]:
                    yield pb.SubscribeResponse(events=wanted)
            if not any_read:
                await asyncio.sleep(TAIL_PERIOD_S)
        await abort(context, refusal(Reason.DRAINING))

    async def _logs(self, partitions: range | list[int], consumer: str) -> list[PartitionLog] | Refusal:
        answers = await asyncio.gather(*(self._store.describe_events(partition, consumer) for partition in partitions))
        logs: list[PartitionLog] = []
        for answer in answers:
            if isinstance(answer, Refusal):
                return answer
            logs.append(answer)
        return logs

    def _check_partition(self, partition: int) -> None:
        if partition >= self._store.partitions:
            raise broken(f"partition must be below {self._store.partitions}", field="partition")


def _check_number(what: str, value: int) -> None:
    bounds.check_span(what, value, SEQUENCE_MAX)


def _chosen(namespace: str, access: Access) -> Callable[[Event], bool]:
    if namespace:
        return lambda event: event.namespace == namespace
    return lambda event: access.sees(event.namespace)
