"""Dequeues, at once or parked until there is a job.

A dequeue that finds nothing asks, in the same atomic function, to be told of new jobs, and is parked in this replica.
What makes a job ready says so, through the answer of its own call when this replica made it, else over Redis's
publish/subscribe; then as many waiters of the queue as it has ready jobs try again, in the order of their arrival. A
waiter keeps its place until it is served. Nothing here holds a job: a try takes one in Redis or does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from quintet_core.domain.errors import Reason, Refusal, broken, exceeded, refusal
from quintet_core.domain.job import LeasedRecord, LeaseTerms, Placement
from quintet_core.domain.limits import Limits, check_span
from quintet_core.domain.outcomes import Dequeued, Done
from quintet_core.storage import records
from quintet_core.storage.keys import name_key
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.redis_store import Best, RedisStore, Scope, Worse

# Claims across partitions that found the best job gone, after which a worse one is taken.
CLAIMS_MAX = 5
# Waiters that are tried at once because one before them was served.
TRIES_AT_ONCE_MAX = 64
# A parked queue is looked at again this often, and the notice in Redis that somebody waits is renewed with it.
REVIEW_S = 5.0


@dataclass(slots=True)
class Dequeue:
    """What to dequeue. `wait_ms` -1: without end."""

    namespace: str
    queues: list[str]
    terms: LeaseTerms
    jobs_max: int = 1
    wait_ms: int = 0
    allow_missing: bool = False
    # It keeps the rules; who asks the same again need not be checked again.
    checked: bool = False


def _nobody(_: Dequeued | Refusal) -> None:
    """Whoever asked has gone."""


@dataclass(slots=True, eq=False)
class Handle:
    """One dequeue on its way. `done` comes exactly once, unless it is abandoned."""

    dequeues: Dequeues
    request: Dequeue
    done: Done[Dequeued]
    order: Ordered | None
    keys: list[bytes]
    # Queues by partition; one entry but for dequeues across partitions.
    groups: list[list[str]]
    trying: bool = False
    again: bool = False
    parked: bool = False
    untried: bool = False
    # It found nothing once: whoever comes later must not be faster.
    waited: bool = False
    finished: bool = False
    abandoned: bool = False
    # What to answer instead of trying again.
    ending: Refusal | Dequeued | None = None
    timer: asyncio.TimerHandle | None = None
    claims: int = 0

    def cancel(self, why: Reason = Reason.CANCELLED) -> None:
        """Stop waiting: `done` gets a refusal, or the jobs when some are being taken right now."""
        self.dequeues.end(self, refusal(why))

    def abandon(self) -> None:
        """Stop waiting without an answer; jobs that are being taken right now go back."""
        self.abandoned = True
        self.done = _nobody
        self.dequeues.end(self, refusal(Reason.CANCELLED))


class Dequeues:
    """All dequeues of this replica."""

    def __init__(self, store: RedisStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        # Waiters of each queue (by name key) in the order of arrival.
        self._waiters: dict[bytes, dict[Handle, None]] = {}
        self._reviewed: Iterator[bytes] = iter(())
        self._parked = 0
        self._closed: Refusal | None = None

    @property
    def parked(self) -> int:
        """Dequeues that wait."""
        return self._parked

    # --- one dequeue

    def dequeue(self, request: Dequeue, done: Done[Dequeued], order: Ordered | None = None) -> Handle:
        """Take the best jobs, waiting for the first when asked to. Raises CallerError."""
        self._check(request)
        if len(request.queues) == 1:
            keys, groups = [name_key(request.namespace, request.queues[0])], [request.queues]
        else:
            keys, groups = self._group(request)
        handle = Handle(self, request, done, order, keys, groups)
        if request.wait_ms and self._closed is not None:
            self._loop.call_soon(self._finish, handle, self._closed)
        elif not request.wait_ms:
            self._try(handle)
        elif self._parked >= self._limits.parked_max:
            self._loop.call_soon(self._finish, handle, refusal(Reason.TOO_MANY_IN_FLIGHT))
        else:
            self._park(handle)
        return handle

    def take(self, request: Dequeue, done: Done[Dequeued], order: Ordered | None = None) -> None:
        """Take the best jobs there are now; nobody can cancel it. Raises CallerError."""
        if len(request.queues) != 1:
            self.dequeue(request, done, order)
            return
        self._check(request)
        self._store.dequeue(
            request.namespace,
            request.queues,
            request.jobs_max,
            request.terms,
            allow_missing=request.allow_missing,
            await_jobs=False,
            done=done,  # type: ignore[arg-type]  # Worse answers a bound, and there is none.
            order=order,
        )

    def _check(self, request: Dequeue) -> None:
        if request.checked:
            return
        self._limits.check_namespace(request.namespace)
        if not request.queues:
            if request.wait_ms != -1 or not request.allow_missing:
                raise broken("queues must not be empty", field="queues")
        elif len(request.queues) > self._limits.queues_per_dequeue_max:
            raise exceeded("queues", self._limits.queues_per_dequeue_max, len(request.queues))
        for queue in request.queues:
            self._limits.check_name(queue)
        if request.jobs_max != 1:
            check_span("jobs_max", request.jobs_max, self._limits.batch_jobs_max)
            request.jobs_max = request.jobs_max or 1
        if request.wait_ms and not -1 <= request.wait_ms <= self._limits.wait_ms_max:
            raise broken(f"wait_ms must be from -1 to {self._limits.wait_ms_max}", field="wait_ms")
        if not request.terms.session:
            check_span("lease_ms", request.terms.lease_ms, self._limits.lease_ms_max)
            self._limits.check_label("worker", request.terms.worker)
        request.checked = True

    def _group(self, request: Dequeue) -> tuple[list[bytes], list[list[str]]]:
        names = list(dict.fromkeys(request.queues))
        groups: dict[int, list[str]] = {}
        for name in names:
            groups.setdefault(self._store.partition_of(request.namespace, name), []).append(name)
        return [name_key(request.namespace, name) for name in names], list(groups.values())

    def _park(self, handle: Handle) -> None:
        handle.parked = True
        self._parked += 1
        behind = 0
        for key in handle.keys:
            waiters = self._waiters.setdefault(key, {})
            behind += bool(waiters) and not _all_fresh(waiters)
            waiters[handle] = None
        if handle.request.wait_ms > 0:
            handle.timer = self._loop.call_later(handle.request.wait_ms / 1000, self.end, handle, Dequeued([]))
        if not handle.keys:
            return
        if behind == len(handle.keys):
            # Whoever is before it found nothing, or has not been tried: to try now would be to overtake.
            handle.untried = True
        else:
            self._try(handle)

    def end(self, handle: Handle, answer: Refusal | Dequeued) -> None:
        """End a dequeue with an answer, unless it is taking jobs right now: then with these, if there are any."""
        if handle.finished:
            return
        if handle.trying:
            handle.ending = answer
        else:
            self._finish(handle, answer)

    def _finish(self, handle: Handle, answer: Refusal | Dequeued, pass_on: bool = False) -> None:
        """`pass_on`: it may have been woken for a job that it did not take."""
        if handle.finished:
            return
        handle.finished = True
        if handle.timer is not None:
            handle.timer.cancel()
        if handle.parked:
            self._unpark(handle, pass_on, answer)
        if handle.abandoned and isinstance(answer, Dequeued):
            self.give_back(handle.request, answer.jobs, handle.order)
        handle.done(answer)

    def _unpark(self, handle: Handle, pass_on: bool, answer: Refusal | Dequeued) -> None:
        handle.parked = False
        self._parked -= 1
        # While Redis is away nobody else is tried, or refused for it: all will be tried when it is back.
        lost = isinstance(answer, Refusal) and answer.reason is Reason.UNAVAILABLE
        away = lost or self._store.pipeline.refusing is not None
        for key in handle.keys:
            waiters = self._waiters[key]
            del waiters[handle]
            if not waiters:
                del self._waiters[key]
            elif not away:
                self._make_way(waiters, pass_on)

    def _make_way(self, waiters: dict[Handle, None], pass_on: bool) -> None:
        """Somebody leaves a queue: whoever was not tried because of it is tried now, and when it was woken for a job
        that it did not take (`pass_on`), the next one is."""
        if pass_on:
            self._try(next(iter(waiters)))
        tried = 0
        for waiter in waiters:
            if waiter.untried and tried < TRIES_AT_ONCE_MAX:
                self._try(waiter)
                tried += 1
            elif not waiter.trying:
                return

    def give_back(self, request: Dequeue, jobs: list[LeasedRecord], order: Ordered | None) -> None:
        """Release jobs that nobody can be told of, as if they had never been handed out."""
        for job in jobs:
            self._store.release(
                job.id,
                Scope.of(request.namespace, None),
                records.token_of_run(job.run),
                delay_ms=0,
                placement=Placement.ORIGINAL,
                failure_reason="",
                undo_attempt=True,
                done=_ignore,
                order=order,
            )

    # --- one try

    def _try(self, handle: Handle) -> None:
        if handle.trying:
            handle.again = True
            return
        handle.trying, handle.again, handle.untried = True, False, False
        request = handle.request
        if len(handle.groups) == 1:
            self._store.dequeue(
                request.namespace,
                handle.groups[0],
                request.jobs_max,
                request.terms,
                allow_missing=request.allow_missing,
                await_jobs=handle.parked,
                done=lambda outcome: self._tried(handle, outcome),
                order=handle.order,
            )
        elif not handle.groups:
            self._loop.call_soon(self._tried, handle, Dequeued([]))
        else:
            handle.claims = 0
            self._look(handle)

    def _tried(self, handle: Handle, outcome: Dequeued | Worse | Refusal) -> None:
        handle.trying = False
        if isinstance(outcome, Refusal):
            self._finish(handle, outcome, pass_on=True)
        elif isinstance(outcome, Dequeued) and outcome.jobs:
            # Woken for a job of one queue, it may have found a better one in another.
            self._finish(handle, outcome, pass_on=handle.again or len(handle.keys) > 1)
        elif handle.ending is not None:
            self._finish(handle, handle.ending, pass_on=handle.again)
        elif not handle.parked:
            self._finish(handle, Dequeued([]))
        elif handle.again:
            self._try(handle)
        else:
            handle.waited = True

    # --- across partitions: look at the heads of all, claim the best, look again when it has gone

    def _look(self, handle: Handle) -> None:
        request, outcomes = handle.request, dict[int, Best | Refusal | None]()

        def collector(index: int) -> Callable[[Best | Refusal | None], None]:
            def done(outcome: Best | Refusal | None) -> None:
                outcomes[index] = outcome
                if len(outcomes) == len(handle.groups):
                    self._looked(handle, outcomes)

            return done

        for index, queues in enumerate(handle.groups):
            self._store.best(
                request.namespace, queues, request.allow_missing, handle.parked, collector(index), handle.order
            )

    def _looked(self, handle: Handle, outcomes: dict[int, Best | Refusal | None]) -> None:
        heads = []
        for index, outcome in outcomes.items():
            if isinstance(outcome, Refusal):
                self._tried(handle, outcome)
                return
            if outcome is not None:
                heads.append((outcome.place[:8], index))
        if not heads or handle.ending is not None:
            self._tried(handle, Dequeued([]))
            return
        heads.sort()
        handle.claims += 1
        # Jobs of another partition's head's rank may be older than ours, but no order between partitions is promised.
        others = heads[1][0] + b"\xff" * 8 if len(heads) > 1 else b""
        last = handle.claims >= CLAIMS_MAX
        self._claim(handle, handle.groups[heads[0][1]], b"" if last else others)

    def _claim(self, handle: Handle, queues: list[str], bound: bytes) -> None:
        request = handle.request

        def done(outcome: Dequeued | Worse | Refusal) -> None:
            gone = isinstance(outcome, Worse) or (isinstance(outcome, Dequeued) and not outcome.jobs)
            if gone and handle.claims < CLAIMS_MAX and handle.ending is None:
                self._look(handle)
            elif gone and handle.parked:
                # There were jobs a moment ago: stay parked, and look once more.
                handle.again = True
                self._tried(handle, Dequeued([]))
            else:
                self._tried(handle, outcome)

        self._store.dequeue(
            request.namespace,
            queues,
            request.jobs_max,
            request.terms,
            allow_missing=request.allow_missing,
            await_jobs=False,
            done=done,
            bound=bound,
            order=handle.order,
        )

    # --- waking

    def on_woken(self, key: bytes, ready: int) -> None:
        """A queue has this many ready jobs, or was deleted (0): its first waiters try again."""
        waiters = self._waiters.get(key)
        if waiters is None:
            return
        for handle in list(islice(waiters, ready or None)):
            self._try(handle)

    def review_all(self) -> None:
        """Notices may have been lost: everyone tries again."""
        for waiters in list(self._waiters.values()):
            for handle in list(waiters):
                self._try(handle)

    def review_some(self, period_s: float) -> None:
        """Called every `period_s`: tries the first waiter of some queues, so that each has its turn every REVIEW_S."""
        share = max(1, int(len(self._waiters) * period_s / REVIEW_S) + 1)
        for _ in range(share):
            key = next(self._reviewed, None)
            if key is None:
                self._reviewed = iter(list(self._waiters))
                return
            if waiters := self._waiters.get(key):
                self._try(next(iter(waiters)))

    def close(self, why: Refusal) -> None:
        """Refuse every wait, and all to come."""
        self._closed = why
        for waiters in list(self._waiters.values()):
            for handle in list(waiters):
                self.end(handle, why)


def _all_fresh(waiters: dict[Handle, None]) -> bool:
    """Whether all are being tried for the first time: tries leave in the order of arrival, so to try behind them is not
    to overtake. Behind one that has found nothing before it would be: a job may come between its next try and ours."""
    first, last = next(iter(waiters)), next(reversed(waiters))
    return first.trying and last.trying and not first.waited


def _ignore(_: object) -> None:
    """Whatever came of it: the lease ends with its owner or its deadline."""
