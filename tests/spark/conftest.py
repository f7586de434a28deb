"""One Spark session for all tests of this folder; they run in one worker (see tests/conftest.py)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.core import core, queue
from tests.support.spark_session import local_session

__all__ = ["core", "queue"]


# The first to ask for it starts a JVM, and what Spark does first is slow; beside other work it may take minutes.
TIMEOUT_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of this folder have more time than others."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session. Starting it takes seconds: tests give queries names of their own and leave none running."""
    folder = Path(tempfile.mkdtemp(prefix="quintet-spark-"))
    try:
        with local_session(folder) as session:
            yield session
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A query that outlives its test would run into the next one."""
    yield
    if "spark" in request.fixturenames:
        session: SparkSession = request.getfixturevalue("spark")
        left = list(session.streams.active)
        for query in left:
            query.stop()
        assert not left, f"queries were left running: {[query.name for query in left]}"
