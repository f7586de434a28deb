"""Sessions whose time is over: their leases go back, whichever core held them."""

from __future__ import annotations

from quintet_core.domain.errors import Refusal
from quintet_core.maintenance.rounds import in_every_partition, until_done
from quintet_core.storage.redis_store import RedisStore

PERIOD_S = 1.0
STEPS_MAX = 1000


class LapsedSessions:
    """Releases what lapsed sessions hold."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def release(self) -> Refusal | None:
        """In every partition, until nothing is left."""
        return await in_every_partition(self._store.partitions, self._release_in)

    async def _release_in(self, partition: int) -> Refusal | None:
        return await until_done(lambda: self._store.lapse(partition), STEPS_MAX)
