"""The store's verbs with the arguments that tests rarely care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quintet_core.domain.event import Event
from quintet_core.domain.job import Job, JobState, LeaseTerms, NewJob, Placement
from quintet_core.domain.outcomes import Dequeued, Enqueued, JobPage
from quintet_core.domain.queue import QueueSettings
from quintet_core.storage.records import unpack_leased
from quintet_core.storage.redis_store import Scope

from tests.support.store import Clock, OpenStore

NAMESPACE = "n"
SESSION, OWNER, OTHER_OWNER = b"session1", b"owner--1", b"owner--2"
SESSION_TTL_MS = 10_000


def owned(owner: bytes = OWNER, session: bytes = SESSION, on_close: Placement = Placement.ORIGINAL) -> LeaseTerms:
    """An owner's lease."""
    return LeaseTerms(0, session, owner, int(on_close), "", SESSION_TTL_MS)


class Verbs:
    """One partition's worth of queues: names as they come; several in one dequeue must share a partition."""

    def __init__(self, opened: OpenStore, clock: Clock) -> None:
        self.opened = opened
        self.store = opened.store
        self.clock = clock

    def siblings(self, count: int) -> list[str]:
        """Names of queues that share the partition of "q"."""
        home = self.store.partition_of(NAMESPACE, "q")
        found = ["q"]
        number = 0
        while len(found) < count:
            number += 1
            if self.store.partition_of(NAMESPACE, f"q{number}") == home:
                found.append(f"q{number}")
        return found

    @property
    def partition(self) -> int:
        """Of the queue "q" and its siblings."""
        return self.store.partition_of(NAMESPACE, "q")

    async def put(self, payload: bytes = b"", *, queue: str = "q", create: bool = True, **fields: Any) -> int:
        """Enqueue one job: its id."""
        answer = await self.put_all([NewJob(payload, **fields)], queue=queue, create=create)
        assert isinstance(answer, Enqueued), answer
        return answer.ids[0]

    async def put_all(self, jobs: Sequence[NewJob], *, queue: str = "q", create: bool = True) -> Any:
        """Enqueue: the answer as it is."""
        return await self.opened.do(self.store.enqueue, NAMESPACE, queue, jobs, create)

    async def dequeue(
        self,
        *queues: str,
        terms: LeaseTerms | None = None,
        jobs_max: int = 1,
        allow_missing: bool = False,
        bound: bytes = b"",
        await_jobs: bool = False,
    ) -> Any:
        """Dequeue: the answer as it is."""
        return await self.opened.do(
            self.store.dequeue,
            NAMESPACE,
            queues or ("q",),
            jobs_max,
            terms or LeaseTerms(),
            allow_missing=allow_missing,
            await_jobs=await_jobs,
            bound=bound,
        )

    async def take_all(self, *queues: str, terms: LeaseTerms | None = None, jobs_max: int = 100) -> list[Job]:
        """Dequeue what there is."""
        answer = await self.dequeue(*queues, terms=terms, jobs_max=jobs_max)
        assert isinstance(answer, Dequeued), answer
        return list(map(unpack_leased, answer.jobs))

    async def take(self, *queues: str, terms: LeaseTerms | None = None) -> Job:
        """Dequeue one job, which must be there."""
        (job,) = await self.take_all(*queues, terms=terms, jobs_max=1)
        return job

    async def payloads(self, *queues: str) -> list[bytes]:
        """Dequeue what there is: the payloads, in order."""
        return [job.payload for job in await self.take_all(*queues)]

    async def acknowledge(self, job: Job | int, token: int | None = None, queue: str | None = None) -> Any:
        """With the job's token, or the one given; of an id: none."""
        job_id, token = (job, token) if isinstance(job, int) else (job.id, token or token_of(job))
        return await self.opened.do(self.store.acknowledge, job_id, Scope.of(NAMESPACE, queue), token)

    async def release(self, job: Job, **terms: Any) -> Any:
        """To its place, at once, unless told otherwise."""
        usual = {"delay_ms": None, "placement": Placement.ORIGINAL, "failure_reason": "", "undo_attempt": False}
        token = terms.pop("token", token_of(job))
        return await self.opened.do(self.store.release, job.id, Scope.of(NAMESPACE, None), token, **{**usual, **terms})

    async def extend(self, job: Job, lease_ms: int = 0, token: int | None = None) -> Any:
        """With the job's token."""
        scope = Scope.of(NAMESPACE, None)
        return await self.opened.do(self.store.extend, job.id, scope, token or token_of(job), lease_ms)

    async def delete(self, job_id: int, queue: str | None = None) -> Any:
        """By id."""
        return await self.opened.do(self.store.delete, job_id, Scope.of(NAMESPACE, queue))

    async def get(self, job_id: int, queue: str | None = None, with_payload: bool = True) -> Any:
        """By id."""
        return await self.opened.do(self.store.get_job, job_id, Scope.of(NAMESPACE, queue), with_payload)

    async def state(self, job_id: int) -> JobState:
        """Of a job that must be there."""
        job = await self.get(job_id)
        assert isinstance(job, Job), job
        return job.state

    async def count(self, queue: str = "q") -> Any:
        """Jobs by state."""
        return await self.opened.do(self.store.count, NAMESPACE, queue)

    async def page(
        self, state: JobState, limit: int = 100, cursor: tuple[bytes, bytes] | None = None, queue: str = "q"
    ) -> JobPage:
        """One page of a listing."""
        page = await self.opened.do(self.store.list_jobs, NAMESPACE, queue, state, limit, cursor, True)
        assert isinstance(page, JobPage), page
        return page

    async def create(self, queue: str = "q", **settings: Any) -> Any:
        """A queue with settings."""
        return await self.opened.do(self.store.create_queue, NAMESPACE, queue, QueueSettings(**settings))

    async def update(self, queue: str = "q", **settings: Any) -> Any:
        """Other settings."""
        return await self.opened.do(self.store.update_queue, NAMESPACE, queue, QueueSettings(**settings))

    async def queue(self, queue: str = "q") -> Any:
        """As it stands."""
        return await self.opened.do(self.store.get_queue, NAMESPACE, queue)

    async def pause(self, direction: int, duration_ms: int = 0, queue: str = "q") -> Any:
        """Stop what goes in, out or both."""
        return await self.opened.do(self.store.pause, NAMESPACE, queue, direction, duration_ms)

    async def resume(self, queue: str = "q") -> Any:
        """End every pause."""
        return await self.opened.do(self.store.resume, NAMESPACE, queue)

    async def delete_queue(self, queue: str = "q") -> Any:
        """With all its jobs."""
        return await self.opened.do(self.store.delete_queue, NAMESPACE, queue)

    async def events(self, after: int = 0) -> list[Event]:
        """The partition's log."""
        answer = await self.store.read_events(self.partition, after, 100_000)
        assert isinstance(answer, tuple), answer
        return answer[0]


def token_of(job: Job) -> int:
    """The token of a job that was just dequeued."""
    assert job.lease is not None
    return job.lease.token
