"""Each event of the log is in the archive once, unaltered, whatever is killed while it is written and archived.

The seed is printed. QUINTET_FAULT_SEED repeats the choices of a run. By hand, and larger:
`python -m tests.support.exactly_once --events 10000000`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.exactly_once import ARCHIVE, Archiving, Run
from tests.support.spark_driver import SparkDriver
from tests.support.stack import until

SEED = int(os.environ.get("QUINTET_FAULT_SEED") or random.randrange(10**9))
EVENTS = 2_000_000
FAULTS = 4
END_SECONDS_MAX = 300.0
"""On a busy machine a driver takes more than a minute to its first batch."""


@contextmanager
def writing(scene: Archiving, events: int) -> Iterator[None]:
    """Within the block events are written; at its end at least `events`, and nothing is under way."""
    scene.load.start()
    yield
    until(lambda: scene.written() >= events, f"{events} events are written", END_SECONDS_MAX)
    scene.load.stop()


def archives(scene: Archiving, driver: SparkDriver) -> bool:
    """Whether something is in the archive. A driver whose Python workers came up too late for Spark, several times, has
    ended: then it is started again, as Kubernetes would."""
    driver.ensure_running()
    return scene.archive.count() > 0


def tell(capsys: pytest.CaptureFixture[str], line: object) -> None:
    with capsys.disabled():
        print(f"\n  {line}", end="", flush=True)


@pytest.mark.timeout(1200)
def test_the_archive_of_two_million_events_is_the_log_whatever_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """The log goes behind the archive, so that what is read too late, or committed too early, is missing."""
    tell(capsys, f"QUINTET_FAULT_SEED={SEED}")
    with Archiving(SEED, trims=True) as scene:
        verdict = Run(scene, EVENTS, FAULTS, SEED, lambda _: None).judged()
        tell(capsys, verdict)
        assert verdict.wrong == [], f"QUINTET_FAULT_SEED={SEED}\n{scene.stack.logs()}"
        assert verdict.events >= EVENTS
        assert sum(partition.first_offset - 1 for partition in scene.partitions()) > EVENTS / 2, "little was trimmed"


@pytest.mark.timeout(1200)
def test_a_driver_that_slept_while_another_took_over_moves_nothing_and_doubles_nothing() -> None:
    # Writers that take all they can get would keep the drivers from coming up.
    with Archiving(SEED, writers=1) as scene:
        sleeper, other = scene.driver, scene.new_driver("archive-2")
        sleeper.start()
        until(lambda: '"event":"started"' in sleeper.log.read_text(), "the first driver is there", END_SECONDS_MAX)
        with writing(scene, 100_000):
            until(lambda: archives(scene, sleeper), "the first driver archives", END_SECONDS_MAX)
            sleeper.freeze()
            other.start()
        until(scene.is_archived, "the second driver has archived everything", END_SECONDS_MAX)
        other.kill9()
        before = scene.partitions(ARCHIVE), scene.archive.count()
        sleeper.thaw()
        until(lambda: not sleeper.processes(), "the first driver has given up", END_SECONDS_MAX)
        assert (scene.partitions(ARCHIVE), scene.archive.count()) == before
        assert scene.wrong()[0] == []
