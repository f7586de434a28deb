"""What can be done with the event log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import grpc
from quintet.v1 import event_service_pb2 as wire

from quintet_client.calls import Calls
from quintet_client.errors import UnavailableError, error_of_rpc
from quintet_client.event import Consumer, Event, Log, OpenedConsumer, Partition

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0


class EventCalls(Calls):
    """The verbs of the event log. Every method raises a `QuintetError` when the core refuses, or cannot be reached."""

    async def list_partitions(self, *, consumer: str = "", log: Log = Log.EVENTS) -> list[Partition]:
        """The partitions with the offsets they hold, and those that `consumer` has committed."""
        request = wire.ListPartitionsRequest(consumer=consumer, log=log.wire)
        response: wire.ListPartitionsResponse = await self._read_call(self._event_service.ListPartitions, request)
        return [Partition.of_wire(partition) for partition in response.partitions]

    async def read_events(self, partition: int, *, after_offset: int = 0, events_max: int = 1000) -> list[Event]:
        """Events behind an offset; the same answer each time. `OffsetTrimmedError` when they are gone."""
        request = wire.ReadEventsRequest(partition=partition, after_offset=after_offset, events_max=events_max)
        response: wire.ReadEventsResponse = await self._read_call(self._event_service.ReadEvents, request)
        return [Event.of_wire(event) for event in response.events]

    async def find_offsets(self, at_ms: int, *, log: Log = Log.EVENTS) -> dict[int, int]:
        """For each partition the offset behind which records are as young as a moment (epoch ms), or younger."""
        request = wire.FindOffsetsRequest(log=log.wire, at_ms=at_ms)
        response: wire.FindOffsetsResponse = await self._read_call(self._event_service.FindOffsets, request)
        return {found.partition: found.after_offset for found in response.offsets}

    async def open_consumer(
        self,
        name: str,
        *,
        log: Log = Log.EVENTS,
        starts: Mapping[int, int] | None = None,
        from_latest: bool = False,
        reset: bool = False,
    ) -> OpenedConsumer:
        """Takes up the work of a consumer under a new epoch: commits of whoever worked in its name before are refused
        with `StaleEpochError` from now on. A new one begins behind `starts` (partition to offset), elsewhere with the
        oldest record held, or with the next (`from_latest`); `reset`: also one that exists."""
        request = wire.OpenConsumerRequest(
            consumer=name,
            log=log.wire,
            starts=[wire.PartitionOffset(partition=each, after_offset=at) for each, at in (starts or {}).items()],
            from_latest=from_latest,
            reset=reset,
        )
        response: wire.OpenConsumerResponse = await self._call(self._event_service.OpenConsumer, request)
        return OpenedConsumer(name, response.epoch, tuple(map(Partition.of_wire, response.partitions)))

    async def list_consumers(self, *, log: Log = Log.EVENTS) -> list[Consumer]:
        """The named consumers of a log, by their names."""
        request = wire.ListConsumersRequest(log=log.wire)
        response: wire.ListConsumersResponse = await self._read_call(self._event_service.ListConsumers, request)
        return [Consumer(each.consumer, each.epoch, each.lag, each.lag_max) for each in response.consumers]

    async def delete_consumer(self, name: str, *, log: Log = Log.EVENTS) -> None:
        """Forgets a consumer: the log is kept for it no longer. `ConsumerNotFoundError` when there is none."""
        request = wire.DeleteConsumerRequest(consumer=name, log=log.wire)
        await self._call(self._event_service.DeleteConsumer, request)

    async def commit_offset(
        self, consumer: str, partition: int, offset: int, *, epoch: int = 0, log: Log = Log.EVENTS
    ) -> int:
        """Records that `consumer` has dealt with all up to `offset`; returns what is committed. Never moves back."""
        request = wire.CommitOffsetRequest(
            consumer=consumer, partition=partition, offset=offset, epoch=epoch, log=log.wire
        )
        # Safe to repeat: an offset never moves back.
        response: wire.CommitOffsetResponse = await self._read_call(self._event_service.CommitOffset, request)
        return response.committed_offset

    async def subscribe(
        self,
        *,
        after_offsets: Mapping[int, int] | None = None,
        from_earliest: bool = False,
        all_namespaces: bool = False,
    ) -> AsyncIterator[Event]:
        """Events as they are committed, in order within each partition, each once, also across reconnections.

        Starts behind `after_offsets` (partition to offset); partitions it does not name start with the oldest event
        held (`from_earliest`), else with the next one. `OffsetTrimmedError` rather than a silent gap.
        """
        offsets = await self._start_offsets(from_earliest)
        offsets.update(after_offsets or {})
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                async with contextlib.aclosing(self._subscribe_once(offsets, all_namespaces)) as events:
                    async for event in events:
                        backoff_s = _BACKOFF_FIRST_S
                        yield event
            except UnavailableError:
                pass
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _start_offsets(self, from_earliest: bool) -> dict[int, int]:
        partitions = await self.list_partitions()
        return {each.partition: each.first_offset - 1 if from_earliest else each.last_offset for each in partitions}

    async def _subscribe_once(self, offsets: dict[int, int], all_namespaces: bool) -> AsyncGenerator[Event, None]:
        request = wire.SubscribeRequest(
            starts=[wire.PartitionOffset(partition=partition, after_offset=at) for partition, at in offsets.items()],
            namespace="" if all_namespaces else self.namespace,
        )
        call = self._event_service.Subscribe(request, metadata=self._credentials.metadata())
        try:
            async for response in call:
                for event in response.events:
                    # Noted before it is handed out: a consumer may stop in the middle of a response.
                    offsets[event.partition] = event.offset
                    yield Event.of_wire(event)
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None
        finally:
            call.cancel()
