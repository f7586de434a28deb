"""Fixtures that every test may ask for, and what all processes under test inherit."""

import signal

from tests.support.redis_server import own_redis_server, redis, redis_server

__all__ = ["own_redis_server", "redis", "redis_server"]

# A shell that starts the tests in the background lets them ignore SIGINT, and what they start would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
