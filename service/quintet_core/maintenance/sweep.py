"""What nobody can reach any more: jobs of deleted queues, old deduplication keys, waits and sessions."""

from __future__ import annotations

import asyncio

from quintet_core.domain.errors import Refusal
from quintet_core.storage.redis_store import RedisStore

PERIOD_S = 1.0
# Partitions without leftovers are looked at only every so many rounds.
IDLE_ROUNDS = 10
STEPS_MAX = 20


class Sweep:
    """Removes leftovers in bounded steps, each second where there are some, else seldom."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._idle = [0] * store.partitions

    def expect(self, partition: int) -> None:
        """There is something to remove: look at it in the next round."""
        self._idle[partition] = 0

    async def sweep(self) -> Refusal | None:
        """One round."""
        due = [partition for partition in range(self._store.partitions) if self._is_due(partition)]
        outcomes = await asyncio.gather(*(self._sweep_in(partition) for partition in due))
        return next((outcome for outcome in outcomes if outcome is not None), None)

    def _is_due(self, partition: int) -> bool:
        self._idle[partition] -= 1
        return self._idle[partition] < 0

    async def _sweep_in(self, partition: int) -> Refusal | None:
        for _ in range(STEPS_MAX):
            more = await self._store.sweep(partition)
            if isinstance(more, Refusal):
                return more
            if not more:
                self._idle[partition] = IDLE_ROUNDS
                break
        return None
