"""The verbs of snapshots, and the records they write. Formats: storage/lua/85_snapshots.lua."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from quintet_core.domain.errors import Refusal
from quintet_core.domain.snapshot import MetricKind, ProcessSnapshot, Snapshot
from quintet_core.storage.asking import Asking, parsed
from quintet_core.storage.blocks import Block
from quintet_core.storage.link import Reply

TOTALS = 13
DETAIL_BYTES_MAX = 65_535
_RECORD = struct.Struct(">BI21QH")
RECORD_BYTES = _RECORD.size
_HEAD = struct.Struct(">BI")
_HELD = struct.Struct(">13x4Q")
_NUMBERS = struct.Struct(">6Q13Q")
_TOTALS = struct.Struct(">13Q")
_NUMBERS_AT, _TOTALS_AT = 5, 53
_PROCESS_PARTITION = 0


class Left(IntEnum):
    """What there is to do behind a step: nothing until the next slot, more in this one, or more that has to wait for
    the next because this one's bound is reached."""

    NOTHING = 0
    MORE = 1
    REST = 2


@dataclass(frozen=True, slots=True)
class Taken:
    """A step of snapshots. `damaged`: queues and tables that could not be read. `totals`: of all that the partition
    ever held, named by QUEUE_TOTALS and TABLE_TOTALS; empty for none. `last_offset`: of the partition's metrics.
    `now_ms`: its clock."""

    left: Left
    written: int
    damaged: int
    totals: tuple[int, ...]
    last_offset: int
    now_ms: int


class SnapshotStore(Asking):
    """Snapshots of every partition, and of processes."""

    async def take_snapshots(self, partition: int, interval_ms: int, most: int) -> Taken | Refusal:
        """One step: at most some records are written, and at most `most` in a slot of `interval_ms`, whoever asks."""
        return parsed(_taken, await self.ask(partition, "take_snapshots", interval_ms, most))

    async def append_process(self, snapshot: ProcessSnapshot) -> Refusal | None:
        """A process writes down its own."""
        answer = await self.ask(_PROCESS_PARTITION, "append_process", snapshot.interval_ms, pack_process(snapshot))
        return answer if isinstance(answer, Refusal) else None


def _taken(answer: Reply) -> Taken:
    left, written, damaged, totals, last, now = answer
    told = struct.unpack(f">{len(totals) // 8}Q", totals)
    return Taken(Left(left), written, damaged, told, int(last), int(now))


def pack_process(snapshot: ProcessSnapshot) -> bytes:
    """The detail of its record. What does not fit is left out, the last series first."""
    told = {"process": snapshot.process, "replica": snapshot.replica, "values": dict(snapshot.values)}
    while len(packed := msgspec.json.encode(told)) > DETAIL_BYTES_MAX:
        values = list(snapshot.values.items())
        told["values"] = dict(values[: len(told["values"]) * 3 // 4])
    return packed


@dataclass(frozen=True, slots=True)
class Packed:
    """A record of a block: what it is of, when it was written, itself."""

    kind: int
    number: int
    at_ms: int
    raw: bytes


def records_of(block: Block) -> Iterator[Packed]:
    """The records of a block of metrics, in order. Raises struct.error or IndexError for what is cut short."""
    records = b"".join(block.records)
    at = 0
    for size, at_ms in zip(block.entry_bytes, block.entry_at_ms, strict=True):
        end = at + size
        while at < end:
            kind, number = _HEAD.unpack_from(records, at)
            after = at + RECORD_BYTES + (records[at + RECORD_BYTES - 2] << 8 | records[at + RECORD_BYTES - 1])
            yield Packed(kind, number, at_ms, records[at:after])
            at = after


def held_in(raw: bytes) -> int:
    """Jobs in all states, or rows, without a look at the rest of a record."""
    return sum(_HELD.unpack_from(raw))


def totals_in(raw: bytes) -> tuple[int, ...]:
    """The totals of a record."""
    return _TOTALS.unpack_from(raw, _TOTALS_AT)


def unpack_snapshot(namespace: str, name: str, at_ms: int, raw: bytes, before: bytes | None) -> Snapshot:
    """The snapshot of a queue or table; `before` is its record before, if that is known."""
    interval_ms, ready, delayed, leased, dead, age, *totals = _NUMBERS.unpack_from(raw, _NUMBERS_AT)
    rates: tuple[float, ...] = ()
    if before is not None and interval_ms > 0:
        seconds = interval_ms / 1000
        grown = zip(totals, totals_in(before), strict=True)
        rates = tuple(max(0, now - then) / seconds for now, then in grown)
    kind = MetricKind(raw[0])
    return Snapshot(kind, namespace, name, at_ms, interval_ms, ready, delayed, leased, dead, age, tuple(totals), rates)


class _Told(msgspec.Struct):
    process: str = ""
    replica: str = ""
    values: dict[str, float] = {}


_PROCESS = msgspec.json.Decoder(_Told)


def unpack_process(at_ms: int, raw: bytes) -> ProcessSnapshot:
    """The snapshot of a process. Raises msgspec.DecodeError for what is none."""
    told = _PROCESS.decode(raw[RECORD_BYTES:])
    interval_ms = _NUMBERS.unpack_from(raw, _NUMBERS_AT)[0]
    return ProcessSnapshot(told.process, told.replica, at_ms, interval_ms, told.values)
