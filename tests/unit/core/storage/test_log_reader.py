"""Blocks as they are read from Redis: cut, trimmed, damaged, and while Redis is away."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
from quintet_core.domain.errors import Refusal, refusal
from quintet_core.domain.event import Log
from quintet_core.storage import keys
from quintet_core.storage.blocks import FIXED_BYTES, Block, Range
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.event_log import records_in
from quintet_core.storage.link import Address
from quintet_core.storage.log_reader import LogReader

from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer
from tests.support.store import Clock, OpenStore, Reason, reason_of

PARTITION = 3
TAG = keys.partition_tag(PARTITION)
EVENT = struct.Struct(">BIQQIQQIBH")
NAMES = struct.pack(">IH", 1, 3) + b"\1nq"


@pytest.fixture
async def reader(redis_server: RedisServer, clock: Clock) -> AsyncIterator[LogReader]:
    reader = LogReader(RedisTerms(Address(path=redis_server.path), PARTITIONS, 5.0, True))
    yield reader
    await reader.close()


def write(redis: RedisConnection, *sizes: int, after: int = 0) -> int:
    """Entries of so many events each; the last offset."""
    for size in sizes:
        events = b"".join(EVENT.pack(1, 1, after + k, 1 << 63, 0, 0, 0, 0, 2, 0) for k in range(1, size + 1))
        after += size
        redis.command("XADD", f"{TAG}:events", f"{after}-0", "t", after, "n", NAMES, "e", events)
    redis.command("HSET", f"{TAG}:meta", "event", after)
    return after


async def read(reader: LogReader, after: int, through: int, *, continued: bool = False) -> Block | Refusal:
    return await reader.read_block(PARTITION, Range(Log.EVENTS, after, through, continued), with_carried=True)


async def read_all(reader: LogReader, after: int, through: int) -> list[Block]:
    blocks: list[Block] = []
    while after < through:
        block = await read(reader, after, through, continued=bool(blocks))
        assert isinstance(block, Block), block
        assert block.first_offset == after + 1
        assert records_in(b"".join(block.records), FIXED_BYTES[Log.EVENTS]) == block.last_offset - after
        assert sum(block.entry_bytes) == sum(map(len, block.records))
        after = block.last_offset
        blocks.append(block)
    return blocks


def sequences(blocks: list[Block]) -> list[int]:
    records = b"".join(piece for block in blocks for piece in block.records)
    return [EVENT.unpack_from(records, at)[2] for at in range(0, len(records), EVENT.size)]


@pytest.mark.parametrize("sizes", [[1] * 700, [3, 1, 40] * 50, [20_000, 1, 17_000], [600] * 60])
async def test_ranges_of_entries_of_all_sizes_hold_what_they_name(
    reader: LogReader, redis: RedisConnection, sizes: list[int]
) -> None:
    last = write(redis, *sizes)
    for after, through in ((0, last), (0, 1), (1, 2), (last - 1, last), (last // 3, 2 * last // 3), (5, 20), (39, 80)):
        blocks = await read_all(reader, after, through)
        assert sequences(blocks) == list(range(after + 1, through + 1)), (after, through)


async def test_a_log_that_is_cut_between_blocks_says_so(
    reader: LogReader, opened: OpenStore, redis: RedisConnection
) -> None:
    last = write(redis, *[10] * 30)
    first = await read(reader, 0, 10)
    assert isinstance(first, Block)
    # Up to the very record that comes next: nothing is missing.
    await opened.store.trim_events(PARTITION, last - 10, 1000)
    assert isinstance(await read(reader, 10, last, continued=True), Block)
    await opened.store.trim_events(PARTITION, last - 20, 1000)
    refused = await read(reader, 10, last, continued=True)
    assert reason_of(refused) is Reason.OFFSET_TRIMMED
    assert refused.metadata == {"first_offset": "21"}  # type: ignore[union-attr]
    assert reason_of(await read(reader, 5, last)) is Reason.OFFSET_TRIMMED
    assert isinstance(await read(reader, 20, last), Block)


async def test_a_log_that_ends_before_its_last_offset_is_cut(reader: LogReader, redis: RedisConnection) -> None:
    write(redis, 5)
    assert reason_of(await read(reader, 5, 9, continued=True)) is Reason.OFFSET_TRIMMED


@pytest.mark.parametrize(
    "damage",
    [
        [("DEL", f"{TAG}:events"), ("SET", f"{TAG}:events", "x")],
        [("DEL", f"{TAG}:events"), ("XADD", f"{TAG}:events", "5-0", "x", "y")],
        [("DEL", f"{TAG}:events"), ("XADD", f"{TAG}:events", "5-0", "t", "x", "n", NAMES, "e", bytes(240))],
        [("DEL", f"{TAG}:events"), ("XADD", f"{TAG}:events", "5-0", "t", "1", "n", b"\0\1", "e", bytes(240))],
        [("DEL", f"{TAG}:events"), ("XADD", f"{TAG}:events", "5-0", "t", "1", "n", NAMES, "e", bytes(239))],
        [("HSET", f"{TAG}:meta", "events_trimmed", "x")],
    ],
    ids=["no stream", "shape", "time", "names", "records", "trimmed"],
)
async def test_damage_is_told(reader: LogReader, redis: RedisConnection, damage: list[tuple[str | bytes, ...]]) -> None:
    write(redis, 5)
    redis.commands(damage)  # type: ignore[arg-type]
    assert reason_of(await read(reader, 1, 5)) is Reason.DAMAGED


async def test_a_redis_that_is_away_is_unavailable_and_found_again(
    redis_server: RedisServer, reader: LogReader, redis: RedisConnection
) -> None:
    write(redis, 5)
    assert isinstance(await read(reader, 0, 5), Block)
    await reader.close()
    await asyncio.sleep(0)
    assert isinstance(await read(reader, 0, 5), Block)
    nowhere = LogReader(RedisTerms(Address(path=redis_server.path + ".none"), PARTITIONS, 5.0, True))
    assert reason_of(await read(nowhere, 0, 5)) is Reason.UNAVAILABLE


async def test_whoever_reads_while_the_core_drains_is_sent_on(reader: LogReader, redis: RedisConnection) -> None:
    last = write(redis, *[1] * 50)
    assert isinstance(await read(reader, 0, last), Block)
    reader.refuse(refusal(Reason.DRAINING))
    assert reason_of(await read(reader, 16, last, continued=True)) is Reason.DRAINING


async def test_many_readers_share_the_connection(reader: LogReader, redis: RedisConnection) -> None:
    last = write(redis, *[50] * 200)
    found = await asyncio.gather(*(read_all(reader, after, last) for after in range(0, 1000, 100)))
    for after, blocks in zip(range(0, 1000, 100), found, strict=True):
        assert sequences(blocks) == list(range(after + 1, last + 1))
