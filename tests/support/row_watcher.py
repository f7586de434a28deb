"""A watcher of all rows of a namespace that goes on behind what it was told last, whatever happens to the cores; and
the event log, read whole, that it is compared with."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import grpc
from quintet.v1 import event_pb2
from quintet.v1.event_service_pb2 import ListPartitionsRequest, PartitionOffset, ReadEventsRequest
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.table_service_pb2 import WatchRowsRequest
from quintet.v1.table_service_pb2_grpc import TableServiceStub
from quintet_core.domain.event import Event

from tests.support.table_replay import TableReplay

_PAUSE_S = 0.02
_EVENTS_PER_READ = 10_000
_CHANNEL_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200))


class RowWatcher(threading.Thread):
    """Watches through one core after another. What it hears is checked as it comes, and kept."""

    def __init__(self, targets: Sequence[str], namespace: str = "") -> None:
        super().__init__(name="watcher", daemon=True)
        self.namespace = namespace
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.replays: dict[int, TableReplay] = defaultdict(TableReplay)
        self.offsets: dict[int, int] = {}
        """Of each partition: everything up to there was told."""
        self.begun = threading.Event()
        """It is settled from where on changes are told."""
        self.calls = 0
        self.failure: BaseException | None = None
        self._targets = cycle(targets)
        self._stopping = threading.Event()
        self._call: Any = None

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch(next(self._targets))
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    self.failure = error
                    return
            except BaseException as error:
                self.failure = error
                return
            self._stopping.wait(_PAUSE_S)

    def _watch(self, target: str) -> None:
        starts = [PartitionOffset(partition=partition, after_offset=at) for partition, at in self.offsets.items()]
        with grpc.insecure_channel(target, options=_CHANNEL_OPTIONS) as channel:
            self.calls += 1
            self._call = TableServiceStub(channel).WatchRows(WatchRowsRequest(namespace=self.namespace, starts=starts))
            for response in self._call:
                for change in response.changes:
                    self._heard(change)
                for told in response.offsets:
                    before = self.offsets.get(told.partition, 0)
                    assert told.after_offset >= before, f"back from {before} to {told}"
                    self.offsets[told.partition] = told.after_offset
                self.begun.set()

    def _heard(self, change: event_pb2.Event) -> None:
        event = event_of(change)
        before = self.offsets.get(event.partition, 0)
        assert event.offset > before, f"told again, behind {before}: {event}"
        self.replays[event.partition].play(event)
        self.events[event.partition].append(event)
        self.offsets[event.partition] = event.offset

    def has_heard(self, offsets: dict[int, int]) -> bool:
        """Whether everything up to these offsets was told. Raises what went wrong."""
        if self.failure is not None:
            raise self.failure
        return all(self.offsets.get(partition, 0) >= offset for partition, offset in offsets.items())

    def summary(self) -> str:
        """How much it heard."""
        return f"{sum(map(len, self.events.values()))} changes heard in {self.calls} watches"

    def stop(self) -> None:
        """End the watch."""
        self._stopping.set()
        if self._call is not None:
            self._call.cancel()
        self.join(30)
        assert not self.is_alive()


@contextmanager
def watching(targets: Sequence[str]) -> Iterator[RowWatcher]:
    """A watcher from now on. Afterwards raises what went wrong."""
    watcher = RowWatcher(targets)
    watcher.start()
    try:
        assert watcher.begun.wait(30)
        yield watcher
    finally:
        watcher.stop()
    watcher.has_heard({})


def event_of(told: event_pb2.Event) -> Event:
    """The event of the API's message."""
    return Event(
        told.partition, told.offset, told.kind, told.at_ms, told.namespace, told.queue, told.job_id, told.rank,
        told.attempt, told.wait_ms, told.service_ms, told.payload_bytes, told.state, told.detail, told.table, told.key,
        told.expires_at_ms, told.value if told.HasField("value") else None,
    )  # fmt: skip


def last_offsets(target: str) -> dict[int, int]:
    """Of each partition."""
    with grpc.insecure_channel(target) as channel:
        response = EventServiceStub(channel).ListPartitions(ListPartitionsRequest())
        return {partition.partition: partition.last_offset for partition in response.partitions}


def whole_log(target: str) -> dict[int, list[Event]]:
    """Every event of tables and rows. Nothing may have been trimmed."""
    found: dict[int, list[Event]] = {}
    with grpc.insecure_channel(target, options=(("grpc.max_receive_message_length", -1),)) as channel:
        service = EventServiceStub(channel)
        for partition, last in last_offsets(target).items():
            after, events = 0, list[Event]()
            while after < last:
                request = ReadEventsRequest(partition=partition, after_offset=after, events_max=_EVENTS_PER_READ)
                events += map(event_of, service.ReadEvents(request).events)
                after = events[-1].offset
            assert [event.offset for event in events] == list(range(1, len(events) + 1))
            found[partition] = [event for event in events if event.table]
    return found
