"""Fixtures that every test may ask for, and what all processes under test inherit."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.redis_server import own_redis_server, redis, redis_server

__all__ = ["own_redis_server", "redis", "redis_server"]

# A shell that starts the tests in the background lets them ignore SIGINT, and what they start would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What Spark compiles for good it would use for hours; a test lasts seconds, and two processors are shared.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Where `make` has made it: what a JVM would unpack and check anew each time. One that does not fit is passed over.
_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
if _CLASSES.is_file():
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile={_CLASSES} -Xlog:disable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadfile`, all tests of Spark go to one worker besides."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.one_worker import FilesAndOneFolder

    return FilesAndOneFolder(config, log)
