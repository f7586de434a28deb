"""What holds for all queues and tables of a namespace: told and changed, in every partition."""

from __future__ import annotations

import asyncio

from quintet_core.domain.errors import Refusal
from quintet_core.domain.limits import Limits
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.storage.redis_store import RedisStore

# The last one to learn of a change tells what holds: it holds in the others then.
_TELLER = 0


class NamespaceOperations:
    """The settings of namespaces."""

    def __init__(self, store: RedisStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    async def get(self, namespace: str) -> NamespaceSettings | Refusal:
        """What holds; of a namespace of which nothing was said, what holds without."""
        self._limits.check_namespace(namespace)
        return await self._store.get_namespace(_TELLER, namespace)

    async def update(self, namespace: str, settings: NamespaceSettings) -> Refusal | None:
        """Replace it. Refusal: LIMIT_EXCEEDED where it would be one namespace more than may have settings."""
        self._limits.check_namespace(namespace)
        others = (number for number in range(self._store.partitions) if number != _TELLER)
        for answer in await asyncio.gather(*(self._update_in(number, namespace, settings) for number in others)):
            if isinstance(answer, Refusal):
                return answer
        return await self._update_in(_TELLER, namespace, settings)

    async def _update_in(self, partition: int, namespace: str, settings: NamespaceSettings) -> Refusal | None:
        return await self._store.update_namespace(partition, namespace, settings, self._limits.namespaces_max)
