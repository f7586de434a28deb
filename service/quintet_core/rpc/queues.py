"""QueueService: a thin door onto the operations."""

from __future__ import annotations

import asyncio
from typing import Any

from quintet.v1 import queue_service_pb2 as pb
from quintet.v1 import queue_service_pb2_grpc

from quintet_core.domain.errors import Refusal, broken
from quintet_core.domain.job import JobState, LeaseTerms
from quintet_core.domain.outcomes import Awaited, Dequeued, Done
from quintet_core.domain.queue import PauseDirection
from quintet_core.operations.bulk import BulkOperations
from quintet_core.operations.queues import QueueOperations
from quintet_core.rpc import convert
from quintet_core.rpc.door import Context, Door
from quintet_core.storage.link import into
from quintet_core.waiting.awaits import Await, Awaits
from quintet_core.waiting.dequeues import Dequeue, Dequeues

# Each method's name is the API's.
# ruff: noqa: N802


class QueueServicer(queue_service_pb2_grpc.QueueServiceServicer):
    """Unary calls on queues and jobs."""

    def __init__(
        self, operations: QueueOperations, bulk: BulkOperations, dequeues: Dequeues, awaits: Awaits, door: Door
    ) -> None:
        self._operations = operations
        self._bulk = bulk
        self._dequeues = dequeues
        self._awaits = awaits
        self._door = door

    # --- jobs

    async def Enqueue(self, request: pb.EnqueueRequest, context: Context) -> pb.EnqueueResponse:
        """Put jobs into a queue."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            jobs = convert.new_jobs(request)
            self._operations.enqueue(namespace, request.queue, jobs, request.create_if_missing, done)

        return await self._door.call(context, "enqueue", namespace, start, convert.enqueued)

    async def Dequeue(self, request: pb.DequeueRequest, context: Context) -> pb.DequeueResponse:
        """Lease jobs, waiting for the first when asked to. A caller that goes away takes none with it."""
        namespace = convert.namespace_of(request)

        async def outcome() -> Dequeued | Refusal:
            future: asyncio.Future[Dequeued | Refusal] = asyncio.get_running_loop().create_future()
            wanted = _dequeue_of(request, namespace)
            handle = self._dequeues.dequeue(wanted, into(future))
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                handle.abandon()
                if future.done() and isinstance(taken := future.result(), Dequeued):
                    self._dequeues.give_back(wanted, taken.jobs, None)
                raise

        return await self._door.wait(context, "dequeue", namespace, outcome, convert.dequeued)

    async def AwaitJobs(self, request: pb.AwaitJobsRequest, context: Context) -> pb.AwaitJobsResponse:
        """Wait until there is a job to take."""
        namespace = convert.namespace_of(request)

        async def outcome() -> Awaited | Refusal:
            future: asyncio.Future[Awaited | Refusal] = asyncio.get_running_loop().create_future()
            wanted = Await(namespace, list(request.queues), request.wait_ms, request.allow_missing)
            awaiter = self._awaits.await_jobs(wanted, into(future))
            try:
                return await future
            finally:
                awaiter.abandon()

        return await self._door.wait(context, "await_jobs", namespace, outcome, convert.jobs_awaited)

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: Context) -> pb.AcknowledgeResponse:
        """End a leased job."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            token, queue = convert.token_of(request), convert.queue_of(request)
            self._operations.acknowledge(namespace, request.id, token, queue, done)

        return await self._door.call(context, "acknowledge", namespace, start, convert.acknowledged)

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        """Give a leased job back."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.release(
                namespace,
                request.id,
                convert.token_of(request),
                convert.queue_of(request),
                delay_ms=request.delay_ms if request.HasField("delay_ms") else None,
                placement=convert.placement(request.placement),
                failure_reason=request.failure_reason,
                undo_attempt=request.undo_attempt,
                done=done,
            )

        return await self._door.call(context, "release", namespace, start, convert.released)

    async def Extend(self, request: pb.ExtendRequest, context: Context) -> pb.ExtendResponse:
        """Move a lease's deadline."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            token, queue = convert.token_of(request), convert.queue_of(request)
            self._operations.extend(namespace, request.id, token, queue, request.lease_ms, done)

        return await self._door.call(context, "extend", namespace, start, convert.extended)

    async def Delete(self, request: pb.DeleteRequest, context: Context) -> pb.DeleteResponse:
        """Remove a job."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.delete(namespace, request.id, convert.queue_of(request), done)

        return await self._door.call(context, "delete", namespace, start, convert.deleted)

    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekResponse:
        """Look at the next jobs."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            state = convert.job_state(request.state, JobState.READY)
            self._operations.peek(namespace, request.queue, state, request.jobs_max, done)

        return await self._door.call(context, "peek", namespace, start, convert.peeked)

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """A job as it stands."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            queue = convert.queue_of(request)
            self._operations.get_job(namespace, request.id, queue, not request.without_payload, done)

        return await self._door.call(context, "get_job", namespace, start, convert.job_got)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """A page of jobs."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.list_jobs(
                namespace,
                request.queue,
                convert.job_state(request.state, JobState.READY),
                request.page_size,
                convert.jobs_cursor(request.page_token),
                not request.without_payload,
                done,
            )

        return await self._door.call(context, "list_jobs", namespace, start, convert.jobs_listed)

    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        """Make dead or delayed jobs ready."""
        namespace = convert.namespace_of(request)

        async def work() -> int | Refusal:
            return await self._bulk.redrive(
                namespace,
                request.queue,
                convert.redriven_state(request.state),
                list(request.ids),
                request.failure_reason_contains,
                request.jobs_max,
                request.reset_attempts,
            )

        return await self._door.wait(context, "redrive", namespace, work, convert.redriven)

    async def Purge(self, request: pb.PurgeRequest, context: Context) -> pb.PurgeResponse:
        """Delete the jobs of some states."""
        namespace = convert.namespace_of(request)

        async def work() -> int | Refusal:
            return await self._bulk.purge(namespace, request.queue, convert.purged_states(request.states))

        return await self._door.wait(context, "purge", namespace, work, convert.purged)

    # --- queues

    async def Count(self, request: pb.CountRequest, context: Context) -> pb.CountResponse:
        """Jobs by state."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.count(namespace, request.queue, done)

        return await self._door.call(context, "count", namespace, start, convert.counted)

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        """Stop what goes in, out or both."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            direction: PauseDirection = convert.pause_direction(request.direction)
            self._operations.pause(namespace, request.queue, direction, request.duration_ms, done)

        return await self._door.call(context, "pause", namespace, start, convert.paused)

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        """End every pause."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.resume(namespace, request.queue, done)

        return await self._door.call(context, "resume", namespace, start, convert.resumed)

    async def CreateQueue(self, request: pb.CreateQueueRequest, context: Context) -> pb.CreateQueueResponse:
        """Make a queue."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.create_queue(namespace, request.queue, convert.settings_of(request.settings), done)

        return await self._door.call(context, "create_queue", namespace, start, convert.queue_created)

    async def UpdateQueue(self, request: pb.UpdateQueueRequest, context: Context) -> pb.UpdateQueueResponse:
        """Replace a queue's settings."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.update_queue(namespace, request.queue, convert.settings_of(request.settings), done)

        return await self._door.call(context, "update_queue", namespace, start, convert.queue_updated)

    async def DeleteQueue(self, request: pb.DeleteQueueRequest, context: Context) -> pb.DeleteQueueResponse:
        """Remove a queue and its jobs."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.delete_queue(namespace, request.queue, done)

        return await self._door.call(context, "delete_queue", namespace, start, convert.queue_deleted)

    async def GetQueue(self, request: pb.GetQueueRequest, context: Context) -> pb.GetQueueResponse:
        """A queue as it stands."""
        namespace = convert.namespace_of(request)

        def start(done: Done[Any]) -> None:
            self._operations.get_queue(namespace, request.queue, done)

        return await self._door.call(context, "get_queue", namespace, start, convert.queue_got)

    async def ListQueues(self, request: pb.ListQueuesRequest, context: Context) -> pb.ListQueuesResponse:
        """A page of queues."""
        namespace = convert.namespace_of(request)

        async def work() -> Any:
            after = convert.queues_cursor(request.page_token)
            return await self._bulk.list_queues(namespace, request.prefix, after, request.page_size)

        return await self._door.wait(context, "list_queues", namespace, work, convert.queues_listed)


def _dequeue_of(request: pb.DequeueRequest, namespace: str) -> Dequeue:
    if request.owner_lease:
        raise broken("owner_lease is for sessions: a unary call has no owner", field="owner_lease")
    convert.placement(request.placement_on_close)
    terms = LeaseTerms(request.lease_ms, worker=request.worker)
    queues = list(request.queues)
    return Dequeue(namespace, queues, terms, request.jobs_max or 1, request.wait_ms, request.allow_missing)
