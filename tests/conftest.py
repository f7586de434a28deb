"""Fixtures that every test may ask for."""

from tests.support.redis_server import own_redis_server, redis, redis_server

__all__ = ["own_redis_server", "redis", "redis_server"]
