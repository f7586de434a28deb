"""The event log's length: a tail when nobody needs it, what consumers need otherwise, a cap always."""

from __future__ import annotations

from collections.abc import Callable

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Refusal
from quintet_core.maintenance.rounds import in_every_partition
from quintet_core.storage.redis_store import RedisStore

PERIOD_S = 1.0


class EventTrim:
    """Cuts the log of every partition. `on_dropped` is told when the cap cut what a consumer still wanted."""

    def __init__(self, store: RedisStore, tail: int, cap: int, on_dropped: Callable[[], None]) -> None:
        self._store = store
        self._tail = tail
        self._cap = cap
        self._on_dropped = on_dropped
        self._first: dict[int, int] = {}

    async def trim(self) -> Refusal | None:
        """In every partition."""
        return await in_every_partition(self._store.partitions, self._trim_in)

    async def _trim_in(self, partition: int) -> Refusal | None:
        outcome = await self._store.trim_events(partition, self._tail, self._cap)
        if isinstance(outcome, Refusal):
            return outcome
        first, last, capped = outcome
        if capped and first > self._first.get(partition, 0):
            get_logger().warning("events_dropped", partition=partition, first_offset=first, last_offset=last)
            self._on_dropped()
        self._first[partition] = first
        return None
