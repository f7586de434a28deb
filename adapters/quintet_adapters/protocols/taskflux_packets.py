"""TaskFlux packets out of arbitrarily split bytes.

A packet has no length of its own: its end is known by reading it. Whatever announces a size is judged as soon as it
is there, before the bytes that it announces. What a client has no business to send, but may (a server's packets), is
read to its end and dropped piece by piece, never gathered.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

INT32_MAX: Final = 2**31 - 1

_AUTHORIZATION: Final = 0x41  # A
_BOOTSTRAP: Final = 0x42  # B
_COMMAND: Final = 0x43  # C
_METADATA: Final = 0x4D  # M
_ACKNOWLEDGE: Final = b"QK"
_NEGATIVE: Final = b"N"
_ANSWERS: Final = _ACKNOWLEDGE + _NEGATIVE
# Packets of one byte without an effect where nothing is pending. A run of them is one step: they are cheap to send.
_WITHOUT_EFFECT: Final = re.compile(b"[QKNk]+")
_METADATA_RUN: Final = re.compile(b"M+")

_VERSION: Final = struct.Struct(">xiii")
_VERSION_BYTES: Final = _VERSION.size
_KEY_AND_LENGTH: Final = struct.Struct(">qi")
_UINT32: Final = struct.Struct(">I")
_SETTINGS: Final = struct.Struct(">iii?")
_KEYS: Final = struct.Struct(">qq")


class PacketFaultError(Exception):
    """Bytes that are no packet, or one over the limit; the text says so in a few words."""


class Idle(enum.Enum):
    """Packets that were read and have no effect."""

    PACKETS = enum.auto()


@dataclass(slots=True)
class Enqueue:
    """`C E`: a record, to be acknowledged."""

    queue: bytes
    key: int
    payload: bytes


@dataclass(slots=True)
class Dequeue:
    """`C D`."""

    queue: bytes
    wait_ms: int


@dataclass(slots=True)
class Count:
    """`C C`."""

    queue: bytes


@dataclass(slots=True)
class Create:
    """`C Q`."""

    queue: bytes
    structure: int
    size_max: int
    payload_bytes_max: int
    keys: tuple[int, int] | None


@dataclass(slots=True)
class Delete:
    """`C R`."""

    queue: bytes


@dataclass(slots=True)
class List:
    """`C L`."""


@dataclass(slots=True)
class Metadata:
    """`M`, so many times in a row."""

    times: int


Packet = Enqueue | Dequeue | Count | Create | Delete | List | Metadata | Idle
"""What a client may send where nothing is pending."""


class PacketReader:
    """Bytes received and not yet taken as packets.

    Each `next_*` gives None where more bytes are needed, and raises PacketFaultError; which one to call follows from
    the conversation.
    """

    __slots__ = ("_at", "_buffer", "_csharp", "_dropping", "_needed", "_packet_bytes_max", "_wanted")

    def __init__(self, packet_bytes_max: int, *, csharp: bool = False) -> None:
        self._packet_bytes_max = packet_bytes_max
        self._csharp = csharp
        self._buffer: bytes | bytearray = b""
        self._at = 0
        """Where the next packet begins."""
        self._needed = 1
        """Bytes from there on without which it is no use to look again."""
        self._dropping: Generator[int, bytes, None] | None = None
        self._wanted = 0
        """By `_dropping`: so many bytes to look at, or when negative to skip."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were not taken yet."""
        return len(self._buffer) - self._at

    @property
    def has_acknowledgement(self) -> bool:
        """Whether the next packet is there and acknowledges something, or does not."""
        return self._at < len(self._buffer) and self._buffer[self._at] in _ANSWERS

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if self._at >= len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytearray):
            del self._buffer[: self._at]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
        self._at = 0
        self._buffer += data

    def clear(self) -> None:
        """Forgets everything."""
        self._buffer, self._at, self._needed, self._dropping = b"", 0, 1, None

    # What may come, by the state of the conversation.

    def next_authorization(self) -> int | None:
        """The method of an AuthorizationRequest."""
        if not self._begins_with(_AUTHORIZATION) or not self._has(self._at + 2):
            return None
        method = self._buffer[self._at + 1]
        self._end_packet(self._at + 2)
        return method

    def next_bootstrap(self) -> tuple[int, int] | None:
        """Major and minor version of a BootstrapRequest."""
        if not self._begins_with(_BOOTSTRAP) or not self._has(self._at + _VERSION_BYTES):
            return None
        major, minor, _ = _VERSION.unpack_from(self._buffer, self._at)
        self._end_packet(self._at + _VERSION_BYTES)
        return major, minor

    def next_acknowledgement(self) -> bool | None:
        """True: an Acknowledge. False: a NegativeAcknowledge. Anything else is a fault from its first byte on."""
        if self._at >= len(self._buffer):
            return None
        first = self._buffer[self._at]
        if first not in _ANSWERS:
            raise PacketFaultError("an acknowledgement was awaited")
        self._end_packet(self._at + 1)
        return first in _ACKNOWLEDGE

    def next_packet(self) -> Packet | None:
        """Whatever comes where nothing is pending."""
        at = self._at
        size = len(self._buffer) - at
        if self._dropping is not None:
            return self._drop()
        if size < self._needed:
            return None
        if self._buffer[at] != _COMMAND:
            return self._other_packet(self._buffer[at])
        if size < 2:
            self._needed = 2
            return None
        read = _COMMANDS.get(self._buffer[at + 1])
        if read is None:
            raise PacketFaultError("unknown command")
        return read(self, at + 2)

    # Commands. `at`: behind the command's byte.

    def _enqueue(self, at: int) -> Packet | None:
        body = self._behind_name(at)
        if not body or not self._has(body + 12):
            return None
        key, length = _KEY_AND_LENGTH.unpack_from(self._buffer, body)
        if not 0 <= length <= self._packet_bytes_max:
            raise _length_fault(length)
        end = body + 12 + length
        if not self._has(end):
            return None
        packet = Enqueue(self._cut(at + 1, body), key, self._cut(body + 12, end))
        self._end_packet(end)
        return packet

    def _dequeue(self, at: int) -> Packet | None:
        body = self._behind_name(at)
        if not body or not self._has(body + 4):
            return None
        packet = Dequeue(self._cut(at + 1, body), _UINT32.unpack_from(self._buffer, body)[0])
        self._end_packet(body + 4)
        return packet

    def _count(self, at: int) -> Packet | None:
        end = self._behind_name(at)
        return Count(self._take_name(at, end)) if end and self._has(end) else None

    def _delete(self, at: int) -> Packet | None:
        end = self._behind_name(at)
        return Delete(self._take_name(at, end)) if end and self._has(end) else None

    def _create(self, at: int) -> Packet | None:
        body = self._behind_name(at)
        if not body or not self._has(body + 13):
            return None
        structure, size_max, payload_bytes_max, has_keys = _SETTINGS.unpack_from(self._buffer, body)
        end = body + 29 if has_keys else body + 13
        if not self._has(end):
            return None
        keys = _KEYS.unpack_from(self._buffer, body + 13) if has_keys else None
        packet = Create(self._cut(at + 1, body), structure, size_max, payload_bytes_max, keys)
        self._end_packet(end)
        return packet

    def _list(self, at: int) -> Packet:
        self._end_packet(at)
        return List()

    # Everything else.

    def _other_packet(self, first: int) -> Packet | None:
        if first == _METADATA:
            return Metadata(self._take_run(_METADATA_RUN))
        if _WITHOUT_EFFECT.match(self._buffer, self._at):
            self._take_run(_WITHOUT_EFFECT)
            return Idle.PACKETS
        drop = _DROPPED.get(first)
        if drop is None:
            raise PacketFaultError("unknown packet")
        self._at += 1
        self._dropping = drop(_Room(self._packet_bytes_max, self._csharp))
        self._wanted = next(self._dropping)
        return self._drop()

    def _drop(self) -> Packet | None:
        """Goes on with a packet that is dropped, as far as its bytes are there."""
        assert self._dropping is not None
        while True:
            there = len(self._buffer) - self._at
            if self._wanted < 0:
                skipped = min(-self._wanted, there)
                self._at += skipped
                self._wanted += skipped
                if self._wanted:
                    return None
            if there < self._wanted:
                return None
            end = self._at + self._wanted
            value = self._cut(self._at, end)
            self._at = end
            try:
                self._wanted = self._dropping.send(value)
            except StopIteration:
                self._dropping = None
                self._end_packet(self._at)
                return Idle.PACKETS

    # Bytes.

    def _begins_with(self, first: int) -> bool:
        """Whether a byte is there; a fault if it is not this one."""
        if self._at >= len(self._buffer):
            return False
        if self._buffer[self._at] != first:
            raise PacketFaultError("out of place")
        return True

    def _has(self, end: int) -> bool:
        """Whether the bytes up to `end` are there; if not, nobody looks again before they are."""
        if end <= len(self._buffer):
            return True
        self._needed = end - self._at
        return False

    def _behind_name(self, at: int) -> int:
        """Where the queue's name at `at` ends, be it there or not; 0 when that is not known yet."""
        return at + 1 + self._buffer[at] if self._has(at + 1) else 0

    def _take_name(self, at: int, end: int) -> bytes:
        """The name from `at` to `end`, with which the packet ends."""
        name = self._cut(at + 1, end)
        self._end_packet(end)
        return name

    def _take_run(self, run: re.Pattern[bytes]) -> int:
        found = run.match(self._buffer, self._at)
        end = found.end() if found else self._at
        length = end - self._at
        # A match holds the buffer, which must be able to grow.
        del found
        self._end_packet(end)
        return length

    def _cut(self, start: int, end: int) -> bytes:
        buffer = self._buffer
        return buffer[start:end] if isinstance(buffer, bytes) else bytes(memoryview(buffer)[start:end])

    def _end_packet(self, end: int) -> None:
        self._needed = 1
        if end == len(self._buffer):
            # Let a large packet's memory go.
            self._buffer, self._at = b"", 0
        else:
            self._at = end


