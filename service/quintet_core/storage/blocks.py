"""Whole stretches of a log, joined without a look at each record of them.

Only the first and the last entry of a range are cut where the range begins and ends, and records are gone through one
by one for who may not see all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quintet_core.domain.event import Log
from quintet_core.storage.event_log import EVENT_BYTES, Entry, last_offset_of, names_in, records_in
from quintet_core.storage.keys import split_name_key

FIXED_BYTES = {Log.EVENTS: EVENT_BYTES, Log.METRICS: 175}
"""Of a record before its detail; the length of that stands in the last two of them."""
_NUMBER_AT, _NUMBER_END = 1, 5
_SIZE_AT, _STATE_AT = 41, 45
# Names and values of t, n and e; and of v.
_FIELDS, _FIELDS_CARRYING = 6, 8
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


class BrokenLogError(Exception):
    """The log does not go on where the range does: it was trimmed, or Redis has lost some of it. It goes on with
    `first_offset`; 0 where it ends."""

    def __init__(self, first_offset: int) -> None:
        super().__init__(f"the log goes on with {first_offset}")
        self.first_offset = first_offset


@dataclass(frozen=True, slots=True)
class Found:
    """Entries behind the beginning of a range, as columns, and up to where the log had been trimmed when they were
    read. `carried` is empty when none carries anything."""

    ids: list[bytes]
    times: list[bytes]
    names: list[bytes]
    records: list[bytes]
    carried: list[bytes]
    trimmed: int = 0

    @staticmethod
    def of_stream(read: list[Any], trimmed: int) -> Found:
        """Entries as XRANGE gives them. Raises ValueError for what are none."""
        fields = [entry[1] for entry in read]
        widths = set(map(len, fields))
        if not widths <= {_FIELDS, _FIELDS_CARRYING}:
            raise ValueError("an entry of another shape")
        return Found(
            [entry[0] for entry in read],
            [each[1] for each in fields],
            [each[3] for each in fields],
            [each[5] for each in fields],
            [each[7] if len(each) > _FIELDS else b"" for each in fields] if _FIELDS_CARRYING in widths else [],
            trimmed,
        )

    @staticmethod
    def of_entries(entries: list[Entry]) -> Found:
        """Entries of which none was trimmed."""
        ids, times, names, records, carried = map(list, zip(*entries, strict=True)) if entries else ([], [], [], [], [])
        return Found(ids, times, names, records, carried)


def block_of(found: Found, wanted: Range, with_carried: bool) -> Block:
    """The entries joined, from the first record of a range to its last, when they reach so far. Raises BrokenLogError,
    and ValueError for what are no entries."""
    ids, records, fixed = found.ids, found.records, FIXED_BYTES[wanted.log]
    carried = found.carried if with_carried else []
    if not ids:
        raise BrokenLogError(0)
    if not all(records):
        raise ValueError("an entry without records")
    if not wanted.continued or found.trimmed > wanted.after:
        first = last_offset_of(ids[0]) - records_in(records[0], fixed) + 1
        if first > wanted.after + 1:
            raise BrokenLogError(first)
        _cut_head(records, carried, wanted.after + 1 - first, fixed)
    last, count = last_offset_of(ids[-1]), len(ids)
    if last > wanted.through:
        lasts = [last_offset_of(named_by) for named_by in ids]
        beyond = bisect_left(lasts, wanted.through)
        begins = lasts[beyond - 1] + 1 if beyond else wanted.after + 1
        _cut_tail(records, carried, beyond, wanted.through + 1 - begins, fixed)
        last, count = wanted.through, beyond + 1
        records, carried = records[:count], carried[:count]
    carried = [values for values in carried if values]
    entry_bytes = list(map(len, records))
    return Block(
        wanted.after + 1,
        last,
        {number: split_name_key(key) for names in set(found.names[:count]) for number, key in names_in(names)},
        entry_bytes,
        list(map(int, found.times[:count])),
        records,
        carried,
        sum(entry_bytes) + sum(map(len, carried)),
    )


def _cut_head(records: list[bytes], carried: list[bytes], count: int, fixed: int) -> None:
    """Without the first `count` records."""
    if not count:
        return
    at, gone = _skip(records[0], 0, count, fixed)
    records[0] = records[0][at:]
    if carried:
        carried[0] = carried[0][gone:]


def _cut_tail(records: list[bytes], carried: list[bytes], entry: int, count: int, fixed: int) -> None:
    """Of an entry only the first `count` records."""
    at, kept = _skip(records[entry], 0, count, fixed)
    records[entry] = records[entry][:at]
    if carried:
        carried[entry] = carried[entry][:kept]


def _skip(records: bytes, at: int, count: int, fixed: int) -> tuple[int, int]:
    """Where the record is that comes `count` behind the one at `at`, and how many bytes those in between carry."""
    carried, end = 0, len(records)
    while at < end and count != 0:
        carried += _carried_by(records, at, fixed)
        at += fixed + (records[at + fixed - 2] << 8 | records[at + fixed - 1])
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
