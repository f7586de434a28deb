"""Verbs that take more than one call of the store: in bounded steps, one after the other.

Each answers its result or the Refusal that stopped it; what earlier steps did stays done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quintet_core.domain.errors import Refusal
from quintet_core.domain.job import JobState
from quintet_core.domain.limits import SEQUENCE_MAX, Limits, check_id, check_span
from quintet_core.domain.queue import Queue, QueueCounts
from quintet_core.operations.listing import one_page
from quintet_core.storage.link import into
from quintet_core.storage.redis_store import RedisStore, Scope

PURGED_STATES = (JobState.READY, JobState.DELAYED, JobState.DEAD)


class BulkOperations:
    """Verbs in the awaiting style."""

    def __init__(self, store: RedisStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    async def purge(self, namespace: str, queue: str, states: Sequence[JobState]) -> int | Refusal:
        """Delete the jobs of some states: at most as many of each as there were when it began. How many went."""
        self._limits.check_namespace(namespace)
        self._limits.check_name(queue)
        counted = await self._count(namespace, queue)
        if isinstance(counted, Refusal):
            return counted
        purged = 0
        for state in states or PURGED_STATES:
            left = getattr(counted, state.name.lower())
            while left > 0:
                step = await self._store.purge_step(namespace, queue, state)
                if isinstance(step, Refusal):
                    return step
                if not step:
                    break
                purged += step
                left -= step
        return purged

    async def _count(self, namespace: str, queue: str) -> QueueCounts | Refusal:
        future: asyncio.Future[QueueCounts | Refusal] = asyncio.get_running_loop().create_future()
        self._store.count(namespace, queue, into(future))
        return await future

    async def redrive(
        self,
        namespace: str,
        queue: str,
        state: JobState,
        ids: Sequence[int],
        reason_contains: str,
        jobs_max: int,
        reset_attempts: bool,
    ) -> int | Refusal:
        """Make dead or delayed jobs ready: those of `ids`, or all whose failure reason contains a text. How many."""
        self._limits.check_namespace(namespace)
        self._limits.check_name(queue)
        check_span("jobs_max", jobs_max, SEQUENCE_MAX)
        if ids:
            check_span("number of ids", len(ids), self._limits.redrive_ids_max)
            return await self._redrive_ids(Scope.of(namespace, queue), state, ids, jobs_max, reset_attempts)
        left, redriven, cursor = jobs_max or SEQUENCE_MAX, 0, None
        while left > 0:
            step = await self._store.redrive_step(
                namespace, queue, state, reason_contains, left, reset_attempts, cursor
            )
            if isinstance(step, Refusal):
                return step
            count, cursor = step
            redriven += count
            left -= count
            if cursor is None:
                break
        return redriven

    async def _redrive_ids(
        self, scope: Scope, state: JobState, ids: Sequence[int], jobs_max: int, reset_attempts: bool
    ) -> int | Refusal:
        redriven = 0
        for job_id in ids:
            if jobs_max and redriven == jobs_max:
                break
            if not check_id(job_id):
                continue
            answer = await self._store.redrive_job(job_id, scope, state, reset_attempts)
            if isinstance(answer, Refusal):
                return answer
            redriven += answer
        return redriven

    async def list_queues(
        self, namespace: str, prefix: str, after: str | None, page_size: int
    ) -> tuple[list[Queue], str | None] | Refusal:
        """One page of queues in the order of their names (by UTF-8 bytes), and the last name when there is more."""
        self._limits.check_namespace(namespace)
        self._limits.check_name(prefix, "prefix")
        size, store = self._limits.page_size(page_size), self._store
        return await one_page(
            store.partitions, size, lambda partition: store.list_queues(partition, namespace, prefix, after, size)
        )
