"""What can be told of an entry of the log without a look at every event of it."""

from __future__ import annotations

from quintet_core.storage import event_log
from quintet_core.storage.event_log import Entry
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.records import unpack_chosen, unpack_events

from tests.support.followed import NAMESPACE, open_followed
from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer


async def entries_of(server: RedisServer, redis: RedisConnection) -> list[Entry]:
    """One of a queue, one of a table with carried values, and one of both and of a second table."""
    async with open_followed(server.path) as followed:
        await followed.create("t", events_carry_values=True)
        await followed.put_together("t", b"a", b"", b"c", value=b"carried")
        await followed.enqueue("q", 3)
        partition = followed.partition("t")
    return [
        event_log.entry_of_stream(raw)
        for number in {partition, followed.partition("q")}
        for raw in redis.command("XRANGE", f"{partition_tag(number)}:events", "-", "+")
    ]


async def test_is_what_its_events_say(redis_server: RedisServer, redis: RedisConnection) -> None:
    entries = await entries_of(redis_server, redis)
    assert len(entries) >= 3
    for entry in entries:
        events = list(unpack_events(entry, 0, PARTITIONS))
        assert event_log.events_in(entry[3]) == len(events)
        assert event_log.last_offset_of(entry[0]) == events[-1].offset
        assert event_log.has_tables(entry[2]) == any(event.table for event in events)
        named = {key for _, key in event_log.names_in(entry[2])}
        assert named == {
            bytes((len(NAMESPACE),)) + NAMESPACE.encode() + (event.table or event.queue).encode() for event in events
        }


def test_only_chosen_events_are_decoded_and_values_stay_with_their_keys() -> None:
    """Of two tables in one entry, both of which carry values."""
    first, second, queue = 2**31 + 1, 2**31 + 2, 3

    def name(number: int, text: bytes) -> bytes:
        return number.to_bytes(4, "big") + (2 + len(text)).to_bytes(2, "big") + b"\x01n" + text

    def event(number: int, size: int, state: int, detail: bytes) -> bytes:
        fixed = bytes((30,)) + number.to_bytes(4, "big") + bytes(36) + size.to_bytes(4, "big")
        return fixed + bytes((state,)) + len(detail).to_bytes(2, "big") + detail

    packed = event(first, 1, 1, b"a") + event(queue, 9, 1, b"") + event(second, 2, 1, b"b") + event(first, 3, 1, b"c")
    entry = [b"9-0", b"5", name(first, b"t") + name(second, b"u") + name(queue, b"q"), packed, b"122333"]
    assert event_log.events_in(packed) == 4
    chosen = list(unpack_chosen(entry, 0, 16, {first}))
    assert [(number, told.offset, told.key, told.value) for number, told in chosen] == [
        (first, 6, b"a", b"1"),
        (first, 9, b"c", b"333"),
    ]
    assert [told.value for _, told in unpack_chosen(entry, 0, 16, {second})] == [b"22"]
    assert [told.offset for _, told in unpack_chosen(entry, 0, 16, None)] == [6, 7, 8, 9]
