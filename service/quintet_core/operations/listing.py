"""Pages of what every partition has some of: queues, tables."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from quintet_core.domain.errors import Refusal


class Named(Protocol):
    """Something that is listed by its name."""

    @property
    def name(self) -> str:
        """In any characters; ordered by its UTF-8 bytes."""


_N = TypeVar("_N", bound=Named)


async def one_page(
    partitions: int, size: int, read: Callable[[int], Awaitable[list[_N] | Refusal]]
) -> tuple[list[_N], str | None] | Refusal:
    """One page in the order of names (by UTF-8 bytes), and the last name when there is more. `read(partition)` gives
    the first `size` of a partition."""
    found: list[list[_N]] = []
    for page in await asyncio.gather(*(read(partition) for partition in range(partitions))):
        if isinstance(page, Refusal):
            return page
        found.append(page)
    merged = list(heapq.merge(*found, key=lambda each: each.name.encode()))
    is_more = len(merged) > size or any(len(page) == size for page in found)
    return merged[:size], merged[size - 1].name if is_more else None
