"""The newest snapshots of everything, read from the metrics log as it grows: one reader of a core, for all who ask.

Records are kept as they are, and taken apart when someone asks for them.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.event import Log
from quintet_core.domain.snapshot import QUEUE_TOTALS, TABLE_TOTALS, MetricKind, ProcessSnapshot, Snapshot
from quintet_core.storage.blocks import Block, Range
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.snapshot_store import (
    Left,
    Packed,
    Taken,
    held_in,
    records_of,
    totals_in,
    unpack_process,
    unpack_snapshot,
)

# What does nothing is written once a minute: who begins has to read so far back, and what is older than a few of these
# is no more.
IDLE_MS = 60_000
_BACK_MS = IDLE_MS + 5_000
_GONE_MS = 3 * IDLE_MS
# Records that who begins reads of each partition at most.
_BACK_RECORDS_MAX = 20_000
# What is not idle is written in every slot, unless there is too much of it.
_MISSED_SLOTS_MAX = 10
_MISSED_MS_MIN = 10_000


@dataclass(slots=True, eq=False)
class Known:
    """The newest record of a queue or table, and the one before. `encoded` is for whoever encodes it, once."""

    namespace: str
    name: str
    at_ms: int
    raw: bytes
    before: bytes | None = None
    encoded: bytes | None = None

    @property
    def kind(self) -> int:
        """As MetricKind."""
        return self.raw[0]

    @property
    def held(self) -> int:
        """Jobs in all states, or rows."""
        return held_in(self.raw)

    @property
    def growth(self) -> int:
        """Events since the record before, or since it was made while there is none."""
        return sum(totals_in(self.raw)) - (sum(totals_in(self.before)) if self.before is not None else 0)

    def unpack(self) -> Snapshot:
        """Taken apart."""
        return unpack_snapshot(self.namespace, self.name, self.at_ms, self.raw, self.before)


Written = Known | ProcessSnapshot


@dataclass(slots=True, eq=False)
class Follower:
    """Who is told of snapshots as they are written: of each thing the newest, when there are several at once."""

    sees: Callable[[str], bool]
    pending: dict[object, Written] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    ended: Refusal | None = None

    async def take(self) -> list[Written] | Refusal:
        """What was written since the last time; waits for something."""
        while not self.pending and self.ended is None:
            self.woken.clear()
            await self.woken.wait()
        if self.ended is not None:
            return self.ended
        told, self.pending = list(self.pending.values()), {}
        return told


class _Partition:
    """How far a partition's metrics have been read, and what they told."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.continued = False
        self.now_ms = 0
        # Some snapshots of a slot waited for the next.
        self.crowded = False
        self.known: dict[int, Known] = {}
        self.totals: tuple[int, ...] = ()


