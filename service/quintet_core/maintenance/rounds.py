"""When the duties are done: once every period each, in one task, so that what is due at once shares a batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Refusal

TICK_S = 1.0
_JITTER = 0.1

Work = Callable[[], Awaitable[Refusal | None]]
"""Does a duty once; the Refusal that stopped it, if any."""


@dataclass(slots=True, eq=False)
class Duty:
    """Something any core does again and again. A Refusal is quiet: it is tried again in its time."""

    name: str
    period_s: float
    work: Work
    next_at: float = 0.0


class Rounds:
    """Carries out duties while operations flow. `on_failure(name)` is told of each that was refused or failed."""

    def __init__(self, duties: list[Duty], is_ready: Callable[[], bool], on_failure: Callable[[str], None]) -> None:
        self._duties = duties
        # A duty of a shorter period than a tick is not done too seldom.
        self._tick_s = min((TICK_S, *(duty.period_s for duty in duties)))
        self._is_ready = is_ready
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="maintenance")

    async def close(self) -> None:
        """Stop, in the middle of a duty if need be: each is safe to leave and to take up anywhere."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            # Replicas started together drift apart, and share the work instead of doing it twice at once.
            await asyncio.sleep(self._tick_s * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311
            if self._is_ready():
                await self._do_due()

    async def _do_due(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [duty for duty in self._duties if duty.next_at <= now]
        for duty in due:
            duty.next_at = now + duty.period_s - self._tick_s / 2
        await asyncio.gather(*(self._do(duty) for duty in due))

    async def _do(self, duty: Duty) -> None:
        try:
            refused = await duty.work()
        except Exception:
            get_logger().exception("duty_failed", duty=duty.name)
            self._on_failure(duty.name)
            return
        if refused is not None:
            get_logger().debug("duty_refused", duty=duty.name, reason=refused.reason.name)
            self._on_failure(duty.name)


async def in_every_partition(partitions: int, work: Callable[[int], Awaitable[Refusal | None]]) -> Refusal | None:
    """The same in every partition at once; the first Refusal, if any."""
    for outcome in await asyncio.gather(*(work(partition) for partition in range(partitions))):
        if outcome is not None:
            return outcome
    return None


async def until_done(step: Callable[[], Awaitable[bool | Refusal]], steps_max: int) -> Refusal | None:
    """Repeat a bounded step while there is more, at most some times; the Refusal that stopped it, if any."""
    for _ in range(steps_max):
        more = await step()
        if isinstance(more, Refusal):
            return more
        if not more:
            break
    return None
