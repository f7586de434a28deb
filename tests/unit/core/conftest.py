"""A store on a real Redis whose partitions' clocks run as they do in life."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer
from tests.support.store import Clock, OpenStore, open_store


@pytest.fixture
async def opened(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[OpenStore]:
    async with open_store(redis_server.path, PARTITIONS) as opened:
        yield opened


@pytest.fixture
def clock(redis: RedisConnection) -> Clock:
    """Makes the clocks stand still until told to move."""
    return Clock(redis, PARTITIONS)
