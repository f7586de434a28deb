"""Redis and one core as real processes, shared by the tests of a module; each test takes a queue of its own."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.stack import CorePart, RedisPart


@contextmanager
def running_core(**environment: str) -> Iterator[CorePart]:
    """A running core on an empty Redis; `environment` are settings beyond the usual."""
    # Short-named: the path of a unix socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="quintet-"))
    try:
        with core_in(folder, **environment) as core:
            yield core
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def core_in(folder: Path, **environment: str) -> Iterator[CorePart]:
    """As running_core, in a folder that is there already and stays."""
    redis = RedisPart(folder)
    core = CorePart(folder, redis)
    core.environment = environment
    try:
        redis.start()
        core.start()
        yield core
    finally:
        core.kill9()
        redis.kill9()


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A running core on an empty Redis."""
    with running_core() as core:
        yield core


@pytest.fixture
def queue() -> str:
    """A queue name that no other test has."""
    return f"queue-{uuid.uuid4().hex[:8]}"
