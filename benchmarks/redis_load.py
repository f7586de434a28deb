"""The ceiling: the core's function library called straight, with nothing before it.

The loops stand in groups. A group sends its next operations as batches of one pipeline and has its answers before it
goes on, as the core's natural batching does under load; with two groups, Redis works on one while the client reads
the other.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintet_core.domain.job import LeaseTerms, NewJob
from quintet_core.domain.queue import QueueSettings
from quintet_core.storage import keys, library, packing, records

from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.resp import RespConnection
from benchmarks.tongues import PAYLOAD_BYTES, Step, UnexpectedAnswerError

PARTITIONS = 16
OPERATIONS_PER_CALL_MAX = 200

# An operation as `packing` makes it: how many arguments it adds to its call, and their bytes.
Packed = tuple[int, bytes]

_REPLICA = b"\0" * 8
_SESSION_TTL_MS = 3_600_000
_TERMS = LeaseTerms(session=b"benchses", owner=b"benchown", session_ttl_ms=_SESSION_TTL_MS)
_SCOPE = keys.namespace_scope("default")
_REPLY_HEAD = 4
# Where the lease token is within a run (10_codec.lua).
_TOKEN = slice(26, 34)


class QueueOperations:
    """The operations of a lifecycle on one queue, packed."""

    def __init__(self, queue: str) -> None:
        key = keys.name_key("default", queue)
        job = NewJob(payload=b"x" * PAYLOAD_BYTES)
        settings = packing.bulk(records.pack_settings(QueueSettings()))
        self.partition = keys.partition_of(key, PARTITIONS)
        self.enqueue = packing.pack_enqueue_one(key, settings, records.pack_options(job, 0), records.pack_tail(job))
        self.dequeue = packing.pack_dequeue_one(key, packing.bulk(records.pack_terms(1, _TERMS, True, False, b"")))


def _acknowledge(dequeued: list[Any]) -> Packed:
    """The acknowledgement of the one job of a dequeue's answer: 'j', index of its queue, run, body, sequence."""
    if dequeued[0] != b"j":
        raise UnexpectedAnswerError(dequeued)
    _, _, run, _, sequence = dequeued
    return packing.pack_acknowledge(int.from_bytes(sequence, "big"), _SCOPE, False, run[_TOKEN])


@dataclass(slots=True)
class _Group:
    """Loops that move in step, all on one queue."""

    operations: QueueOperations
    loops: int
    step: Step = Step.PUT
    dequeued: list[list[Any]] = field(default_factory=list)
    calls: int = 0
    sent: float = 0.0
    lifecycle_started: float = 0.0


class RedisLoad:
    """`loops` lifecycles at once on `queues` queues of the Redis at the unix socket `path`, over one connection."""

    def __init__(self, path: Path, queue_prefix: str, loops: int, queues: int) -> None:
        self._connection = RespConnection(path)
        self._load_library()
        groups = min(loops, max(2, queues))
        names = [QueueOperations(f"{queue_prefix}-{index}") for index in range(queues)]
        sizes = [loops // groups + (index < loops % groups) for index in range(groups)]
        self._groups = deque(_Group(names[index % queues], size) for index, size in enumerate(sizes))
        self._samples = Samples()

    def _load_library(self) -> None:
        self._connection.command("FUNCTION", "LOAD", "REPLACE", library.source())
        for partition in range(PARTITIONS):
            self._connection.command("FCALL", "initialize_v1", 1, keys.partition_tag(partition))

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run the loops; what happens in the first `warm_up_seconds` is not counted."""
        for group in self._groups:
            group.lifecycle_started = time.perf_counter()
            self._send(group)
        self._until(time.perf_counter() + warm_up_seconds)
        self._samples = samples = Samples()
        meter.start()
        started = time.perf_counter()
        self._until(started + seconds)
        samples.seconds = time.perf_counter() - started
        samples.cpu_seconds = meter.stop()
        samples.operations = len(samples.operation_latencies)
        samples.lifecycles = len(samples.lifecycle_latencies)
        for group in self._groups:
            self._receive(group)
        return samples

    def _until(self, deadline: float) -> None:
        groups = self._groups
        while time.perf_counter() < deadline:
            group = groups[0]
            groups.rotate(-1)
            answers = self._receive(group)
            self._advance(group, answers)
            self._send(group)

    def _send(self, group: _Group) -> None:
        operations = self._next_operations(group)
        calls = [
            _packed_call(group.operations.partition, operations[start : start + OPERATIONS_PER_CALL_MAX])
            for start in range(0, len(operations), OPERATIONS_PER_CALL_MAX)
        ]
        group.calls = len(calls)
        group.sent = time.perf_counter()
        self._connection.send(b"".join(calls))

    def _next_operations(self, group: _Group) -> list[Packed]:
        if group.step is Step.PUT:
            return [group.operations.enqueue] * group.loops
        if group.step is Step.TAKE:
            return [group.operations.dequeue] * group.loops
        return [_acknowledge(answer) for answer in group.dequeued]

    def _receive(self, group: _Group) -> list[Any]:
        return [answer for _ in range(group.calls) for answer in self._connection.receive()[_REPLY_HEAD:]]

    def _advance(self, group: _Group, answers: list[Any]) -> None:
        now = time.perf_counter()
        self._samples.operation_latencies += [now - group.sent] * group.loops
        if group.step is Step.PUT:
            group.step = Step.TAKE
        elif group.step is Step.TAKE:
            group.step = Step.DELETE
            group.dequeued = answers
        else:
            group.step = Step.PUT
            _expect_all_acknowledged(answers)
            self._samples.lifecycle_latencies += [now - group.lifecycle_started] * group.loops
            group.lifecycle_started = now


def _packed_call(partition: int, operations: list[Packed]) -> bytes:
    arguments = packing.CALL_HEAD_ARGUMENTS + sum(operation[0] for operation in operations)
    head = packing.call_head("batch_v1", partition, _REPLICA)
    return b"".join((b"*%d\r\n" % arguments, head, *[operation[1] for operation in operations]))


def _expect_all_acknowledged(answers: list[Any]) -> None:
    for answer in answers:
        if answer != 1:
            raise UnexpectedAnswerError(answer)
