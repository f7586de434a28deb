"""Dead letters: dead jobs of queues that name a dead-letter queue move there.

The two queues may live in different partitions, so this is two atomic steps: put (with a deduplication key made of the
job's id and of the token of its last lease, so that a core that dies in between puts it only once), then remove.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.job import DeadLetter, NewJob
from quintet_core.domain.limits import DAY_MS
from quintet_core.domain.outcomes import Enqueued
from quintet_core.maintenance.rounds import in_every_partition
from quintet_core.storage.link import into
from quintet_core.storage.redis_store import RedisStore

PERIOD_S = 1.0
JOBS_PER_STEP = 20
STEPS_MAX = 50
SOURCE = "quintet-dead-letter-source"
REASON = "quintet-dead-letter-reason"


class DeadLetters:
    """Moves dead jobs. `on_moved` is told of each."""

    def __init__(self, store: RedisStore, on_moved: Callable[[], None]) -> None:
        self._store = store
        self._on_moved = on_moved

    async def move(self) -> Refusal | None:
        """In every partition, until nothing is left that can be moved."""
        return await in_every_partition(self._store.partitions, self._move_in)

    async def _move_in(self, partition: int) -> Refusal | None:
        # Letters that are refused (their queue is full, say) stay, and must not hold up those behind them.
        refused: list[Refusal] = []
        for _ in range(STEPS_MAX):
            found = await self._store.letters(partition, len(refused), JOBS_PER_STEP)
            if isinstance(found, Refusal):
                return found
            outcomes = [await self._move_one(letter) for letter in found]
            refused += (outcome for outcome in outcomes if outcome is not None)
            if not found:
                break
        return refused[0] if refused else None

    async def _move_one(self, letter: DeadLetter) -> Refusal | None:
        job, to = letter.job, letter.to
        put = await self._put(letter)
        if isinstance(put, Refusal):
            get_logger().warning("dead_letter_refused", job=job.id, reason=put.reason.name)
            return put
        refused = await self._store.dead_letter(job, to)
        if refused is not None and refused.reason not in (Reason.JOB_NOT_FOUND, Reason.NOT_LEASED):
            return refused
        # Otherwise another core was faster, or somebody redrove or deleted the job at the last moment.
        if refused is None:
            self._on_moved()
        return None

    async def _put(self, letter: DeadLetter) -> Enqueued | Refusal:
        future: asyncio.Future[Enqueued | Refusal] = asyncio.get_running_loop().create_future()
        self._store.enqueue(letter.job.namespace, letter.to, [_copy(letter)], True, into(future))
        return await future


def _copy(letter: DeadLetter) -> NewJob:
    job = letter.job
    return NewJob(
        job.payload,
        job.content_type,
        job.rank,
        deduplication_key=f"dead-letter:{job.id}:{letter.token}",
        deduplication_window_ms=DAY_MS,
        attributes={**job.attributes, SOURCE: job.queue, REASON: job.failure_reason},
    )
