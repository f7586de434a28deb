"""Waiting. Before trying again: doubling, bounded, with jitter so that replicas do not come all at once."""

from __future__ import annotations

import asyncio
import random

SECONDS_MIN = 0.02
SECONDS_MAX = 1.0


class Backoff:
    """Seconds to wait, from 20 ms doubling to one second."""

    def __init__(self) -> None:
        self._seconds = SECONDS_MIN

    def reset(self) -> None:
        """It worked: begin anew."""
        self._seconds = SECONDS_MIN

    def next_s(self) -> float:
        """What to wait now."""
        seconds, self._seconds = self._seconds, min(self._seconds * 2, SECONDS_MAX)
        return seconds * random.uniform(0.75, 1.0)  # noqa: S311 - spreads load, hides nothing


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Until the event or for some seconds, whichever is first."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
