"""The live end of the log, read over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.event_log import Entry, last_offset_of
from quintet_core.storage.link import Address
from quintet_core.storage.log_tail import ENTRIES_MAX, REPLY_BYTES_MAX, LogTail

from tests.support.redis_server import RedisConnection, RedisServer


class Follower:
    """Keeps what it is told."""

    def __init__(self, *partitions: int) -> None:
        self.at = dict.fromkeys(partitions, 0)
        self.entries: list[tuple[int, int]] = []
        self.losses: list[int] = []
        self.damages = 0

    def positions(self) -> Mapping[int, int]:
        return self.at

    def on_entries(self, partition: int, entries: list[Entry]) -> None:
        for entry in entries:
            if partition in self.at:
                self.at[partition] = last_offset_of(entry[0])
                self.entries.append((partition, self.at[partition]))

    def on_loss(self, partition: int) -> None:
        self.losses.append(partition)
        del self.at[partition]

    def on_damage(self) -> None:
        self.damages += 1


@asynccontextmanager
async def reading(server: RedisServer, follower: Follower, timeout_s: float = 30.0) -> AsyncIterator[LogTail]:
    tail = LogTail(RedisTerms(Address(path=server.path), 16, timeout_s), follower)
    tail.start()
    try:
        yield tail
    finally:
        await tail.close()


async def until(holds: Callable[[], bool]) -> None:
    """For what nothing announces."""
    while not holds():
        await asyncio.sleep(0.002)


def write(redis: RedisConnection, partition: int, offset: int) -> None:
    redis.command("XADD", f"{{p{partition:02d}}}:events", f"{offset}-0", "t", "1", "n", "", "e", "x" * 48)


async def test_nothing_is_read_until_somebody_follows(redis_server: RedisServer, redis: RedisConnection) -> None:
    follower = Follower()
    async with reading(redis_server, follower) as tail:
        await asyncio.sleep(0)
        assert not tail.connected
        follower.at[3] = 0
        tail.on_followed()
        await until(lambda: tail.connected)
        write(redis, 3, 1)
        await until(lambda: follower.entries == [(3, 1)])
        del follower.at[3]
        await until(lambda: not tail.connected)


async def test_every_entry_comes_once_and_in_order(redis_server: RedisServer, redis: RedisConnection) -> None:
    follower = Follower(1, 2)
    for offset in range(1, 300):
        write(redis, 1, offset)
        write(redis, 2, offset * 10)
    async with reading(redis_server, follower) as tail:
        tail.on_followed()
        for offset in range(300, 350):
            write(redis, 1, offset)
        await until(lambda: follower.at == {1: 349, 2: 2990})
    assert [offset for partition, offset in follower.entries if partition == 1] == list(range(1, 350))
    assert [offset for partition, offset in follower.entries if partition == 2] == list(range(10, 3000, 10))


async def test_the_larger_entries_are_the_fewer_are_read_at_once(
    redis_server: RedisServer, redis: RedisConnection
) -> None:
    class Counting(Follower):
        def __init__(self, *partitions: int) -> None:
            super().__init__(*partitions)
            self.replies: list[int] = []

        def on_entries(self, partition: int, entries: list[Entry]) -> None:
            self.replies.append(len(entries))
            super().on_entries(partition, entries)

    follower = Counting(4)
    for offset in range(1, 101):
        value = "v" * (REPLY_BYTES_MAX // 16 if offset <= 80 else 10)
        redis.command("XADD", "{p04}:events", f"{offset}-0", "t", "1", "n", "", "e", "x" * 48, "v", value)
    async with reading(redis_server, follower) as tail:
        tail.on_followed()
        await until(lambda: follower.at == {4: 100})
    # The first reply found them out; then there were at most sixteen at a time, until they were small again.
    first, *others = follower.replies
    assert first == ENTRIES_MAX
    assert sum(others[:2]) <= 2 * 16
    assert [offset for _, offset in follower.entries] == list(range(1, 101))


async def test_one_more_partition_is_taken_up_while_the_reader_waits(
    redis_server: RedisServer, redis: RedisConnection
) -> None:
    follower = Follower(1)
    write(redis, 1, 1)
    async with reading(redis_server, follower) as tail:
        tail.on_followed()
        await until(lambda: follower.entries == [(1, 1)])
        for partition in range(2, 6):
            follower.at[partition] = 0
            tail.on_followed()
            write(redis, partition, 7)
            await until(lambda: follower.at[partition] == 7)  # noqa: B023 - awaited here
        write(redis, 1, 2)
        await until(lambda: follower.at[1] == 2)


async def test_a_reader_that_is_cut_off_goes_on_where_it_was(redis_server: RedisServer, redis: RedisConnection) -> None:
    follower = Follower(1)
    async with reading(redis_server, follower) as tail:
        tail.on_followed()
        for offset in range(1, 11):
            await until(lambda: tail.connected)
            redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            write(redis, 1, offset)
        await until(lambda: follower.at[1] == 10)
    assert [offset for _, offset in follower.entries] == list(range(1, 11))
    assert not follower.losses


async def test_a_redis_that_is_silent_is_given_up_and_found_again(own_redis_server: RedisServer) -> None:
    follower = Follower(1)
    async with reading(own_redis_server, follower, timeout_s=1.0) as tail:
        tail.on_followed()
        await until(lambda: tail.connected)
        own_redis_server.freeze()
        await until(lambda: not tail.connected)
        own_redis_server.thaw()
        with RedisConnection(own_redis_server.path) as plain:
            write(plain, 1, 1)
        await until(lambda: follower.at[1] == 1)


async def test_a_redis_that_has_lost_the_end_is_told(redis_server: RedisServer, redis: RedisConnection) -> None:
    follower = Follower(1, 2)
    write(redis, 1, 5)
    follower.at = {1: 6, 2: 0}
    async with reading(redis_server, follower) as tail:
        tail.on_followed()
        await until(lambda: follower.losses == [1])
        write(redis, 2, 1)
        await until(lambda: follower.at == {2: 1})


async def test_a_stream_that_is_none_is_damage_and_one_that_may_not_be_read_is_waited_for(
    own_redis_server: RedisServer,
) -> None:
    follower = Follower(1)
    with RedisConnection(own_redis_server.path) as plain:
        plain.command("ACL", "SETUSER", "default", "-xread")
        async with reading(own_redis_server, follower) as tail:
            tail.on_followed()
            await until(lambda: tail._logged_at > 0)
            assert not follower.damages
            plain.command("ACL", "SETUSER", "default", "+xread")
            write(plain, 1, 1)
            await until(lambda: follower.at[1] == 1)
            plain.command("DEL", "{p01}:events")
            plain.command("SET", "{p01}:events", "rubbish")
            await until(lambda: follower.damages > 0)
