"""Snapshots: once a slot of time, what each queue, table and process looks like, onto the metrics log.

Every core asks, in the first part of each slot by the partitions' clock; the functions see to it that each queue is
written once, whoever asks. A core's own snapshot is written by itself alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Refusal
from quintet_core.domain.snapshot import ProcessSnapshot
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.snapshot_store import Left, Taken

NAME = "snapshot"
# A step takes Redis a millisecond; those of all partitions at once would be felt by operations.
PARTITIONS_AT_ONCE = 2
STEPS_MAX = 1000
# Of a slot, in which cores ask, each at another moment.
_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class SnapshotTerms:
    """A slot's length, and how many queues and tables of each partition are written in it at most; the others have
    their turn in the next."""

    interval_ms: int
    queues_max: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the core the duty needs: whether operations flow, its own snapshot for an instant and an interval, who is
    told where each partition stands when a slot's work is done, and who is told of a failure."""

    is_ready: Callable[[], bool]
    describe: Callable[[int, int], ProcessSnapshot]
    on_slot: Callable[[list[Taken | None]], Awaitable[None]]
    on_failure: Callable[[str], None]


class SnapshotDuty:
    """Takes snapshots until closed. Nothing is taken when the interval is 0."""

    def __init__(self, store: RedisStore, terms: SnapshotTerms, around: Surroundings) -> None:
        self._store = store
        self._terms = terms
        self._around = around
        self._task: asyncio.Task[None] | None = None
        # How far the partitions' clock is ahead of the loop's.
        self._ahead_ms = 0.0
        self._described_ms = 0
        self._damaged = [0] * store.partitions

    def start(self) -> None:
        """Begin."""
        if self._terms.interval_ms:
            self._task = asyncio.create_task(self._run(), name="snapshots")

    async def close(self) -> None:
        """Stop, in the middle of a slot if need be: any core goes on where this one was."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def on_clock(self, now_ms: int) -> None:
        """The partitions' clock, as an answer told it."""
        self._ahead_ms = now_ms - self._loop_ms()

    def _loop_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._until_next_ms() / 1000)
            if self._around.is_ready():
                try:
                    await self.take()
                except Exception:
                    get_logger().exception("duty_failed", duty=NAME)
                    self._around.on_failure(NAME)

    def _until_next_ms(self) -> float:
        interval_ms = self._terms.interval_ms
        now_ms = self._loop_ms() + self._ahead_ms
        wait_ms = interval_ms - now_ms % interval_ms + interval_ms * random.uniform(0, _SPREAD)  # noqa: S311
        # The partitions' clock stands still when Redis's was set back: then no slot begins however often one asks.
        return max(wait_ms, interval_ms / 2)

    async def take(self) -> None:
        """The work of one slot, or what other cores have left of it."""
        partitions = range(self._store.partitions)
        # First: what is read of the log then has it.
        refused = await self._append_own()
        taken: list[Taken | None] = []
        for first in partitions[::PARTITIONS_AT_ONCE]:
            some = partitions[first : first + PARTITIONS_AT_ONCE]
            taken += await asyncio.gather(*(self._take_in(partition) for partition in some))
        if refused is not None or None in taken:
            self._around.on_failure(NAME)
        await self._around.on_slot(taken)

    async def _take_in(self, partition: int) -> Taken | None:
        """Where the partition stands; None when it could not be said."""
        terms, damaged = self._terms, 0
        taken: Taken | None = None
        for _ in range(STEPS_MAX):
            step = await self._store.take_snapshots(partition, terms.interval_ms, terms.queues_max)
            if isinstance(step, Refusal):
                get_logger().debug("duty_refused", duty=NAME, partition=partition, reason=step.reason.name)
                return None
            self.on_clock(step.now_ms)
            damaged += step.damaged
            taken = step
            if step.left is not Left.MORE:
                break
        self._note_damage(partition, damaged)
        return taken

    def _note_damage(self, partition: int, damaged: int) -> None:
        # Said when it changes: what is damaged now will be in the next slot too. No core sees all of it where several
        # share the work.
        if damaged > self._damaged[partition]:
            get_logger().warning("snapshots_damaged", partition=partition, queues=damaged)
            self._damaged[partition] = damaged

    async def _append_own(self) -> Refusal | None:
        now_ms = int(self._loop_ms() + self._ahead_ms)
        interval_ms = now_ms - self._described_ms if self._described_ms else 0
        refused = await self._store.append_process(self._around.describe(now_ms, interval_ms))
        if refused is None:
            self._described_ms = now_ms
        return refused
