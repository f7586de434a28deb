"""The verbs of queues and jobs that are one atomic function each; dequeue, which may wait, is in `waiting`.

Arguments as in quintet.v1.queue_service. `done` gets the outcome or a Refusal, exactly once and never before the
method returns; a broken rule raises CallerError instead and `done` is never called.
"""

from __future__ import annotations

from collections.abc import Sequence

from quintet_core.domain.errors import CallerError, Reason, refusal
from quintet_core.domain.job import Job, JobState, NewJob, Placement
from quintet_core.domain.limits import Limits, check_id, check_span
from quintet_core.domain.outcomes import Acknowledged, Deleted, Done, Enqueued, Extended, JobPage, Released
from quintet_core.domain.queue import Queue, QueueCounts, QueueSettings
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.redis_store import RedisStore, Scope


class QueueOperations:
    """Verbs in the callback style."""

    def __init__(self, store: RedisStore, limit: Limits) -> None:
        self.store = store
        self.limits = limit

    def enqueue(
        self,
        namespace: str,
        queue: str,
        jobs: Sequence[NewJob],
        create_if_missing: bool,
        done: Done[Enqueued],
        order: Ordered | None = None,
    ) -> None:
        """Put jobs into a queue, all or none."""
        self.limits.check_namespace(namespace)
        self.limits.check_name(queue)
        self.limits.check_batch(jobs)
        self.store.enqueue(namespace, queue, jobs, create_if_missing, done, order)

    def enqueue_plain(
        self,
        namespace: str,
        queue: str,
        payload: bytes,
        content_type: str,
        rank: int,
        create_if_missing: bool,
        done: Done[int],
        order: Ordered | None = None,
    ) -> None:
        """Put one job of which nothing else is said; its id."""
        self.limits.check_namespace(namespace)
        self.limits.check_name(queue)
        self.limits.check_payload(payload)
        self.limits.check_label("content_type", content_type)
        self.store.enqueue_plain(namespace, queue, payload, content_type.encode(), rank, create_if_missing, done, order)

    def acknowledge(
        self,
        namespace: str,
        job_id: int,
        token: int | None,
        queue: str | None,
        done: Done[Acknowledged],
        order: Ordered | None = None,
    ) -> None:
        """End a leased job. `token` None: whichever lease holds it."""
        self.store.acknowledge(job_id, self._scope(namespace, job_id, queue), token, done, order)

    def release(
        self,
        namespace: str,
        job_id: int,
        token: int | None,
        queue: str | None,
        *,
        delay_ms: int | None,
        placement: Placement,
        failure_reason: str,
        undo_attempt: bool,
        done: Done[Released],
        order: Ordered | None = None,
    ) -> None:
        """Give a leased job back. `delay_ms` None: the queue's backoff."""
        if delay_ms is not None:
            check_span("delay_ms", delay_ms, self.limits.delay_ms_max)
        self.limits.check_failure_reason(failure_reason)
        self.store.release(
            job_id,
            self._scope(namespace, job_id, queue),
            token,
            delay_ms=delay_ms,
            placement=placement,
            failure_reason=failure_reason,
            undo_attempt=undo_attempt,
            done=done,
            order=order,
        )

    def extend(
        self,
        namespace: str,
        job_id: int,
        token: int | None,
        queue: str | None,
        lease_ms: int,
        done: Done[Extended],
        order: Ordered | None = None,
    ) -> None:
        """Move the deadline of a duration lease to lease_ms from now; 0: as long as it was taken for."""
        check_span("lease_ms", lease_ms, self.limits.lease_ms_max)
        self.store.extend(job_id, self._scope(namespace, job_id, queue), token, lease_ms, done, order)

    def delete(
        self, namespace: str, job_id: int, queue: str | None, done: Done[Deleted], order: Ordered | None = None
    ) -> None:
        """Remove a job in whatever state it is."""
        self.store.delete(job_id, self._scope(namespace, job_id, queue), done, order)

    def get_job(
        self,
        namespace: str,
        job_id: int,
        queue: str | None,
        with_payload: bool,
        done: Done[Job],
        order: Ordered | None = None,
    ) -> None:
        """A job as it stands."""
        self.store.get_job(job_id, self._scope(namespace, job_id, queue), with_payload, done, order)

    def peek(
        self,
        namespace: str,
        queue: str,
        state: JobState,
        jobs_max: int,
        done: Done[JobPage],
        order: Ordered | None = None,
    ) -> None:
        """The next jobs of a state, not leased. `jobs_max` 0 is 1."""
        check_span("jobs_max", jobs_max, self.limits.batch_jobs_max)
        self._check_queue(namespace, queue)
        self.store.list_jobs(namespace, queue, state, jobs_max or 1, None, True, done, order)

    def list_jobs(
        self,
        namespace: str,
        queue: str,
        state: JobState,
        page_size: int,
        cursor: tuple[bytes, bytes] | None,
        with_payload: bool,
        done: Done[JobPage],
        order: Ordered | None = None,
    ) -> None:
        """One page. `page_size` 0 is 100."""
        self._check_queue(namespace, queue)
        size = self.limits.page_size(page_size)
        self.store.list_jobs(namespace, queue, state, size, cursor, with_payload, done, order)

    def count(self, namespace: str, queue: str, done: Done[QueueCounts], order: Ordered | None = None) -> None:
        """Jobs by state."""
        self._check_queue(namespace, queue)
        self.store.count(namespace, queue, done, order)

    def create_queue(
        self, namespace: str, queue: str, settings: QueueSettings, done: Done[Queue], order: Ordered | None = None
    ) -> None:
        """Make a queue with settings."""
        self._check_queue(namespace, queue)
        self.limits.check_settings(queue, settings)
        self.store.create_queue(namespace, queue, settings, done, order)

    def update_queue(
        self, namespace: str, queue: str, settings: QueueSettings, done: Done[Queue], order: Ordered | None = None
    ) -> None:
        """Replace a queue's settings."""
        self._check_queue(namespace, queue)
        self.limits.check_settings(queue, settings)
        self.store.update_queue(namespace, queue, settings, done, order)

    def get_queue(self, namespace: str, queue: str, done: Done[Queue], order: Ordered | None = None) -> None:
        """A queue as it stands."""
        self._check_queue(namespace, queue)
        self.store.get_queue(namespace, queue, done, order)

    def pause(
        self,
        namespace: str,
        queue: str,
        direction: int,
        duration_ms: int,
        done: Done[Queue],
        order: Ordered | None = None,
    ) -> None:
        """Stop what goes in, out or both; `duration_ms` 0: until resumed."""
        self._check_queue(namespace, queue)
        check_span("duration_ms", duration_ms, self.limits.delay_ms_max)
        self.store.pause(namespace, queue, direction, duration_ms, done, order)

    def resume(self, namespace: str, queue: str, done: Done[Queue], order: Ordered | None = None) -> None:
        """End every pause of a queue."""
        self._check_queue(namespace, queue)
        self.store.resume(namespace, queue, done, order)

    def delete_queue(self, namespace: str, queue: str, done: Done[int], order: Ordered | None = None) -> None:
        """Remove a queue and its jobs; answers how many jobs it held."""
        self._check_queue(namespace, queue)
        self.store.delete_queue(namespace, queue, done, order)

    def _check_queue(self, namespace: str, queue: str) -> None:
        self.limits.check_namespace(namespace)
        self.limits.check_name(queue)

    def _scope(self, namespace: str, job_id: int, queue: str | None) -> Scope:
        self.limits.check_namespace(namespace)
        if queue is not None:
            self.limits.check_name(queue)
        if not check_id(job_id):
            raise CallerError(refusal(Reason.JOB_NOT_FOUND))
        return Scope.of(namespace, queue)
