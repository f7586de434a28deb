"""The rollup job beside a large log that is there already, killed on its way, and its windows computed anew."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tests.support.lake import table
from tests.support.rollup_verdict import rollup_differences
from tests.support.spark_driver import SparkDriver
from tests.support.stack import until

if TYPE_CHECKING:
    from tests.support.exactly_once import Archiving

WINDOW_S, LATE_MS = 10, 5000
_SECONDS_MAX = 300.0


def rollup_wrong(scene: Archiving, choice: random.Random) -> list[str]:
    """What is wrong with what the rollup job makes of the whole log, one line each.

    To be called when everything is archived, with the archive job still running.
    """
    options = ("--once", "--rollup-window-s", str(WINDOW_S), "--rollup-late-ms", str(LATE_MS))
    driver = SparkDriver("rollup", scene.stack.folder, *scene.arguments, *options)
    scene.stack.extra.append(driver)
    driver.start()
    time.sleep(choice.uniform(2, 20))  # Any moment will do.
    driver.kill9()
    driver.start()
    status = driver.wait_status(_SECONDS_MAX)
    if status:
        return [f"the rollup ended with {status}: {driver.log.read_text()[-3000:]}"]
    rolled = table(scene.lake / "rollup", "window_start", "window_end")
    closed_ms = pc.max(rolled["window_end_ms"]).as_py()
    until(lambda: _archived_until(scene) >= closed_ms, "snapshots are archived as far", _SECONDS_MAX)
    events, metrics = scene.log(), table(scene.lake / "metrics", "at")
    events = events.filter(pc.less(events["at_ms"], closed_ms))
    metrics = metrics.filter(pc.less(metrics["at_ms"], closed_ms))
    found = rollup_differences(events, metrics, rolled, WINDOW_S)
    # Windows that are open still are few.
    left = pc.sum(pc.greater_equal(scene.log()["at_ms"], closed_ms)).as_py()
    if left > events.num_rows / 2:
        found.append(f"{left} events are behind the last window that closed, {events.num_rows} before it")
    return found


def _archived_until(scene: Archiving) -> int:
    newest: int = pc.max(table(scene.lake / "metrics", "at")["at_ms"]).as_py()
    return newest
