"""Entries of the event log, without a look at every event of them. An entry is named by its last offset."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

Entry = list[bytes]
"""Id, time, names, events, carried values (b"" for none), as records.unpack_events takes it."""

_NAME = struct.Struct(">IH")
_NAME_BYTES = _NAME.size
EVENT_BYTES = 48
"""Of an event before its detail, as of any record of a log: the length of its detail is the last two of them."""
_TABLE_BIT = 0x80
# Names and values of t, n and e; v may follow.
_FIELDS_MIN = 6
# Names, cut short: in place of those of an entry that is none.
_UNREADABLE = b"\x80"


def entry_of_stream(raw: list[Any]) -> Entry:
    """An entry as XREAD and XRANGE give it. One of another shape is one that nobody can read."""
    named_by, fields = raw
    if len(fields) < _FIELDS_MIN:
        return [named_by, b"", _UNREADABLE, b"", b""]
    return [named_by, fields[1], fields[3], fields[5], fields[7] if len(fields) > 7 else b""]


def last_offset_of(named_by: bytes) -> int:
    """The offset in an entry's id."""
    return int(named_by[: named_by.index(b"-")])


def events_in(packed: bytes) -> int:
    """How many events an entry has."""
    return records_in(packed, EVENT_BYTES)


def records_in(packed: bytes, fixed: int) -> int:
    """How many records an entry of any log has, of `fixed` bytes each and their detail."""
    count = at = 0
    end = len(packed)
    while at < end:
        at += fixed + (packed[at + fixed - 2] << 8 | packed[at + fixed - 1])
        count += 1
    return count


def has_tables(names: bytes) -> bool:
    """Whether any of an entry's names is a table's: its number has the high bit."""
    at, end = 0, len(names)
    while at < end:
        if names[at] & _TABLE_BIT:
            return True
        at += _NAME_BYTES + (names[at + 4] << 8 | names[at + 5])
    return False


def names_in(names: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers of queues and tables, and their name keys."""
    at = 0
    while at < len(names):
        number, size = _NAME.unpack_from(names, at)
        at += _NAME_BYTES + size
        yield number, names[at - size : at]
