"""What can be done with jobs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial

from quintet.v1 import queue_service_pb2 as wire
from quintet.v1.session_service_pb2 import SessionResult

from quintet_client.calls import Calls, settle
from quintet_client.errors import error_of_failure
from quintet_client.job import Job, JobState, NewJob, Placement
from quintet_client.queue import QueueCounts

BATCH_JOBS_MAX = 100
BATCH_BYTES_MAX = 8 * 1024 * 1024
BATCHES_UNDER_WAY_MAX = 8


class JobCalls(Calls):
    """The verbs of jobs. Every method raises a `QuintetError` when the core refuses, or cannot be reached."""

    async def enqueue(
        self,
        queue: str,
        payload: bytes,
        *,
        rank: int = 0,
        delay_ms: int = 0,
        time_to_live_ms: int = 0,
        deduplication_key: str = "",
        deduplication_window_ms: int = 0,
        attempts_max: int = 0,
        lease_ms: int = 0,
        content_type: str = "",
        attributes: Mapping[str, str] | None = None,
        create_if_missing: bool = True,
    ) -> int:
        """Puts one job; returns its id when it is on disk, the earlier job's with a remembered `deduplication_key`."""
        job = NewJob(
            payload=payload,
            content_type=content_type,
            rank=rank,
            delay_ms=delay_ms,
            time_to_live_ms=time_to_live_ms,
            deduplication_key=deduplication_key,
            deduplication_window_ms=deduplication_window_ms,
            attempts_max=attempts_max,
            lease_ms=lease_ms,
            attributes=attributes or {},
        )
        result = await self._operate(
            self.session.submit_enqueue, self._enqueue_request(queue, [job], create_if_missing)
        )
        return result.enqueue.ids[0]

    async def enqueue_many(
        self, queue: str, jobs: Iterable[NewJob | bytes], *, create_if_missing: bool = True
    ) -> list[int]:
        """Puts jobs in order and returns their ids in order.

        They travel in batches of up to 100 jobs and 8 MiB, each all or none, a few of them under way at a time; `jobs`
        is read as they go. When a batch fails, its error is raised, and jobs of other batches may be in the queue.
        """
        batches = _batches(NewJob(payload=job) if isinstance(job, bytes) else job for job in jobs)
        ids: list[int] = []
        while window := list(itertools.islice(batches, BATCHES_UNDER_WAY_MAX)):
            requests = [self._enqueue_request(queue, batch, create_if_missing) for batch in window]
            # Tasks start in order, and the session keeps the order of one owner's operations.
            operations = (self._operate(self.session.submit_enqueue, request) for request in requests)
            for result in await asyncio.gather(*operations, return_exceptions=True):
                ids.extend(_ids_or_raise(result))
        return ids

    def _enqueue_request(self, queue: str, jobs: Sequence[NewJob], create_if_missing: bool) -> wire.EnqueueRequest:
        return wire.EnqueueRequest(
            namespace=self.namespace,
            queue=queue,
            jobs=[job.to_wire() for job in jobs],
            create_if_missing=create_if_missing,
        )

    async def dequeue(
        self,
        *queues: str,
        jobs_max: int = 1,
        wait_ms: int = 0,
        lease_ms: int = 0,
        worker: str = "",
        allow_missing: bool = True,
    ) -> list[Job]:
        """Leases the best ready jobs of `queues`; an empty list when none was ready within `wait_ms` (-1: no bound).

        `lease_ms` 0: the job's lease, else the queue's. A task cancelled while it waits takes no job with it: one that
        was handed out at that moment is released, and the delivery does not count as an attempt.
        """
        request = wire.DequeueRequest(
            namespace=self.namespace,
            queues=queues,
            jobs_max=jobs_max,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            worker=worker or self.name,
            allow_missing=allow_missing,
        )
        if not self.session.connected:
            await self.session.wait_connected(self._patience_s)
        future: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()
        sequence = self.session.submit_dequeue(self._owner, request, partial(self._dequeued, future))
        try:
            return await future
        except asyncio.CancelledError:
            if self._session is not None:
                self._session.cancel_wait(self._owner, sequence)
            if not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise

    def _dequeued(self, future: asyncio.Future[list[Job]], result: SessionResult) -> None:
        if result.HasField("failure"):
            if not future.done():
                future.set_exception(error_of_failure(result.failure))
            return
        jobs = [Job.of_wire(job) for job in result.dequeue.jobs]
        if future.done():
            self._give_back(jobs)
        else:
            future.set_result(jobs)

    async def await_jobs(self, *queues: str, wait_ms: int = -1, allow_missing: bool = True) -> bool:
        """Waits until one of `queues` has a ready job, and takes none; False when none had within `wait_ms` (-1: no
        bound). Whoever dequeues first has the job: nothing is promised to who was told."""
        request = wire.AwaitJobsRequest(
            namespace=self.namespace, queues=queues, wait_ms=wait_ms, allow_missing=allow_missing
        )
        if not self.session.connected:
            await self.session.wait_connected(self._patience_s)
        future: asyncio.Future[SessionResult] = asyncio.get_running_loop().create_future()
        sequence = self.session.submit_await_jobs(self._owner, request, partial(settle, future))
        try:
            return (await future).await_jobs.ready
        except asyncio.CancelledError:
            if self._session is not None:
                self._session.cancel_wait(self._owner, sequence)
            raise

    def _give_back(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if self._session is not None and job.lease is not None:
                release = wire.ReleaseRequest(
                    namespace=job.namespace, id=job.id, token=job.lease.token, delay_ms=0, undo_attempt=True
                )
                self._session.submit_release(self._owner, release, lambda _: None)

    async def acknowledge(self, job: Job | int, token: int | None = None, *, any_lease: bool = False) -> None:
        """Ends a leased job for good. An id instead of a job needs its lease's `token`, or `any_lease`."""
        request = wire.AcknowledgeRequest(namespace=self.namespace, any_lease=any_lease)
        request.id, request.token = _fence(job, token, any_lease)
        await self._operate(self.session.submit_acknowledge, request)

    async def release(
        self,
        job: Job | int,
        token: int | None = None,
        *,
        any_lease: bool = False,
        delay_ms: int | None = None,
        placement: Placement = Placement.ORIGINAL,
        failure_reason: str = "",
        undo_attempt: bool = False,
    ) -> JobState:
        """Gives a leased job back and returns its state: ready, delayed, or dead when its attempts are used up.

        `delay_ms` None: by the queue's backoff. `failure_reason` is cut to 1024 bytes.
        """
        request = wire.ReleaseRequest(
            namespace=self.namespace,
            any_lease=any_lease,
            delay_ms=delay_ms,
            placement=placement.wire,
            failure_reason=failure_reason.encode()[:1024].decode(errors="ignore"),
            undo_attempt=undo_attempt,
        )
        request.id, request.token = _fence(job, token, any_lease)
        result = await self._operate(self.session.submit_release, request)
        return JobState.of_wire(result.release.state)

    async def extend(
        self, job: Job | int, lease_ms: int = 0, token: int | None = None, *, any_lease: bool = False
    ) -> int:
        """Sets a lease's deadline to `lease_ms` from now (0: as it was taken) and returns it, in epoch milliseconds."""
        request = wire.ExtendRequest(namespace=self.namespace, any_lease=any_lease, lease_ms=lease_ms)
        request.id, request.token = _fence(job, token, any_lease)
        result = await self._operate(self.session.submit_extend, request)
        return result.extend.deadline_at_ms

    async def delete(self, job_id: int) -> JobState:
        """Removes a job in whatever state it is, leased ones too, and returns that state."""
        request = wire.DeleteRequest(namespace=self.namespace, id=job_id)
        result = await self._operate(self.session.submit_delete, request)
        return JobState.of_wire(result.delete.state)

    async def peek(self, queue: str, *, state: JobState = JobState.READY, jobs_max: int = 1) -> list[Job]:
        """The next jobs of a queue, not leased."""
        request = wire.PeekRequest(namespace=self.namespace, queue=queue, state=state.wire, jobs_max=jobs_max)
        result = await self._read(self.session.submit_peek, request)
        return [Job.of_wire(job) for job in result.peek.jobs]

    async def get_job(self, job_id: int, *, without_payload: bool = False) -> Job:
        """The job as it stands."""
        request = wire.GetJobRequest(namespace=self.namespace, id=job_id, without_payload=without_payload)
        result = await self._read(self.session.submit_get_job, request)
        return Job.of_wire(result.get_job.job)

    async def count(self, queue: str) -> QueueCounts:
        """How many jobs a queue holds, by state."""
        request = wire.CountRequest(namespace=self.namespace, queue=queue)
        result = await self._read(self.session.submit_count, request)
        return QueueCounts.of_wire(result.count.counts)

    async def list_jobs(
        self, queue: str, *, state: JobState = JobState.READY, without_payload: bool = False, page_size: int = 100
    ) -> AsyncIterator[Job]:
        """All jobs in a state: ready ones in the order of dequeue, others by their instant."""
        request = wire.ListJobsRequest(
            namespace=self.namespace,
            queue=queue,
            state=state.wire,
            page_size=page_size,
            without_payload=without_payload,
        )
        while True:
            response: wire.ListJobsResponse = await self._read_call(self._queue_service.ListJobs, request)
            for job in response.jobs:
                yield Job.of_wire(job)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def redrive(
        self,
        queue: str,
        *,
        state: JobState = JobState.DEAD,
        ids: Sequence[int] = (),
        failure_reason_contains: str = "",
        jobs_max: int = 0,
        reset_attempts: bool = False,
    ) -> int:
        """Makes dead (or delayed) jobs ready and returns how many. `jobs_max` 0: all that match."""
        request = wire.RedriveRequest(
            namespace=self.namespace,
            queue=queue,
            state=state.wire,
            ids=ids,
            failure_reason_contains=failure_reason_contains,
            jobs_max=jobs_max,
            reset_attempts=reset_attempts,
        )
        response: wire.RedriveResponse = await self._call(self._queue_service.Redrive, request)
        return response.jobs

    async def purge(self, queue: str, *, states: Sequence[JobState] = ()) -> int:
        """Deletes jobs in `states` (none: ready, delayed and dead) and returns how many."""
        request = wire.PurgeRequest(namespace=self.namespace, queue=queue, states=[state.wire for state in states])
        response: wire.PurgeResponse = await self._call(self._queue_service.Purge, request)
        return response.jobs


def _fence(job: Job | int, token: int | None, any_lease: bool) -> tuple[int, int]:
    job_id = job.id if isinstance(job, Job) else job
    if any_lease:
        return job_id, 0
    if token is None and isinstance(job, Job) and job.lease is not None:
        token = job.lease.token
    if token is None:
        raise ValueError("a job's lease token is needed: give a leased job, a token, or any_lease=True")
    return job_id, token


def _batches(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    batch: list[NewJob] = []
    batch_bytes = 0
    for job in jobs:
        job_bytes = len(job.payload)
        if batch and (len(batch) == BATCH_JOBS_MAX or batch_bytes + job_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(job)
        batch_bytes += job_bytes
    if batch:
        yield batch


def _ids_or_raise(result: SessionResult | BaseException) -> Sequence[int]:
    if isinstance(result, BaseException):
        raise result
    return result.enqueue.ids
