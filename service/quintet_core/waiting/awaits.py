"""Waits for a ready job that take none: whoever waits is told as soon as a queue it named has one.

All who wait for a queue share one look at its head, so that thousands cost as much as one: they are told at once, and
in addition to the dequeues that a new job wakes (waiting/dequeues.py). A look tells only those who were there before
it was sent; who came later is told by the next, so that what an owner did before it waits is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from quintet_core.domain.errors import Reason, Refusal, broken, exceeded, refusal
from quintet_core.domain.limits import Limits
from quintet_core.domain.outcomes import Awaited, Done
from quintet_core.storage.keys import name_key
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.redis_store import Best, RedisStore

# A queue that is waited for is looked at again this often: a notice may have been lost, and that somebody waits is
# noted in Redis for a while only.
REVIEW_S = 5.0


@dataclass(slots=True)
class Await:
    """What to wait for. `wait_ms` -1: without end; 0: look once."""

    namespace: str
    queues: list[str]
    wait_ms: int = 0
    allow_missing: bool = False


def _nobody(_: Awaited | Refusal) -> None:
    """Whoever asked has gone."""


class Awaiter:
    """One wait on its way. `done` comes exactly once, unless it is abandoned."""

    __slots__ = ("awaits", "done", "finished", "groups", "timer")

    def __init__(self, awaits: Awaits, done: Done[Awaited]) -> None:
        self.awaits = awaits
        self.done = done
        self.groups: list[_Group] = []
        self.finished = False
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self, why: Reason = Reason.CANCELLED) -> None:
        """Stop waiting: `done` gets a refusal."""
        self.awaits.end(self, refusal(why))

    def abandon(self) -> None:
        """Stop waiting without an answer."""
        self.done = _nobody
        self.awaits.end(self, refusal(Reason.CANCELLED))


class _Group:
    """Who waits for one queue, in the order of arrival, and how many looks had been sent when each came."""

    __slots__ = ("allow_missing", "awaiters", "key", "looking", "looks", "namespace", "queue", "stale")

    def __init__(self, namespace: str, queue: str, key: bytes, allow_missing: bool) -> None:
        self.namespace = namespace
        self.queue = queue
        self.key = key
        self.allow_missing = allow_missing
        self.awaiters: dict[Awaiter, int] = {}
        self.looks = 0
        self.looking = False
        # Something happened since the look that is on its way was sent.
        self.stale = False


class Awaits:
    """All waits of this replica that take nothing."""

    def __init__(self, store: RedisStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        # By name key and by whether the queue may be missing: who must be told of that does not look for who need not.
        self._groups: dict[tuple[bytes, bool], _Group] = {}
        self._reviewed: Iterator[tuple[bytes, bool]] = iter(())
        self._awaiting = 0
        self._closed: Refusal | None = None

    @property
    def awaiting(self) -> int:
        """Waits under way."""
        return self._awaiting

    # --- one wait

    def await_jobs(self, request: Await, done: Done[Awaited], order: Ordered | None = None) -> Awaiter:
        """Wait until one of the queues has a ready job. Refusals: QUEUE_NOT_FOUND. Raises CallerError."""
        self._check(request)
        awaiter = Awaiter(self, done)
        if not request.wait_ms:
            self._look_once(awaiter, request, order)
        elif self._closed is not None:
            self._loop.call_soon(self.end, awaiter, self._closed)
        elif self._awaiting >= self._limits.awaiting_max:
            self._loop.call_soon(self.end, awaiter, refusal(Reason.TOO_MANY_IN_FLIGHT))
        else:
            self._park(awaiter, request)
        return awaiter

    def _check(self, request: Await) -> None:
        self._limits.check_namespace(request.namespace)
        if not request.queues:
            raise broken("queues must not be empty", field="queues")
        if len(request.queues) > self._limits.queues_per_dequeue_max:
            raise exceeded("queues", self._limits.queues_per_dequeue_max, len(request.queues))
        for queue in request.queues:
            self._limits.check_name(queue)
        if not -1 <= request.wait_ms <= self._limits.wait_ms_max:
            raise broken(f"wait_ms must be from -1 to {self._limits.wait_ms_max}", field="wait_ms")

    def _look_once(self, awaiter: Awaiter, request: Await, order: Ordered | None) -> None:
        """For who does not wait: a look of its own, in its owner's order."""
        partitions: dict[int, list[str]] = {}
        for queue in dict.fromkeys(request.queues):
            partitions.setdefault(self._store.partition_of(request.namespace, queue), []).append(queue)
        outcomes: list[Best | Refusal | None] = []

        def looked(outcome: Best | Refusal | None) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(partitions):
                refused = next((each for each in outcomes if isinstance(each, Refusal)), None)
                self.end(awaiter, refused or Awaited(any(outcomes)))

        for queues in partitions.values():
            self._store.best(request.namespace, queues, request.allow_missing, False, looked, order)

    def _park(self, awaiter: Awaiter, request: Await) -> None:
        self._awaiting += 1
        if request.wait_ms > 0:
            awaiter.timer = self._loop.call_later(request.wait_ms / 1000, self.end, awaiter, Awaited(False))
        for queue in dict.fromkeys(request.queues):
            key = name_key(request.namespace, queue)
            group = self._groups.get((key, request.allow_missing))
            if group is None:
                group = _Group(request.namespace, queue, key, request.allow_missing)
                self._groups[key, request.allow_missing] = group
            group.awaiters[awaiter] = group.looks
            awaiter.groups.append(group)
            self._look(group)

    def end(self, awaiter: Awaiter, answer: Awaited | Refusal) -> None:
        """End a wait with an answer."""
        if awaiter.finished:
            return
        awaiter.finished = True
        if awaiter.timer is not None:
            awaiter.timer.cancel()
        if awaiter.groups:
            self._awaiting -= 1
            for group in awaiter.groups:
                del group.awaiters[awaiter]
                self._drop_if_empty(group)
        awaiter.done(answer)

    def _drop_if_empty(self, group: _Group) -> None:
        # One that is looking stays: whoever comes next shares what is under way.
        if not group.awaiters and not group.looking:
            self._groups.pop((group.key, group.allow_missing), None)

    # --- one look

    def _look(self, group: _Group) -> None:
        if group.looking:
            group.stale = True
            return
        group.looking, group.stale = True, False
        group.looks += 1
        look = group.looks
        self._store.best(
            group.namespace,
            [group.queue],
            group.allow_missing,
            True,
            lambda outcome: self._looked(group, look, outcome),
        )

    def _looked(self, group: _Group, look: int, outcome: Best | Refusal | None) -> None:
        group.looking = False
        if outcome is not None and not _is_away(outcome):
            answer = outcome if isinstance(outcome, Refusal) else Awaited(True)
            for awaiter in [each for each, came in group.awaiters.items() if came < look]:
                self.end(awaiter, answer)
        # What Redis does not answer now it is asked again when it is back, or at the next review.
        if group.stale and group.awaiters:
            self._look(group)
        else:
            self._drop_if_empty(group)

    # --- waking

    def on_woken(self, key: bytes, _: int) -> None:
        """A queue has ready jobs, or was deleted."""
        for allow_missing in (True, False):
            if group := self._groups.get((key, allow_missing)):
                self._look(group)

    def review_all(self) -> None:
        """Notices may have been lost: every queue is looked at."""
        for group in list(self._groups.values()):
            self._look(group)

    def review_some(self, period_s: float) -> None:
        """Called every `period_s`: looks at some queues, so that each has its turn every REVIEW_S."""
        share = max(1, int(len(self._groups) * period_s / REVIEW_S) + 1)
        for _ in range(share):
            key = next(self._reviewed, None)
            if key is None:
                self._reviewed = iter(list(self._groups))
                return
            if group := self._groups.get(key):
                self._look(group)

    def close(self, why: Refusal) -> None:
        """Refuse every wait, and all to come."""
        self._closed = why
        for group in list(self._groups.values()):
            for awaiter in list(group.awaiters):
                self.end(awaiter, why)


def _is_away(outcome: Best | Refusal) -> bool:
    """Nothing was taken, so nothing is in doubt: a wait outlives the absence of Redis."""
    return isinstance(outcome, Refusal) and outcome.reason is Reason.UNAVAILABLE