_COMMANDS: Final[dict[int, Callable[[PacketReader, int], Packet | None]]] = {
    0x45: PacketReader._enqueue,  # E
    0x44: PacketReader._dequeue,  # D
    0x43: PacketReader._count,  # C
    0x51: PacketReader._create,  # Q
    0x52: PacketReader._delete,  # R
    0x4C: PacketReader._list,  # L
}


def _length_fault(length: int) -> PacketFaultError:
    return PacketFaultError("negative length" if length < 0 else "packet too large")


# Packets to drop. Each generator yields how many bytes it wants to see, or as a negative number how many to skip.

_Drop = Generator[int, bytes, None]


class _Room:
    """What the lengths and counts of a dropped packet may still come to, and its dialect."""

    __slots__ = ("_left", "csharp")

    def __init__(self, bytes_max: int, csharp: bool) -> None:
        self._left = bytes_max
        self.csharp = csharp

    def take(self, raw: bytes) -> int:
        """A length or count, judged."""
        length = int.from_bytes(raw, "big", signed=True)
        if not 0 <= length <= self._left:
            raise _length_fault(length)
        self._left -= length
        return length


def _drop_fixed(size: int) -> Callable[[_Room], _Drop]:
    def drop(_: _Room) -> _Drop:
        yield -size

    return drop


