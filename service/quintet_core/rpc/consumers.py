"""The half of EventService that is about logs as a whole and their consumers: a thin door."""

from __future__ import annotations

from quintet.v1 import event_service_pb2 as pb
from quintet.v1 import event_service_pb2_grpc

from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import PartitionLog
from quintet_core.operations.consumers import Consumer, ConsumerOperations, Starts
from quintet_core.rpc import convert
from quintet_core.rpc.blocks import log_of
from quintet_core.rpc.door import Context, Door

# Each method's name is the API's.
# ruff: noqa: N802


class ConsumerServicer(event_service_pb2_grpc.EventServiceServicer):
    """Partitions, offsets by time, and named consumers."""

    def __init__(self, consumers: ConsumerOperations, door: Door) -> None:
        self._consumers = consumers
        self._door = door

    async def ListPartitions(self, request: pb.ListPartitionsRequest, context: Context) -> pb.ListPartitionsResponse:
        """What each partition's log holds."""

        async def work() -> list[PartitionLog] | Refusal:
            return await self._consumers.describe(log_of(request.log), request.consumer)

        def message(logs: list[PartitionLog]) -> pb.ListPartitionsResponse:
            return pb.ListPartitionsResponse(partitions=[convert.partition(log) for log in logs])

        return await self._door.wait(context, "list_partitions", None, work, message)

    async def CommitOffset(self, request: pb.CommitOffsetRequest, context: Context) -> pb.CommitOffsetResponse:
        """How far a consumer has come."""

        async def work() -> int | Refusal:
            return await self._consumers.commit(
                log_of(request.log), request.consumer, request.partition, request.offset, request.epoch
            )

        def message(offset: int) -> pb.CommitOffsetResponse:
            return pb.CommitOffsetResponse(committed_offset=offset)

        return await self._door.wait(context, "commit_offset", None, work, message)

    async def FindOffsets(self, request: pb.FindOffsetsRequest, context: Context) -> pb.FindOffsetsResponse:
        """Offsets by a moment."""

        async def work() -> list[int] | Refusal:
            return await self._consumers.find(log_of(request.log), request.at_ms)

        def message(found: list[int]) -> pb.FindOffsetsResponse:
            offsets = [pb.PartitionOffset(partition=each, after_offset=after) for each, after in enumerate(found)]
            return pb.FindOffsetsResponse(offsets=offsets)

        return await self._door.wait(context, "find_offsets", None, work, message)

    async def OpenConsumer(self, request: pb.OpenConsumerRequest, context: Context) -> pb.OpenConsumerResponse:
        """A consumer under a new epoch."""

        async def work() -> list[PartitionLog] | Refusal:
            starts = {start.partition: start.after_offset for start in request.starts}
            terms = Starts(starts, request.from_latest, request.reset)
            return await self._consumers.open(log_of(request.log), request.consumer, terms)

        def message(logs: list[PartitionLog]) -> pb.OpenConsumerResponse:
            return pb.OpenConsumerResponse(epoch=logs[0].epoch, partitions=[convert.partition(log) for log in logs])

        return await self._door.wait(context, "open_consumer", None, work, message)

    async def ListConsumers(self, request: pb.ListConsumersRequest, context: Context) -> pb.ListConsumersResponse:
        """The consumers of a log."""

        async def work() -> list[Consumer] | Refusal:
            return await self._consumers.list(log_of(request.log))

        def message(found: list[Consumer]) -> pb.ListConsumersResponse:
            consumers = [
                pb.Consumer(consumer=each.name, epoch=each.epoch, lag=each.lag, lag_max=each.lag_max) for each in found
            ]
            return pb.ListConsumersResponse(consumers=consumers)

        return await self._door.wait(context, "list_consumers", None, work, message)

    async def DeleteConsumer(self, request: pb.DeleteConsumerRequest, context: Context) -> pb.DeleteConsumerResponse:
        """Forget a consumer."""

        async def work() -> Refusal | None:
            return await self._consumers.delete(log_of(request.log), request.consumer)

        def message(_: None) -> pb.DeleteConsumerResponse:
            return pb.DeleteConsumerResponse()

        return await self._door.wait(context, "delete_consumer", None, work, message)
