"""Replicas over a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.redis_server import RedisConnection, RedisServer
from tests.support.replica import Replica, open_replica


@pytest.fixture
async def replica(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Replica]:
    """One that hears of what others do."""
    async with open_replica(redis_server.path) as replica:
        yield replica


@pytest.fixture
async def other(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Replica]:
    """Another on the same Redis."""
    async with open_replica(redis_server.path, b"replica1") as replica:
        yield replica


@pytest.fixture
async def deaf(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Replica]:
    """One that hears of nothing but its own doings."""
    async with open_replica(redis_server.path, b"replica2", listens=False) as replica:
        yield replica
