"""Packets out of bytes: every split reads alike, every bound is judged before the bytes it announces."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_adapters.protocols.taskflux_packets import (
    Count,
    Create,
    Delete,
    Dequeue,
    Enqueue,
    Idle,
    List,
    Metadata,
    Packet,
    PacketFaultError,
    PacketReader,
)

from tests.support import taskflux as tf

PACKET_BYTES_MAX = 1000
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.binary(max_size=255)
STRINGS = st.binary(max_size=20).map(lambda data: struct.pack(">i", len(data)) + data)
ENTRIES = st.lists(st.tuples(STRINGS, STRINGS).map(b"".join), max_size=3)


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def array(items: list[bytes]) -> bytes:
    return int32(len(items)) + b"".join(items)


def idle(packets: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[bytes, Packet]]:
    return packets.map(lambda packet: (packet, Idle.PACKETS))


def dropped(*parts: bytes | st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[bytes, Packet]]:
    strategies = [st.just(part) if isinstance(part, bytes) else part for part in parts]
    return idle(st.tuples(*strategies).map(b"".join))


QUEUES = st.lists(
    st.tuples(NAMES, INT32, ENTRIES).map(lambda entry: tf.name_bytes(entry[0]) + int32(entry[1]) + array(entry[2])),
    max_size=3,
)
PACKETS: st.SearchStrategy[tuple[bytes, Packet]] = st.one_of(
    st.tuples(NAMES, INT64, st.binary(max_size=50)).map(lambda fields: (tf.enqueue(*fields), Enqueue(*fields))),
    st.tuples(NAMES, st.integers(0, 2**32 - 1)).map(lambda fields: (tf.dequeue(*fields), Dequeue(*fields))),
    NAMES.map(lambda name: (tf.count(name), Count(name))),
    NAMES.map(lambda name: (tf.delete(name), Delete(name))),
    st.tuples(NAMES, INT32, INT32, INT32, st.none() | st.tuples(INT64, INT64)).map(
        lambda fields: (tf.create(*fields), Create(*fields))
    ),
    st.just((tf.LIST, List())),
    st.just((tf.METADATA, Metadata(1))),
    idle(st.sampled_from([b"Q", b"K", b"N", b"k", b"AN", b"AA", b"B" + b"C" * 12, b"l" + b"C" * 4])),
    idle(st.sampled_from([b"a\1", b"b\1", b"cd\0", b"cc\0\0\0\0"])),
    dropped(st.sampled_from([b"a\0", b"b\0"]), STRINGS),
    dropped(b"m", st.lists(STRINGS, max_size=3).map(array), b"C" * 8),
    dropped(b"e", INT32.map(int32), STRINGS),
    dropped(b"cd\1", INT64.map(lambda key: struct.pack(">q", key)), STRINGS),
    dropped(b"cx", INT32.map(int32), STRINGS),
    dropped(b"cl", QUEUES.map(array)),
    dropped(b"cp" + int32(0), STRINGS),
    dropped(b"cp", st.sampled_from([int32(1) + b"C" * 4, int32(2) + b"C" * 4, int32(3) + b"C" * 16])),
)


def read_all(reader: PacketReader) -> list[Packet]:
    packets = []
    while (packet := reader.next_packet()) is not None:
        packets.append(packet)
    return packets


def merged(packets: list[Packet]) -> list[Packet]:
    """How many one-byte packets are taken in one step depends on what is there, and means nothing."""
    result: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Idle):
            continue
        if isinstance(packet, Metadata) and result and isinstance(result[-1], Metadata):
            result[-1] = Metadata(result[-1].times + packet.times)
        else:
            result.append(packet)
    return result


@given(st.lists(PACKETS, max_size=12), st.lists(st.integers(0, 400), max_size=30))
def test_any_split_of_any_packets_reads_alike(packets: list[tuple[bytes, Packet]], cuts: list[int]) -> None:
    data = b"".join(source for source, _ in packets)
    reader = PacketReader(PACKET_BYTES_MAX)
    found, start = list[Packet](), 0
    for end in (*sorted(cut for cut in cuts if cut < len(data)), len(data)):
        if end > start:
            reader.feed(data[start:end])
            found += read_all(reader)
            start = end
    assert merged(found) == merged([packet for _, packet in packets])
    assert reader.waiting_bytes == 0


@given(st.lists(PACKETS, min_size=1, max_size=3))
def test_byte_by_byte_too(packets: list[tuple[bytes, Packet]]) -> None:
    reader = PacketReader(PACKET_BYTES_MAX)
    found = list[Packet]()
    for byte in b"".join(source for source, _ in packets):
        reader.feed(bytes([byte]))
        found += read_all(reader)
    assert merged(found) == merged([packet for _, packet in packets])


@given(PACKETS, st.data())
def test_no_beginning_of_a_packet_is_a_packet(packet: tuple[bytes, Packet], data: st.DataObject) -> None:
    source, _ = packet
    reader = PacketReader(PACKET_BYTES_MAX)
    reader.feed(source[: data.draw(st.integers(0, len(source) - 1))])
    assert read_all(reader) == []


@given(st.binary(max_size=300))
def test_any_bytes_are_packets_a_fault_or_not_there_yet(data: bytes) -> None:
    reader = PacketReader(PACKET_BYTES_MAX)
    reader.feed(data)
    with suppress(PacketFaultError):
        read_all(reader)
    assert 0 <= reader.waiting_bytes <= len(data)


FAULTS = {
    "unknown packet": b"z",
    "unknown command": b"CB",
    "negative length": b"CE\0" + struct.pack(">qi", 0, -1),
    "length over the limit": b"CE\0" + struct.pack(">qi", 0, PACKET_BYTES_MAX + 1),
    "refusal": b"a\0" + int32(-1),
    "array": b"m" + int32(PACKET_BYTES_MAX + 1),
    "negative array": b"m" + int32(-5),
    "record": b"cd\1" + b"\0" * 8 + int32(PACKET_BYTES_MAX + 1),
    "list": b"cl" + int32(-1),
    "dict": b"cl" + int32(1) + b"\0" + int32(0) + int32(-1),
    "sum": b"m" + int32(2) + int32(600) + b"x" * 600 + int32(600),
    "unknown answer": b"cQ",
    "unknown policy": b"cp" + int32(-1),
}


@pytest.mark.parametrize("source", FAULTS.values(), ids=FAULTS)
def test_faults_are_found_at_the_byte_that_makes_them(source: bytes) -> None:
    reader = PacketReader(PACKET_BYTES_MAX)
    for byte in source[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next_packet() is None
    reader.feed(source[-1:])
    with pytest.raises(PacketFaultError):
        reader.next_packet()


def test_a_length_of_the_limit_is_none() -> None:
    reader = PacketReader(PACKET_BYTES_MAX)
    payload = b"x" * PACKET_BYTES_MAX
    reader.feed(tf.enqueue("q", 0, payload) + b"cd\1" + b"\0" * 8 + int32(PACKET_BYTES_MAX) + payload)
    assert read_all(reader) == [Enqueue(b"q", 0, payload), Idle.PACKETS]


def test_what_is_dropped_is_never_gathered() -> None:
    reader = PacketReader(1 << 20)
    reader.feed(b"cd\1" + b"\0" * 8 + int32(1 << 20))
    for _ in range(1 << 10):
        reader.feed(b"x" * 1023)
        assert reader.next_packet() is None
        assert reader.waiting_bytes == 0
    reader.feed(b"x" * 1024)
    assert reader.next_packet() is Idle.PACKETS


def test_the_dialect_csharp_has_other_answers_to_drop() -> None:
    swapped = b"ce" + int32(2) + int32(1) + b"x", b"cp" + int32(2) + b"C" * 16, b"cp" + int32(3) + b"C" * 4
    reader = PacketReader(PACKET_BYTES_MAX, csharp=True)
    reader.feed(b"".join(swapped))
    assert read_all(reader) == [Idle.PACKETS] * 3
    reader.feed(b"cx")
    with pytest.raises(PacketFaultError):
        reader.next_packet()
    document = PacketReader(PACKET_BYTES_MAX)
    document.feed(b"ce")
    with pytest.raises(PacketFaultError):
        document.next_packet()


class TestAcknowledgements:
    @pytest.mark.parametrize(("source", "meaning"), [(b"Q", True), (b"K", True), (b"N", False)])
    def test_are_one_byte_each(self, source: bytes, meaning: bool) -> None:
        reader = PacketReader(PACKET_BYTES_MAX)
        assert reader.next_acknowledgement() is None
        assert not reader.has_acknowledgement
        reader.feed(source * 2)
        assert reader.has_acknowledgement
        assert (reader.next_acknowledgement(), reader.waiting_bytes) == (meaning, 1)

    @pytest.mark.parametrize("other", [b"A", b"C", b"k", b"n", b"\0"])
    def test_are_nothing_else(self, other: bytes) -> None:
        reader = PacketReader(PACKET_BYTES_MAX)
        reader.feed(other)
        assert not reader.has_acknowledgement
        with pytest.raises(PacketFaultError):
            reader.next_acknowledgement()


class TestSetUp:
    def test_is_read_when_it_is_there(self) -> None:
        reader = PacketReader(PACKET_BYTES_MAX)
        assert reader.next_authorization() is None
        reader.feed(b"A")
        assert reader.next_authorization() is None
        reader.feed(b"NB")
        assert reader.next_authorization() == ord("N")
        reader.feed(struct.pack(">ii", 1, -2))
        assert reader.next_bootstrap() is None
        reader.feed(int32(3))
        assert reader.next_bootstrap() == (1, -2)

    def test_is_nothing_else(self) -> None:
        reader = PacketReader(PACKET_BYTES_MAX)
        reader.feed(b"B")
        with pytest.raises(PacketFaultError):
            reader.next_authorization()
        reader.clear()
        reader.feed(b"A")
        with pytest.raises(PacketFaultError):
            reader.next_bootstrap()