def _drop_buffer(room: _Room) -> _Drop:
    yield -room.take((yield 4))


def _drop_verdict(room: _Room) -> _Drop:
    """Bool; String when false."""
    if (yield 1) == b"\0":
        yield from _drop_buffer(room)


def _drop_metadata(room: _Room) -> _Drop:
    """Array<String>, Int32, Int32."""
    for _ in range(room.take((yield 4))):
        yield from _drop_buffer(room)
    yield -8


def _drop_error(room: _Room) -> _Drop:
    """Int32, String."""
    yield -4
    yield from _drop_buffer(room)


def _drop_answer(room: _Room) -> _Drop:
    """What follows `c`."""
    marker = (yield 1)[0]
    drop = _DROPPED_ANSWERS.get(marker) if marker != (_ERROR, _ERROR_CSHARP)[room.csharp] else _drop_error
    if drop is None:
        raise PacketFaultError("unknown answer")
    yield from drop(room)


def _drop_record(room: _Room) -> _Drop:
    if (yield 1) != b"\0":
        yield -8
        yield from _drop_buffer(room)


def _drop_list(room: _Room) -> _Drop:
    for _ in range(room.take((yield 4))):
        yield -(yield 1)[0]
        yield -4
        for _ in range(room.take((yield 4))):
            yield from _drop_buffer(room)
            yield from _drop_buffer(room)


def _drop_violation(room: _Room) -> _Drop:
    policy = int.from_bytes((yield 4), "big", signed=True)
    if policy == 0:
        yield from _drop_buffer(room)
    elif policy in (1, 2, 3):
        yield -16 if policy == (3, 2)[room.csharp] else -4
    else:
        raise PacketFaultError("unknown policy")


_ERROR: Final = 0x78  # x
_ERROR_CSHARP: Final = 0x65  # e
_DROPPED_ANSWERS: Final[dict[int, Callable[[_Room], _Drop]]] = {
    0x64: _drop_record,  # d
    0x63: _drop_fixed(4),  # c
    0x6C: _drop_list,  # l
    0x70: _drop_violation,  # p
}
_DROPPED: Final[dict[int, Callable[[_Room], _Drop]]] = {
    _AUTHORIZATION: _drop_fixed(1),
    _BOOTSTRAP: _drop_fixed(12),
    0x61: _drop_verdict,  # a
    0x62: _drop_verdict,  # b
    0x6D: _drop_metadata,  # m
    0x63: _drop_answer,  # c
    0x65: _drop_error,  # e
    0x6C: _drop_fixed(4),  # l
}
