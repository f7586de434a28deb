"""What fails in a real Quintet is what the rules look at: alerts begin, and go when it is mended.

They begin as pending. How long until they fire is for promtool (tests/monitoring/rules).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients import TextClient
from tests.support.prometheus import Prometheus, configuration, running
from tests.support.redis_server import RedisConnection
from tests.support.up import Up, up

pytestmark = pytest.mark.timeout(300)

MEMORY_TOO_SMALL = 1


@dataclass(frozen=True, slots=True)
class Failing:
    """A Quintet that may be harmed, and who looks at it."""

    up: Up
    prometheus: Prometheus

    def redis(self) -> RedisConnection:
        """The Redis of it."""
        return RedisConnection(self.up.parts["redis"]["listening"]["redis"].removeprefix("unix:"))

    def begun(self, alert: str, **labels: str) -> bool:
        """Whether an alert is pending or fires."""
        selector = "".join(f', {label}="{value}"' for label, value in labels.items())
        return bool(self.prometheus.query(f'ALERTS{{alertname="{alert}"{selector}}}'))

    def wait_begun(self, alert: str, meanwhile: Callable[[], object] = lambda: None, **labels: str) -> None:
        """Return when it has; `meanwhile` is done again and again."""
        self.prometheus.wait(alert, lambda: (meanwhile(), self.begun(alert, **labels))[1])

    def wait_over(self, alert: str) -> None:
        """Return when it neither fires nor is pending."""
        self.prometheus.wait(f"the end of {alert}", lambda: not self.begun(alert))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failing]:
    """One that is well."""
    folder: Path = tmp_path_factory.mktemp("failing")
    with ExitStack() as stack:
        everything = stack.enter_context(up(folder / "data", QUINTET_REDIS_TIMEOUT_MS="1000"))
        prometheus = stack.enter_context(running(configuration(everything, folder)))
        prometheus.wait_scraped()
        prometheus.wait_series("quintet_core_ready == 1")
        yield Failing(everything, prometheus)


def test_durability_that_somebody_weakens(failing: Failing) -> None:
    with failing.redis() as redis:
        redis.command("CONFIG", "SET", "appendfsync", "everysec")
        failing.wait_begun("QuintetDurabilityWeak")
        failing.wait_begun("QuintetNoReadyCore")
        redis.command("CONFIG", "SET", "appendfsync", "always")
    failing.wait_over("QuintetDurabilityWeak")
    failing.wait_over("QuintetNoReadyCore")


def test_a_redis_that_is_silent(failing: Failing) -> None:
    os.kill(failing.up.pid("redis"), signal.SIGSTOP)
    try:
        failing.wait_begun("QuintetCoreNotConnected")
        failing.wait_begun("QuintetNoReadyCore")
    finally:
        os.kill(failing.up.pid("redis"), signal.SIGCONT)
    failing.wait_over("QuintetCoreNotConnected")


def test_a_core_that_is_gone(failing: Failing) -> None:
    os.kill(failing.up.pid("core"), signal.SIGSTOP)
    try:
        failing.wait_begun("QuintetScrapeDown", job="quintet-core")
        failing.wait_begun("QuintetNoReadyCore")
        failing.wait_begun("QuintetAdapterWithoutSession", adapter="etzel")
    finally:
        os.kill(failing.up.pid("core"), signal.SIGCONT)
    failing.wait_over("QuintetScrapeDown")
    failing.wait_over("QuintetAdapterWithoutSession")


def test_memory_that_is_full(failing: Failing) -> None:
    text = TextClient(failing.up.address("text-queue"))
    with failing.redis() as redis:
        redis.command("CONFIG", "SET", "maxmemory", MEMORY_TOO_SMALL)
        failing.wait_begun("QuintetMemoryFull", partial(text.ask, b"ADD q 1 x"))
        failing.wait_begun("QuintetErrorRatioHigh", partial(text.ask, b"ADD q 1 x"))
        redis.command("CONFIG", "SET", "maxmemory", 0)