class NewestSnapshots:
    """Reads what each slot added to the metrics of every partition."""

    def __init__(self, store: RedisStore, interval_ms: int) -> None:
        self._store = store
        self._interval_ms = interval_ms
        self._partitions = [_Partition() for _ in range(store.partitions)]
        self._processes: dict[str, ProcessSnapshot] = {}
        self._followers: set[Follower] = set()
        self._complete_at_s = time.monotonic()
        self.version = 0
        """Grows when something changes."""

    # --- who asks

    def known(self) -> Iterator[Known]:
        """The newest of every queue and table."""
        for partition in self._partitions:
            yield from partition.known.values()

    @property
    def age_s(self) -> float:
        """Since every partition was read up to a slot that was done, or since the start; 0 where none are taken."""
        return time.monotonic() - self._complete_at_s if self._interval_ms else 0.0

    def processes(self) -> list[ProcessSnapshot]:
        """The newest of every process."""
        return list(self._processes.values())

    def totals(self) -> dict[str, int]:
        """Events of all queues and tables that there ever were, by kind."""
        names = QUEUE_TOTALS + TABLE_TOTALS
        sums = [0] * len(names)
        for partition in self._partitions:
            for at, count in enumerate(partition.totals[: len(names)]):
                sums[at] += count
        return dict(zip(names, sums, strict=True))

    def follow(self, sees: Callable[[str], bool]) -> Follower:
        """Begin to be told. `sees`: which namespaces; that of processes is ""."""
        follower = Follower(sees)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """Be told no more."""
        self._followers.discard(follower)

    def close_all(self, why: Refusal) -> None:
        """End everyone who is told."""
        for follower in self._followers:
            follower.ended = why
            follower.woken.set()

    # --- reading

    async def read_slot(self, taken: list[Taken | None]) -> None:
        """Read up to where each partition stands; one that could not be reached is left for the next slot."""
        for number, step in enumerate(taken):
            if step is not None:
                await self._read(number, step)
        if None not in taken:
            self._complete_at_s = time.monotonic()
        self._forget_gone()
        self.version += 1
        for follower in self._followers:
            if follower.pending:
                follower.woken.set()

    async def _read(self, number: int, step: Taken) -> None:
        partition = self._partitions[number]
        partition.now_ms, partition.totals = step.now_ms, step.totals
        partition.crowded = step.left is Left.REST
        if partition.position is None or partition.position > step.last_offset:
            await self._begin(number, step)
        while partition.position is not None and partition.position < step.last_offset:
            wanted = Range(Log.METRICS, partition.position, step.last_offset, partition.continued)
            block = await self._store.read_block(number, wanted, with_carried=False)
            if isinstance(block, Refusal):
                self._skip(number, step, block)
                return
            try:
                self._take_in(number, partition, block)
            except (struct.error, IndexError):
                get_logger().warning("snapshots_not_understood", partition=number, after_offset=partition.position)
            partition.position, partition.continued = block.last_offset, True

    def _skip(self, number: int, step: Taken, refused: Refusal) -> None:
        """Trimmed before it was read, or damaged: what is there in the next slot will do. Else it is read then."""
        if refused.reason in (Reason.OFFSET_TRIMMED, Reason.DAMAGED):
            get_logger().warning("snapshots_not_read", partition=number, reason=refused.reason.name)
            partition = self._partitions[number]
            partition.position, partition.continued = step.last_offset, False

    async def _begin(self, number: int, step: Taken) -> None:
        """As far back as the newest of what is idle."""
        partition = self._partitions[number]
        partition.known.clear()
        partition.continued = False
        log = await self._store.describe_events(number, "", Log.METRICS)
        found = await self._store.find_offset(number, Log.METRICS, step.now_ms - _BACK_MS)
        if isinstance(log, Refusal) or isinstance(found, Refusal):
            partition.position = None
            return
        partition.position = max(log.first_offset - 1, found, step.last_offset - _BACK_RECORDS_MAX)

    def _take_in(self, number: int, partition: _Partition, block: Block) -> None:
        for packed in records_of(block):
            if packed.kind == MetricKind.PROCESS:
                self._take_in_process(packed)
                continue
            name = block.names.get(packed.number)
            if name is not None:
                written = self._renewed(partition, packed, name)
                self._tell(written.namespace, (number, packed.number), written)

    @staticmethod
    def _renewed(partition: _Partition, packed: Packed, name: tuple[str, str]) -> Known:
        before = partition.known.get(packed.number)
        # A new one: the old may wait to be told still.
        written = Known(*name, packed.at_ms, packed.raw, before.raw if before is not None else None)
        partition.known[packed.number] = written
        return written

    def _take_in_process(self, packed: Packed) -> None:
        try:
            written = unpack_process(packed.at_ms, packed.raw)
        except (msgspec.DecodeError, ValueError):
            get_logger().warning("process_snapshot_not_understood")
            return
        self._processes[written.replica] = written
        self._tell("", written.replica, written)

    def _tell(self, namespace: str, key: object, written: Written) -> None:
        for follower in self._followers:
            if follower.sees(namespace):
                follower.pending[key] = written

    def _forget_gone(self) -> None:
        missed_ms = max(_MISSED_MS_MIN, _MISSED_SLOTS_MAX * self._interval_ms)
        for partition in self._partitions:
            gone = [
                number
                for number, known in partition.known.items()
                if (age_ms := partition.now_ms - known.at_ms) > _GONE_MS
                or (age_ms > missed_ms and not partition.crowded and known.held)
            ]
            for number in gone:
                del partition.known[number]
        now_ms = self._partitions[0].now_ms
        for replica in [each.replica for each in self._processes.values() if now_ms - each.at_ms > missed_ms]:
            del self._processes[replica]
