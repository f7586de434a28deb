"""What the state machine must do, as plain Python, for comparison with the real one.

A partition's queues and jobs in dictionaries; one method per verb, answering what the store answers. Time is `now`.
What has fallen due in a queue is carried out when a verb looks at the queue, of a job when a verb looks at the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quintet_core.domain.errors import Reason
from quintet_core.domain.job import JobState, NewJob, Placement
from quintet_core.domain.queue import PauseDirection, QueueSettings

DELAYED, READY, LEASED, DEAD = JobState.DELAYED, JobState.READY, JobState.LEASED, JobState.DEAD
SESSION_KEPT_MS = 86_400_000
DEDUPLICATION_WINDOW_MS = 300_000
LEASE_MS = 60_000
BACKOFF_MS_MAX = 3_600_000
INFINITE = float("inf")

# Event kinds by the numbers of quintet.v1.EventKind.
ENQUEUED, DEQUEUED, ACKNOWLEDGED, RELEASED, LEASE_EXPIRED, OWNER_CLOSED = range(1, 7)
EXTENDED, DELETED, BECAME_READY, EXPIRED = range(7, 11)
REDRIVEN, DEAD_LETTERED = 11, 12
CREATED, UPDATED, QUEUE_DELETED, PAUSED, RESUMED = range(20, 25)


@dataclass(eq=False)
class ModelJob:
    """A job. `position` decides among equal ranks; `due` is available_at, deadline or time of death, by state."""

    id: int
    queue: ModelQueue
    new: NewJob
    position: int
    enqueued_at: int
    expires_at: int
    state: JobState = READY
    due: float = 0
    attempts: int = 0
    reason: str = ""
    token: int = 0
    deadline: int = 0
    lease_ms: int = 0
    leased_at: int = 0
    ready_at: int = 0
    owner: tuple[bytes, bytes] | None = None
    worker: str = ""
    on_close: Placement = Placement.ORIGINAL
    letter: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """What decides who is next: lowest rank, then insertion order."""
        return (self.new.rank, self.position)

    @property
    def expiry(self) -> float:
        """When an unleased, living job goes."""
        return self.expires_at or INFINITE


@dataclass(eq=False)
class ModelQueue:
    """A queue and its jobs by id."""

    name: str
    settings: QueueSettings
    created_at: int
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    paused: PauseDirection = PauseDirection.NONE
    paused_until: int = 0

    def within(self, state: JobState) -> list[ModelJob]:
        """Jobs of a state, in the order of its listing: by due time (ready: none), then by place."""
        return sorted((job for job in self.jobs.values() if job.state is state), key=lambda job: (job.due, job.place))

    def counts(self) -> tuple[int, int, int, int]:
        """Ready, delayed, leased, dead."""
        return tuple(len(self.within(state)) for state in (READY, DELAYED, LEASED, DEAD))  # type: ignore[return-value]


class Model:
    """One partition of `partitions`. Verbs answer values, or the Reason of a refusal."""

    def __init__(self, partition: int, partitions: int) -> None:
        self.partition, self.partitions = partition, partitions
        self.now = 0
        self.sequence = 0
        self.queues: dict[str, ModelQueue] = {}
        self.deleting: list[ModelQueue] = []
        self.remembered: dict[tuple[ModelQueue, str], tuple[int, int]] = {}
        self.sessions: dict[bytes, int] = {}
        self.lapsed: dict[bytes, int] = {}
        # Since the last look: (kind, queue, job id, attempt, wait, service, state, detail).
        self.events: Counter[tuple[int, str, int, int, int, int, int, str]] = Counter()

    # --- what has fallen due

    def settle(self, queue: ModelQueue) -> None:
        """Carry out everything of a queue whose time has come."""
        late = [job for job in queue.jobs.values() if job.state in (READY, DELAYED) and job.expiry <= self.now]
        ended = [job for job in queue.within(LEASED) if job.deadline and job.deadline <= self.now]
        ripe = [job for job in queue.within(DELAYED) if job.due <= self.now and job not in late]
        if queue.paused_until and queue.paused_until <= self.now:
            self._unpause(queue)
        for job in late:
            self._remove(job, EXPIRED)
        for job in ended:
            self._end_lease(job)
        for job in ripe:
            self._ripen(job)

    def settle_job(self, job: ModelJob) -> ModelJob | None:
        """The same for one job; None when it is gone by that."""
        if job.state in (READY, DELAYED) and job.expiry <= self.now:
            self._remove(job, EXPIRED)
            return None
        if job.state is LEASED and job.deadline and job.deadline <= self.now:
            self._end_lease(job)
        elif job.state is DELAYED and job.due <= self.now:
            self._ripen(job)
        return job if job.id in job.queue.jobs else None

    def _end_lease(self, job: ModelJob) -> None:
        self._give_back(job, LEASE_EXPIRED, None, Placement.ORIGINAL, "lease expired")

    def _ripen(self, job: ModelJob) -> None:
        job.state, job.due = READY, 0
        self._emit(BECAME_READY, job)

    def _unpause(self, queue: ModelQueue) -> None:
        queue.paused, queue.paused_until = PauseDirection.NONE, 0
        self._emit_of_queue(RESUMED, queue)

    # --- the ways of a job

    def _emit(
        self, kind: int, job: ModelJob, wait: int = 0, service: int = 0, gone: bool = False, why: str = ""
    ) -> None:
        state = 0 if gone else int(job.state)
        self.events[(kind, job.queue.name, job.id, job.attempts, max(wait, 0), service, state, why)] += 1

    def _emit_of_queue(self, kind: int, queue: ModelQueue, why: str = "") -> None:
        self.events[(kind, queue.name, 0, 0, 0, 0, 0, why)] += 1

    def _remove(self, job: ModelJob, kind: int, why: str = "") -> None:
        service = self.now - job.leased_at if job.state is LEASED else 0
        del job.queue.jobs[job.id]
        self._emit(kind, job, service=service, gone=True, why=why)

    def _give_back(
        self, job: ModelJob, kind: int, delay_ms: int | None, placement: Placement, why: str, undo: bool = False
    ) -> JobState | None:
        service = self.now - job.leased_at
        job.attempts -= undo
        job.reason = why or job.reason
        attempts_max = job.new.attempts_max or job.queue.settings.attempts_max
        job.owner, job.deadline = None, 0
        if job.expiry <= self.now:
            del job.queue.jobs[job.id]
            self._emit(EXPIRED, job, service=service, gone=True)
            return None
        if attempts_max and job.attempts >= attempts_max and not undo:
            job.state, job.due = DEAD, self.now
            job.letter = bool(job.queue.settings.dead_letter_queue)
        else:
            if placement is Placement.TAIL:
                self.sequence += 1
                job.position = self.sequence
            self._make_available(job, self.now + (self._backoff(job) if delay_ms is None else delay_ms))
        self._emit(kind, job, service=service, why=job.reason)
        return job.state

    def _make_available(self, job: ModelJob, at: int) -> None:
        job.state, job.due = (DELAYED, at) if at > self.now else (READY, 0)
        job.ready_at = max(at, self.now)
        job.letter = False

    def _backoff(self, job: ModelJob) -> int:
        settings = job.queue.settings
        if not settings.backoff_ms or not job.attempts:
            return 0
        longest = settings.backoff_max_ms or BACKOFF_MS_MAX
        return min(settings.backoff_ms << (job.attempts - 1), longest)

    # --- jobs in and out

    def enqueue(self, name: str, jobs: Sequence[NewJob], create: bool) -> tuple[list[int], list[int]] | Reason:
        """Ids, and those of them that were there."""
        queue = self.queues.get(name)
        if queue is None:
            if not create:
                return Reason.QUEUE_NOT_FOUND
        elif queue.paused_until <= self.now and queue.paused_until:
            pass
        elif queue.paused in (PauseDirection.IN, PauseDirection.BOTH):
            return Reason.QUEUE_PAUSED
        if queue is not None and (refused := self._policy(queue, jobs)):
            return refused
        queue = queue or self._create(name, QueueSettings())
        ids, repeated = [], []
        for new in jobs:
            known = self._known(queue, new)
            ids.append(known or self._insert(queue, new))
            repeated += [known] if known else []
        return ids, repeated

    def _known(self, queue: ModelQueue, new: NewJob) -> int | None:
        until, job_id = self.remembered.get((queue, new.deduplication_key), (0, 0))
        return job_id if new.deduplication_key and until > self.now else None

    def _policy(self, queue: ModelQueue, jobs: Sequence[NewJob]) -> Reason | None:
        keys = {new.deduplication_key for new in jobs if new.deduplication_key and not self._known(queue, new)}
        fresh = len(keys) + sum(1 for new in jobs if not new.deduplication_key)
        if not fresh:
            return None
        settings = queue.settings
        if settings.jobs_max is not None:
            self.settle(queue)
            if len(queue.within(READY)) + len(queue.within(DELAYED)) + fresh > settings.jobs_max:
                return Reason.QUEUE_FULL
        for new in jobs:
            if settings.rank_range and not settings.rank_range[0] <= new.rank <= settings.rank_range[1]:
                return Reason.RANK_OUT_OF_RANGE
            if settings.payload_bytes_max is not None and len(new.payload) > settings.payload_bytes_max:
                return Reason.PAYLOAD_TOO_LARGE
        return None

    def _insert(self, queue: ModelQueue, new: NewJob) -> int:
        self.sequence += 1
        job_id = self.sequence * self.partitions + self.partition
        expires_at = self.now + new.time_to_live_ms if new.time_to_live_ms else 0
        job = ModelJob(job_id, queue, new, self.sequence, self.now, expires_at)
        self._make_available(job, self.now + new.delay_ms)
        queue.jobs[job_id] = job
        if new.deduplication_key:
            window_ms = new.deduplication_window_ms or DEDUPLICATION_WINDOW_MS
            self.remembered[(queue, new.deduplication_key)] = (self.now + window_ms, job_id)
        self._emit(ENQUEUED, job)
        return job_id

    def _open(self, names: Sequence[str], allow_missing: bool) -> list[ModelJob] | Reason:
        """Every ready job of queues that may give one, best first."""
        jobs: set[ModelJob] = set()
        for name in names:
            queue = self.queues.get(name)
            if queue is None and not allow_missing:
                return Reason.QUEUE_NOT_FOUND
            if queue is not None:
                self.settle(queue)
                if queue.paused not in (PauseDirection.OUT, PauseDirection.BOTH):
                    jobs.update(queue.within(READY))
        return sorted(jobs, key=lambda job: job.place)

    def best(self, names: Sequence[str], allow_missing: bool) -> ModelJob | Reason | None:
        """The job that a dequeue would take."""
        found = self._open(names, allow_missing)
        return found if isinstance(found, Reason) else next(iter(found), None)

    def dequeue(
        self,
        names: Sequence[str],
        jobs_max: int,
        allow_missing: bool,
        *,
        lease_ms: int = 0,
        owner: tuple[bytes, bytes] | None = None,
        session_ttl_ms: int = 0,
        worker: str = "",
        on_close: Placement = Placement.ORIGINAL,
        bound: tuple[int, int] | None = None,
    ) -> list[ModelJob] | Reason:
        """The jobs leased, best first. Their tokens are the caller's to fill in."""
        if owner and self.standing(owner[0]) == -1:
            return Reason.SESSION_LAPSED
        found = self._open(names, allow_missing)
        if isinstance(found, Reason):
            return found
        taken = [job for job in found if bound is None or job.place <= bound][:jobs_max]
        if taken and owner and self.standing(owner[0]) == 0:
            self.sessions[owner[0]] = self.now + session_ttl_ms
        for job in taken:
            job.attempts += 1
            job.lease_ms = lease_ms or job.new.lease_ms or job.queue.settings.lease_ms or LEASE_MS
            job.deadline = 0 if owner else self.now + job.lease_ms
            job.state, job.due = LEASED, job.deadline or INFINITE
            job.owner, job.worker, job.on_close, job.leased_at = owner, worker, on_close, self.now
            self._emit(DEQUEUED, job, wait=self.now - job.ready_at)
        return taken

    # --- leases

    def find(self, job_id: int, queue: str | None) -> ModelJob | None:
        """A job by id, in a queue when one is named."""
        for candidate in self.queues.values():
            if queue in (None, candidate.name) and job_id in candidate.jobs:
                return candidate.jobs[job_id]
        return None

    def _leased(self, job_id: int, queue: str | None, token: int | None) -> ModelJob | Reason:
        job = self.find(job_id, queue)
        over = job is not None and (job.state is not LEASED or bool(job.deadline and job.deadline <= self.now))
        if job is None or (over and job.state is not DEAD and job.expiry <= self.now):
            return Reason.JOB_NOT_FOUND
        if token is not None and job.token and token != job.token:
            return Reason.STALE_LEASE
        return Reason.NOT_LEASED if over else job

    def acknowledge(self, job_id: int, queue: str | None, token: int | None) -> Reason | None:
        """None: done."""
        job = self._leased(job_id, queue, token)
        if isinstance(job, Reason):
            return job
        self._remove(job, ACKNOWLEDGED)
        return None

    def release(
        self,
        job_id: int,
        queue: str | None,
        token: int | None,
        delay_ms: int | None,
        placement: Placement,
        why: str,
        undo: bool,
    ) -> JobState | Reason | None:
        """The state it is in now; None when it expired."""
        job = self._leased(job_id, queue, token)
        return job if isinstance(job, Reason) else self._give_back(job, RELEASED, delay_ms, placement, why, undo)

    def extend(self, job_id: int, queue: str | None, token: int | None, lease_ms: int) -> int | Reason:
        """The new deadline."""
        job = self._leased(job_id, queue, token)
        if isinstance(job, Reason):
            return job
        if job.owner:
            return Reason.INVALID_ARGUMENT
        job.due = job.deadline = self.now + (lease_ms or job.lease_ms)
        self._emit(EXTENDED, job)
        return job.deadline

    def get_job(self, job_id: int, queue: str | None) -> ModelJob | None:
        """The job as it stands."""
        job = self.find(job_id, queue)
        return job and self.settle_job(job)

    def delete(self, job_id: int, queue: str | None) -> JobState | Reason:
        """The state it was in."""
        job = self.get_job(job_id, queue)
        if job is None:
            return Reason.JOB_NOT_FOUND
        self._remove(job, DELETED)
        return job.state

    # --- queues

    def _create(self, name: str, settings: QueueSettings) -> ModelQueue:
        queue = self.queues[name] = ModelQueue(name, settings, self.now)
        self._emit_of_queue(CREATED, queue)
        return queue

    def settled(self, name: str) -> ModelQueue | Reason:
        """The queue with nothing due left in it."""
        queue = self.queues.get(name)
        if queue is None:
            return Reason.QUEUE_NOT_FOUND
        self.settle(queue)
        return queue

    def create_queue(self, name: str, settings: QueueSettings) -> ModelQueue | Reason:
        """Explicitly."""
        return Reason.QUEUE_EXISTS if name in self.queues else self._create(name, settings)

    def update_queue(self, name: str, settings: QueueSettings) -> ModelQueue | Reason:
        """Replace the settings."""
        queue = self.settled(name)
        if isinstance(queue, ModelQueue):
            queue.settings = settings
            self._emit_of_queue(UPDATED, queue)
        return queue

    def pause(self, name: str, direction: PauseDirection, duration_ms: int) -> ModelQueue | Reason:
        """Directions add up; the last duration counts for both."""
        queue = self.settled(name)
        if isinstance(queue, ModelQueue):
            queue.paused = PauseDirection(queue.paused | direction)
            queue.paused_until = self.now + duration_ms if duration_ms else 0
            self._emit_of_queue(PAUSED, queue)
        return queue

    def resume(self, name: str) -> ModelQueue | Reason:
        """Of a queue that is not paused: nothing."""
        queue = self.settled(name)
        if isinstance(queue, ModelQueue) and queue.paused:
            self._unpause(queue)
        return queue

    def delete_queue(self, name: str) -> int | Reason:
        """Jobs that were in it; they go by `sweep`."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return Reason.QUEUE_NOT_FOUND
        self.deleting.append(queue)
        self._emit_of_queue(QUEUE_DELETED, queue, str(len(queue.jobs)))
        return len(queue.jobs)

    def purge(self, name: str, state: JobState) -> int | Reason:
        """Jobs deleted."""
        queue = self.settled(name)
        if isinstance(queue, Reason):
            return queue
        jobs = queue.within(state)
        for job in jobs:
            self._remove(job, DELETED, "purged")
        return len(jobs)

    def redrive(self, name: str, state: JobState, contains: str, jobs_max: int, reset: bool) -> int | Reason:
        """Jobs made ready."""
        queue = self.settled(name)
        if isinstance(queue, Reason):
            return queue
        chosen = [job for job in queue.within(state) if contains in job.reason][:jobs_max]
        self._revive(chosen, reset)
        return len(chosen)

    def redrive_job(self, job_id: int, queue: str | None, state: JobState, reset: bool) -> int:
        """1: it was in that state."""
        job = self.get_job(job_id, queue)
        if job is None or job.state is not state:
            return 0
        self._revive([job], reset)
        return 1

    def _revive(self, jobs: Iterable[ModelJob], reset: bool) -> None:
        for job in jobs:
            job.attempts = 0 if reset else job.attempts
            self._make_available(job, self.now)
            self._emit(REDRIVEN, job)

    # --- sessions

    def standing(self, session: bytes) -> int:
        """1: alive. 0: holds nothing here. -1: lapsed."""
        if session in self.sessions:
            return 1 if self.sessions[session] > self.now else -1
        return -1 if session in self.lapsed else 0

    def heartbeat(self, session: bytes, ttl_ms: int) -> int:
        """Its standing; alive for ttl_ms more when it is alive."""
        standing = self.standing(session)
        if standing == 1:
            self.sessions[session] = self.now + ttl_ms
        return standing

    def close_owner(self, session: bytes, owner: bytes, kept: Sequence[int] = ()) -> int:
        """Leases released."""
        return self._close(lambda job: job.owner == (session, owner) and job.id not in kept)

    def close_session(self, session: bytes) -> int:
        """Leases released; it cannot come back."""
        released = self._close(lambda job: job.owner is not None and job.owner[0] == session)
        if self.standing(session) == 1:
            self._lapse(session)
        return released

    def _close(self, chosen: object) -> int:
        assert callable(chosen)
        jobs = [job for queue in self.queues.values() for job in queue.within(LEASED) if job.owner and chosen(job)]
        # Tails are given out owner by owner, in the order of the jobs' ages.
        for job in sorted(jobs, key=lambda job: (job.owner or (), job.id)):
            self._give_back(job, OWNER_CLOSED, 0, job.on_close, "owner closed")
        return len(jobs)

    def _lapse(self, session: bytes) -> None:
        del self.sessions[session]
        self.lapsed[session] = self.now

    def lapse(self) -> bool:
        """Release the leases of one session whose time is over; whether there was one."""
        over = sorted((at, session) for session, at in self.sessions.items() if at <= self.now)
        if not over:
            return False
        session = over[0][1]
        self._close(lambda job: job.owner is not None and job.owner[0] == session)
        self._lapse(session)
        return True

    # --- duties

    def settle_due(self) -> None:
        """Settle every queue."""
        for queue in self.queues.values():
            self.settle(queue)

    def sweep(self) -> None:
        """Delete the jobs of the queue that was deleted first, and forget old keys and sessions."""
        if self.deleting:
            queue = self.deleting.pop(0)
            for job in list(queue.jobs.values()):
                self._remove(job, DELETED, "queue deleted")
        self.remembered = {key: known for key, known in self.remembered.items() if known[0] > self.now}
        self.lapsed = {session: at for session, at in self.lapsed.items() if at > self.now - SESSION_KEPT_MS}

    def letters(self) -> set[int]:
        """Dead jobs that are to move to a dead-letter queue; those whose queue has none stay for good."""
        for queue in self.queues.values():
            for job in queue.within(DEAD):
                job.letter &= bool(queue.settings.dead_letter_queue)
        return {job.id for queue in self.queues.values() for job in queue.within(DEAD) if job.letter}

    def dead_letter(self, job_id: int, queue: str, to: str) -> Reason | None:
        """None: it has left."""
        job = self.find(job_id, queue)
        if job is None:
            return Reason.JOB_NOT_FOUND
        if job.state is not DEAD:
            return Reason.NOT_LEASED
        self._remove(job, DEAD_LETTERED, to)
        return None
