"""A store on a real Redis, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.redis_server import PARTITIONS, RedisConnection, RedisServer
from tests.support.store import Clock, OpenStore, open_store
from tests.unit.core.storage.verbs import Verbs


@pytest.fixture
async def opened(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[OpenStore]:
    async with open_store(redis_server.path, PARTITIONS) as opened:
        yield opened


@pytest.fixture
def clock(redis: RedisConnection) -> Clock:
    return Clock(redis, PARTITIONS)


@pytest.fixture
def verbs(opened: OpenStore, clock: Clock) -> Verbs:
    return Verbs(opened, clock)
