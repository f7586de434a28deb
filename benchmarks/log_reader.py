"""`python -m benchmarks.log_reader TARGET live|backlog`: a reader of the event log in a process of its own.

`live` follows all partitions, a reading every quarter of a second, and lets nothing lie; `backlog` reads all that the
log holds, again and again, as fast as it comes. Ended by SIGTERM, it says in one line of JSON how much it read, and how
many events at most it left lying after a reading.
"""

from __future__ import annotations

import json
import signal
import sys
import time

import grpc
from quintet.v1.event_service_pb2 import ListPartitionsRequest, Partition, ReadBlocksRequest
from quintet.v1.event_service_pb2_grpc import EventServiceStub

LIVE_SECONDS = 0.25
MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class _EndError(Exception):
    """SIGTERM."""


class LogReader:
    """What was read so far."""

    def __init__(self, target: str) -> None:
        channel = grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)])
        self._service = EventServiceStub(channel)
        self._offsets = {each.partition: each.last_offset for each in self._partitions()}
        self.events = 0
        self.bytes = 0
        self.events_behind_max = 0

    def follow(self) -> None:
        """From now on, for ever."""
        due = time.monotonic()
        while True:
            for each in self._partitions():
                self._read(each.partition, self._offsets[each.partition], each.last_offset)
                self._offsets[each.partition] = each.last_offset
            self._measure_lag()
            due = max(due + LIVE_SECONDS, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def read_all(self) -> None:
        """Everything, for ever."""
        while True:
            for each in self._partitions():
                try:
                    self._read(each.partition, each.first_offset - 1, each.last_offset)
                except grpc.RpcError as error:
                    # Its oldest events were trimmed since it was asked for them: they come no more.
                    if error.code() is not grpc.StatusCode.OUT_OF_RANGE:
                        raise

    def _partitions(self) -> list[Partition]:
        return list(self._service.ListPartitions(ListPartitionsRequest()).partitions)

    def _read(self, partition: int, after: int, through: int) -> None:
        if through <= after:
            return
        request = ReadBlocksRequest(partition=partition, after_offset=after, through_offset=through)
        for block in self._service.ReadBlocks(request):
            self.bytes += len(block.records)
        self.events += through - after

    def _measure_lag(self) -> None:
        behind = sum(each.last_offset - self._offsets[each.partition] for each in self._partitions())
        self.events_behind_max = max(self.events_behind_max, behind)


def _end(*_: object) -> None:
    raise _EndError


def main(target: str, way: str) -> None:
    """Read until SIGTERM."""
    reader = LogReader(target)
    signal.signal(signal.SIGTERM, _end)
    started = time.perf_counter()
    try:
        (reader.follow if way == "live" else reader.read_all)()
    except _EndError:
        seconds = time.perf_counter() - started
        figures = {"events": reader.events, "bytes": reader.bytes, "events_behind_max": reader.events_behind_max}
        print(json.dumps({"seconds": seconds, **figures}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
