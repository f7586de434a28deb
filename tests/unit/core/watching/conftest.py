"""Watches over a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.followed import Followed, open_followed
from tests.support.redis_server import RedisConnection, RedisServer


@pytest.fixture
async def followed(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Followed]:
    """One core's."""
    async with open_followed(redis_server.path) as followed:
        yield followed


@pytest.fixture
async def other(redis_server: RedisServer, redis: RedisConnection) -> AsyncIterator[Followed]:
    """Another core's."""
    async with open_followed(redis_server.path) as followed:
        yield followed
