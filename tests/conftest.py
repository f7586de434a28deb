"""Fixtures that every test may ask for, and what all processes under test inherit."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.redis_server import own_redis_server, redis, redis_server
from tests.support.spark_options import use_spark_options

__all__ = ["own_redis_server", "redis", "redis_server"]

# A shell that starts the tests in the background lets them ignore SIGINT, and what they start would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is slow on a busy machine is not wrong: tests assert no time, and hypothesis shall not either.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

use_spark_options()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadfile`, what belongs to Spark stays together besides."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.scheduling import FilesTogether

    return FilesTogether(config, log)
