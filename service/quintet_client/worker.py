"""Workers: a loop in the caller's hands (`work`), or a handler called for each job (`Worker`)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from quintet_client.errors import JobNotFoundError, LeaseError, QuintetError, RetryableError
from quintet_client.job import Job
from quintet_client.job_calls import BATCH_JOBS_MAX, JobCalls
from quintet_client.leased_job import LeasedJob

LEASE_MS = 30_000
GRACE_S = 30.0
_WAIT_MS = 60_000
_PAUSE_S = 0.25

T = TypeVar("T")
Handler = Callable[[LeasedJob], Awaitable[object]]

_log = logging.getLogger(__name__)


class _Source:
    """Fetches jobs of some queues until told to stop, over every loss of the connection."""

    def __init__(self, calls: JobCalls, queues: Sequence[str], lease_ms: int, stop: asyncio.Event) -> None:
        if not queues:
            raise ValueError("name at least one queue")
        if lease_ms < 1:
            raise ValueError("lease_ms must be at least 1: a worker extends its leases and must know their length")
        self._calls = calls
        self._queues = queues
        self._lease_ms = lease_ms
        self._stop = stop

    async def fetch(self, jobs_max: int) -> list[LeasedJob]:
        """Waits for one to `jobs_max` jobs. An empty list: told to stop."""
        while not self._stop.is_set():
            try:
                jobs = await _unless(self._stop, self._dequeue(min(jobs_max, BATCH_JOBS_MAX)))
            except RetryableError as error:
                _log.info("no jobs for now: %s", error)
                await _unless(self._stop, asyncio.sleep(_PAUSE_S))
                continue
            if jobs:
                return [LeasedJob(self._calls, job, self._lease_ms) for job in jobs]
        return []

    async def _dequeue(self, jobs_max: int) -> list[Job]:
        return await self._calls.dequeue(*self._queues, jobs_max=jobs_max, wait_ms=_WAIT_MS, lease_ms=self._lease_ms)


async def _unless(stop: asyncio.Event, awaitable: Coroutine[Any, Any, T]) -> T | None:
    """The result of `awaitable`, or None when `stop` is set first; it is then cancelled and its end awaited."""
    task = asyncio.ensure_future(awaitable)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.wait({task, stopped})


async def work(
    calls: JobCalls, queues: Sequence[str], *, jobs_max: int, lease_ms: int, stop: asyncio.Event
) -> AsyncIterator[LeasedJob]:
    """The loop behind `Client.work`."""
    source = _Source(calls, queues, lease_ms, stop)
    ahead: deque[LeasedJob] = deque()
    in_hand: LeasedJob | None = None
    try:
        while not stop.is_set():
            ahead.extend(await source.fetch(jobs_max) if not ahead else ())
            while ahead and not stop.is_set():
                in_hand = ahead.popleft()
                if not in_hand.lost:
                    yield in_hand
                    await _acknowledge(in_hand)
                in_hand = None
    finally:
        if in_hand is not None:
            await in_hand.give_back(failure_reason="the worker's loop ended within the job")
        for job in ahead:
            await job.give_back(failure_reason="", undo_attempt=True)


async def _acknowledge(job: LeasedJob) -> None:
    """The loop has moved on: the job is done. A lease that was lost meanwhile is the next worker's affair."""
    if job.settled:
        return
    try:
        await job.acknowledge()
    except (LeaseError, JobNotFoundError, RetryableError) as error:
        _log.warning("job %d was worked on but not acknowledged: %s", job.id, error)


class Worker:
    """Calls `handler` for each job of `queues`, up to `concurrency` at a time; see `Client.run_worker`."""

    def __init__(
        self,
        calls: JobCalls,
        queues: Sequence[str],
        handler: Handler,
        *,
        concurrency: int = 10,
        lease_ms: int = LEASE_MS,
        grace_s: float = GRACE_S,
        stop: asyncio.Event | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._stop = stop or asyncio.Event()
        self._source = _Source(calls, queues, lease_ms, self._stop)
        self._handler = handler
        self._concurrency = concurrency
        self._grace_s = grace_s
        self._running: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """No more jobs are taken; `run` returns when those in hand are done, or the grace is over."""
        self._stop.set()

    async def run(self) -> None:
        """Works until stopped. Cancelled, it cancels the handlers, which gives their jobs back."""
        try:
            while not self._stop.is_set():
                await self._take()
            await self._finish(self._grace_s)
        finally:
            await self._finish(0)

    async def _take(self) -> None:
        free = self._concurrency - len(self._running)
        if not free:
            await _unless(self._stop, asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED))
            return
        for job in await self._source.fetch(free):
            task = asyncio.create_task(self._handle(job), name=f"quintet-job-{job.id}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _handle(self, job: LeasedJob) -> None:
        try:
            async with job:
                await self._handler(job)
        except QuintetError as error:
            _log.warning("job %d was not settled: %s", job.id, error)
        except Exception:
            _log.exception("job %d failed and was given back", job.id)

    async def _finish(self, grace_s: float) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=grace_s)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
