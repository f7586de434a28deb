"""Calls of the core, by blocking gRPC: made in the process that works with them, repeated while the core is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from quintet.v1 import event_service_pb2 as wire
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet_client.credentials import open_blocking_channel
from quintet_client.errors import (
    DamagedError,
    OffsetTrimmedError,
    QuintetError,
    StaleEpochError,
    UnavailableError,
    error_of_rpc,
)

from quintet_spark.source.options import Options
from quintet_spark.source.position import Offsets, Stretch

CALL_SECONDS_MAX = 30.0
STREAM_SECONDS_MAX = 600.0
"""Of one stream of blocks; a reader that is slower goes on with another one."""
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 1.0

_Answer = TypeVar("_Answer")


class SourceError(Exception):
    """The log cannot be read as asked for. The message is for the one who runs the query."""


class CoreAwayError(SourceError):
    """The core has not answered for as long as `retryMs` allows."""


class DataLossError(SourceError):
    """Records were trimmed before they were read."""


class TakenOverError(SourceError):
    """Another query works in the name of this one's consumer, since later."""


class Patience:
    """How long to bear with a core that is away: `retry_ms` since it was last of use."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.begin()

    def begin(self) -> None:
        """The core is of use."""
        self._until = time.monotonic() + self._options.retry_ms / 1000
        self._pause_s = _PAUSE_FIRST_S

    def wait(self, error: QuintetError) -> None:
        """Before the next attempt. Raises CoreAwayError when it is too late for one."""
        if time.monotonic() + self._pause_s > self._until:
            raise CoreAwayError(
                f"the Quintet core at {self._options.endpoint} was not there for {self._options.retry_ms} ms "
                f"(option retryMs): {error}"
            ) from None
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)


class Link(AbstractContextManager["Link"]):
    """One channel to the core. Every method raises SourceError when the core refuses, or stays away too long."""

    def __init__(self, options: Options) -> None:
        self._options = options
        try:
            self._credentials = options.credentials()
            self._credentials.metadata()
        except OSError as error:
            raise SourceError(f"a file that an option names cannot be read: {error}") from None
        try:
            self._channel = open_blocking_channel(options.endpoint, self._credentials)
        except ValueError as error:
            raise SourceError(f"no channel to {options.endpoint}: {error}") from None
        self._stub: Any = EventServiceStub(self._channel)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """What is under way is cancelled."""
        self._channel.close()

    def partitions(self) -> list[wire.Partition]:
        """What each partition holds, by partition; with the consumer's offsets and epoch when there is one."""
        request = wire.ListPartitionsRequest(consumer=self._options.consumer, log=self._options.wire_log)
        response: wire.ListPartitionsResponse = self._call(self._stub.ListPartitions, request)
        return sorted(response.partitions, key=lambda each: each.partition)

    def offsets_before(self, at_ms: int) -> Offsets:
        """Of each partition the last offset of before a moment."""
        request = wire.FindOffsetsRequest(log=self._options.wire_log, at_ms=at_ms)
        response: wire.FindOffsetsResponse = self._call(self._stub.FindOffsets, request)
        return {each.partition: each.after_offset for each in response.offsets}

    def open_consumer(self, starts: Offsets, *, from_latest: bool) -> wire.OpenConsumerResponse:
        """Takes the consumer over where it stands; a new one begins at `starts`, else with the oldest or the next."""
        request = wire.OpenConsumerRequest(
            consumer=self._options.consumer,
            log=self._options.wire_log,
            starts=[wire.PartitionOffset(partition=each, after_offset=at) for each, at in starts.items()],
            from_latest=from_latest,
        )
        response: wire.OpenConsumerResponse = self._call(self._stub.OpenConsumer, request)
        return response

    def commit(self, offsets: Offsets, epoch: int) -> None:
        """Raises TakenOverError when the epoch is not the consumer's latest."""
        for partition, offset in offsets.items():
            request = wire.CommitOffsetRequest(
                consumer=self._options.consumer,
                partition=partition,
                offset=offset,
                epoch=epoch,
                log=self._options.wire_log,
            )
            self._call(self._stub.CommitOffset, request)

    def blocks(self, stretch: Stretch, *, with_carried: bool) -> Iterator[wire.ReadBlocksResponse]:
        """The blocks of a stretch, once. Raises QuintetError as the core says it."""
        request = wire.ReadBlocksRequest(
            log=self._options.wire_log,
            partition=stretch.partition,
            after_offset=stretch.after,
            through_offset=stretch.through,
            namespace=self._options.namespace,
            with_carried=with_carried,
        )
        call = self._stub.ReadBlocks(request, timeout=STREAM_SECONDS_MAX, metadata=self._credentials.metadata())
        try:
            yield from call
        except grpc.RpcError as error:
            raise failure_of(error) from None
        finally:
            call.cancel()

    def _call(self, method: Callable[..., _Answer], request: object) -> _Answer:
        patience = Patience(self._options)
        while True:
            try:
                return method(request, timeout=CALL_SECONDS_MAX, metadata=self._credentials.metadata())
            except grpc.RpcError as error:
                failure = failure_of(error)
            if not failure.retryable:
                raise told(failure, self._options) from None
            patience.wait(failure)


def failure_of(error: grpc.RpcError) -> QuintetError:
    """What a failed call stands for. A stream that a dying core tears may end in words that are nobody's: whatever the
    source asks may be asked again, so that is a core that is away."""
    failure = error_of_rpc(error)
    torn = error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    return UnavailableError(failure.message) if torn and not isinstance(failure, DamagedError) else failure


def told(failure: QuintetError, options: Options) -> SourceError:
    """What the core refused, for the one who runs the query."""
    if isinstance(failure, StaleEpochError):
        return taken_over(options)
    if isinstance(failure, OffsetTrimmedError):
        return DataLossError(f"the {options.log} log of {options.endpoint} was trimmed: {failure} {failure.metadata}")
    about = f" {failure.metadata}" if failure.metadata else ""
    return SourceError(f"the Quintet core at {options.endpoint} refused: {failure.reason}: {failure}{about}")


def taken_over(options: Options) -> TakenOverError:
    """Of the options' consumer."""
    return TakenOverError(
        f"another driver has taken over consumer {options.consumer!r} of the {options.log} log: this query must not go "
        "on. Two queries that run at once need a consumer each"
    )
