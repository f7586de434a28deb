"""The connection to Redis: what is asked of a Redis before operations flow, and again after every loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from quintet_core.domain.errors import Reason
from quintet_core.domain.limits import Limits
from quintet_core.storage import connection as connection_module
from quintet_core.storage.connection import RedisConnection, RedisTerms
from quintet_core.storage.link import Address
from quintet_core.storage.pipeline import Pipeline
from quintet_core.storage.wakes import WakeSubscriber

from tests.support.redis_server import RedisConnection as Plain
from tests.support.redis_server import RedisServer
from tests.support.store import REPLICA, Recorder

Connect = Callable[..., RedisConnection]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CHECK_PERIOD_S", 0.02)


@pytest.fixture
def plain(own_redis_server: RedisServer) -> Plain:
    return Plain(own_redis_server.path)


@pytest.fixture
async def connect(own_redis_server: RedisServer) -> AsyncIterator[Connect]:
    """Makes a connection and starts it; all are closed at the end."""
    made: list[RedisConnection] = []

    def make(partitions: int = 4, weak: bool = False, timeout_s: float = 5.0) -> RedisConnection:
        terms = RedisTerms(Address(path=own_redis_server.path), partitions, timeout_s, weak)
        connection = RedisConnection(terms, Pipeline(REPLICA, Recorder(), timeout_s, Limits()))
        connection.start()
        made.append(connection)
        return connection

    yield make
    for connection in made:
        await connection.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def refusing(connection: RedisConnection) -> Reason | None:
    why = connection._pipeline.refusing
    return why.reason if why is not None else None


async def test_an_empty_redis_is_made_ready(connect: Connect, plain: Plain) -> None:
    connection = connect()
    assert refusing(connection) is Reason.UNAVAILABLE
    await until(lambda: connection.ready)
    assert refusing(connection) is None
    assert connection.redis_version.startswith("7.")
    assert connection.library_version >= 1
    assert len(connection.signing_key) == 32
    assert connection.durability is not None
    assert connection.durability.durable
    assert plain.command("HGET", "{quintet}:info", "partitions") == b"4"
    assert [plain.command("EXISTS", f"{{p{number:02d}}}:meta") for number in range(5)] == [1, 1, 1, 1, 0]


async def test_all_cores_of_a_redis_sign_with_one_key(connect: Connect) -> None:
    one, two = connect(), connect()
    await until(lambda: one.ready and two.ready)
    assert one.signing_key == two.signing_key


async def test_another_number_of_partitions_is_unsuitable(connect: Connect) -> None:
    first = connect()
    await until(lambda: first.ready)
    assert "first started with 4 partitions" in await connect(partitions=8).unsuitable


async def test_weak_settings_stop_operations_and_better_ones_let_them_go_on(connect: Connect, plain: Plain) -> None:
    connection = connect()
    told: list[str] = []
    connection.attached.append(lambda: told.append("attached"))
    connection.lost.append(lambda: told.append("lost"))
    await until(lambda: connection.ready)
    plain.command("CONFIG", "SET", "appendfsync", "everysec")
    await until(lambda: refusing(connection) is Reason.NOT_DURABLE)
    assert connection.standing == "Redis is not durable: appendfsync is everysec, must be always"
    plain.command("CONFIG", "SET", "appendfsync", "always")
    await until(lambda: connection.ready)
    assert told == ["attached", "lost", "attached"]


async def test_weak_settings_are_taken_where_they_were_allowed(connect: Connect, plain: Plain) -> None:
    plain.command("CONFIG", "SET", "appendonly", "no")
    connection = connect(weak=True)
    await until(lambda: connection.ready)
    assert connection.durability is not None
    assert not connection.durability.durable


async def test_a_lost_connection_is_made_again(connect: Connect, plain: Plain) -> None:
    connection = connect()
    await until(lambda: connection.ready)
    plain.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await until(lambda: connection.connects == 2 and connection.ready)


async def test_a_silent_redis_is_given_up(connect: Connect, own_redis_server: RedisServer) -> None:
    connection = connect(timeout_s=0.1)
    await until(lambda: connection.ready)
    own_redis_server.freeze()
    await until(lambda: not connection.ready)
    own_redis_server.thaw()
    await until(lambda: connection.ready)


async def test_partitions_without_their_counters_are_not_made_anew(connect: Connect, plain: Plain) -> None:
    connection = connect()
    await until(lambda: connection.ready)
    await connection.close()
    plain.command("DEL", "{p02}:meta")
    plain.command("HSET", "{p02}:jobs", "x", "y")
    again = connect()
    await asyncio.sleep(0)
    await until(lambda: again._logged_at > 0)
    assert not again.ready


class TestWakes:
    async def test_of_other_cores_are_heard_and_our_own_are_not(
        self, own_redis_server: RedisServer, plain: Plain
    ) -> None:
        heard: list[tuple[bytes, int]] = []
        gaps: list[None] = []
        terms = RedisTerms(Address(path=own_redis_server.path), 4, 5.0)
        subscriber = WakeSubscriber(terms, REPLICA, lambda *wake: heard.append(wake), lambda: gaps.append(None))
        subscriber.start()
        await until(lambda: subscriber.connected)
        assert gaps == [None]
        plain.command("PUBLISH", "quintet:wake", REPLICA + b"\0\0\0\1" + b"ours")
        plain.command("PUBLISH", "quintet:wake", b"too short")
        plain.command("PUBLISH", "quintet:wake", b"another." + b"\0\0\1\2" + b"theirs")
        await until(lambda: bool(heard))
        assert heard == [(b"theirs", 258)]
        plain.command("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: len(gaps) == 2)
        plain.command("PUBLISH", "quintet:wake", b"another." + b"\0\0\0\0" + b"deleted")
        await until(lambda: len(heard) == 2)
        await subscriber.close()
