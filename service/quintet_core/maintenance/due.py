"""Delays, expiries of leases and jobs, ends of pauses: carried out when they fall due.

Each answer of a partition tells its clock and, when it set one, a due time. The nearest is kept as a timer of the event
loop, relative to that clock, so that local clocks do not matter. Once a second every partition is asked all the same:
for the due times that other replicas set and did not live to see.
"""

from __future__ import annotations

import asyncio
import math

from quintet_core.domain.errors import Refusal
from quintet_core.maintenance.rounds import in_every_partition, until_done
from quintet_core.storage.redis_store import RedisStore

QUEUES_PER_STEP = 100
STEPS_MAX = 1000
PERIOD_S = 1.0
# What is further away is heard of again by asking.
_AHEAD_MS_MAX = 10_000
# Redis's milliseconds are whole and the loop's timers coarse: never too early, and never a busy loop.
_LATE_S = 0.002


class DueTimers:
    """The due times of all partitions."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._due_at = [math.inf] * store.partitions
        self._timers: list[asyncio.TimerHandle | None] = [None] * store.partitions
        self._settling: dict[int, asyncio.Task[Refusal | None]] = {}
        # Fell due while its partition was being settled, perhaps behind what was looked at.
        self._missed: set[int] = set()
        self._closed = False

    def on_clock(self, partition: int, now_ms: int, due_at_ms: int | None) -> None:
        """As storage.pipeline.Observer."""
        if due_at_ms is None:
            return
        ahead_ms = due_at_ms - now_ms
        if ahead_ms > _AHEAD_MS_MAX:
            return
        at = self._loop.time() + max(0.0, ahead_ms / 1000) + _LATE_S
        if at < self._due_at[partition] and not self._closed:
            self._arm(partition, at)

    def _arm(self, partition: int, at: float) -> None:
        timer = self._timers[partition]
        if timer is not None:
            timer.cancel()
        self._due_at[partition] = at
        self._timers[partition] = self._loop.call_at(at, self._fire, partition)

    def _fire(self, partition: int) -> None:
        self._due_at[partition] = math.inf
        self._timers[partition] = None
        if partition in self._settling:
            self._missed.add(partition)
            return
        task = asyncio.ensure_future(self._settle(partition))
        self._settling[partition] = task
        task.add_done_callback(lambda _: self._settled(partition))

    def _settled(self, partition: int) -> None:
        del self._settling[partition]
        if partition in self._missed and not self._closed:
            self._missed.discard(partition)
            self._fire(partition)

    async def _settle(self, partition: int) -> Refusal | None:
        return await until_done(lambda: self._store.settle_due(partition, QUEUES_PER_STEP), STEPS_MAX)

    async def ask_all(self) -> Refusal | None:
        """Settle every partition now; the answers tell the next due times."""
        return await in_every_partition(self._store.partitions, self._settle)

    async def close(self) -> None:
        """No more timers."""
        self._closed = True
        for timer in self._timers:
            if timer is not None:
                timer.cancel()
        for task in list(self._settling.values()):
            task.cancel()
