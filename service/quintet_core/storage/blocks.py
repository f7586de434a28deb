"""Whole stretches of a log, joined without a look at each record of them.

Only the first and the last entry of a range are cut where the range begins and ends, and records are gone through one
by one for who may not see all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quintet_core.domain.event import Log
from quintet_core.storage.event_log import last_offset_of, names_in
from quintet_core.storage.keys import split_name_key

FIXED_BYTES = {Log.EVENTS: 48, Log.METRICS: 175}
"""Of a record before its detail; the length of that stands in the last two of them."""
_NUMBER_AT, _NUMBER_END = 1, 5
_SIZE_AT, _STATE_AT = 41, 45
# Of a record that is about no queue or table.
_NO_NUMBER = 0
_VALUE_CARRIED, _PAYLOAD_CARRIED = 1, 64

Sees = Callable[[str], bool]
"""Whether the namespace is one whose records are wanted. Of records without a name: asked for ""."""


@dataclass(slots=True)
class Block:
    """Records first_offset to last_offset, one behind another, with what is needed to read them.

    `names`: numbers of queues and tables to namespace and name. `entry_bytes`, `entry_at_ms`: of each stretch that was
    written at once, its part of `records` and its time. `carried`: payloads and values, in the order of their records.
    """

    first_offset: int
    last_offset: int
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    entry_bytes: list[int] = field(default_factory=list)
    entry_at_ms: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    carried: list[bytes] = field(default_factory=list)
    bytes: int = 0

    def add(self, other: Block) -> None:
        """What follows on it."""
        self.last_offset = other.last_offset
        self.names.update(other.names)
        self.entry_bytes += other.entry_bytes
        self.entry_at_ms += other.entry_at_ms
        self.records += other.records
        self.carried += other.carried
        self.bytes += other.bytes


@dataclass(frozen=True, slots=True)
class Range:
    """The records of a log behind `after`, up to `through`. `continued`: `after` is the last of an entry."""

    log: Log
    after: int
    through: int
    continued: bool = False


def unpack_block(answer: list[bytes], wanted: Range) -> Block:
    """The answer of the library's read_block, cut to the range. Raises ValueError for what is none, or none of it."""
    ids, times, sizes, named, records, carried = answer
    if not ids:
        raise ValueError("the log ends before its last offset")
    lasts = ids.split(b",")
    block = Block(
        wanted.after + 1,
        last_offset_of(lasts[-1]),
        {number: split_name_key(key) for number, key in names_in(named)},
        list(map(int, sizes.split(b","))),
        list(map(int, times.split(b","))),
    )
    fixed = FIXED_BYTES[wanted.log]
    if not wanted.continued:
        first = last_offset_of(lasts[0]) - records_in(records[: block.entry_bytes[0]], fixed) + 1
        if first > wanted.after + 1:
            raise ValueError(f"the log goes on with {first} behind {wanted.after}")
        records, carried = _cut_head(block, records, carried, wanted.after + 1 - first, fixed)
    if block.last_offset > wanted.through:
        begins = last_offset_of(lasts[-2]) + 1 if len(lasts) > 1 else block.first_offset
        records, carried = _cut_tail(block, records, carried, wanted.through + 1 - begins, fixed)
        block.last_offset = wanted.through
    block.records, block.carried = [records], [carried]
    block.bytes = len(records) + len(carried)
    return block


def _cut_head(block: Block, records: bytes, carried: bytes, count: int, fixed: int) -> tuple[bytes, bytes]:
    """Without the first `count` records."""
    at, gone = _skip(records, 0, count, fixed)
    block.entry_bytes[0] -= at
    return (records[at:], carried[gone:]) if count else (records, carried)


def _cut_tail(block: Block, records: bytes, carried: bytes, count: int, fixed: int) -> tuple[bytes, bytes]:
    """Without what is behind the first `count` records of the last entry."""
    begin = len(records) - block.entry_bytes[-1]
    at, _ = _skip(records, begin, count, fixed)
    _, gone = _skip(records, at, None, fixed)
    block.entry_bytes[-1] = at - begin
    # Nothing is carried when that was not asked for.
    return records[:at], carried[: len(carried) - gone] if carried else carried


def _skip(records: bytes, at: int, count: int | None, fixed: int) -> tuple[int, int]:
    """Where the record is that comes `count` behind the one at `at`, and how many bytes those in between carry; None:
    all that there are."""
    carried, end = 0, len(records)
    while at < end and count != 0:
        carried += _carried_by(records, at, fixed)
        at += fixed + (records[at + fixed - 2] << 8 | records[at + fixed - 1])
        if count is not None:
            count -= 1
    if at > end or count:
        raise ValueError("records are cut short")
    return at, carried


def _carried_by(records: bytes, at: int, fixed: int) -> int:
    if fixed != FIXED_BYTES[Log.EVENTS]:
        return 0
    state = records[at + _STATE_AT]
    if not state & (_VALUE_CARRIED if records[at + _NUMBER_AT] & 0x80 else _PAYLOAD_CARRIED):
        return 0
    return int.from_bytes(records[at + _SIZE_AT : at + _STATE_AT], "big")


def records_in(packed: bytes, fixed: int) -> int:
    """How many records an entry has."""
    count = at = 0
    end = len(packed)
    while at < end:
        at += fixed + (packed[at + fixed - 2] << 8 | packed[at + fixed - 1])
        count += 1
    return count


def blank_foreign(block: Block, log: Log, sees: Sees) -> Block:
    """The same without what is in namespaces that are not seen: their records are zeros, and without detail."""
    hidden = {number for number, (namespace, _) in block.names.items() if not sees(namespace)}
    if not hidden and (log is Log.EVENTS or sees("")):
        return block
    names = {number: name for number, name in block.names.items() if number not in hidden}
    seen = {*names, _NO_NUMBER} if sees("") else set(names)
    fixed, blank = FIXED_BYTES[log], bytes(FIXED_BYTES[log])
    records, carried = b"".join(block.records), b"".join(block.carried)
    pieces, kept, entry_bytes = list[bytes](), list[bytes](), list[int]()
    at = carried_at = 0
    for size in block.entry_bytes:
        end, written = at + size, 0
        while at < end:
            after, some = _skip(records, at, 1, fixed)
            if int.from_bytes(records[at + _NUMBER_AT : at + _NUMBER_END], "big") in seen:
                pieces.append(records[at:after])
                kept.append(carried[carried_at : carried_at + some])
            else:
                pieces.append(blank)
            written += len(pieces[-1])
            at, carried_at = after, carried_at + some
        entry_bytes.append(written)
    told = Block(block.first_offset, block.last_offset, names, entry_bytes, block.entry_at_ms, pieces, kept)
    told.bytes = sum(map(len, pieces)) + sum(map(len, kept))
    return told


def block_arguments(wanted: Range, with_carried: bool) -> tuple[Any, ...]:
    """What read_block takes."""
    flags = (b"1" if wanted.continued else b"0", b"1" if with_carried else b"0")
    return wanted.after, wanted.through, *flags, wanted.log.value
