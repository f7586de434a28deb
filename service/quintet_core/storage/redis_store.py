"""The verbs of the function library as methods: arguments packed, answers parsed.

Callback methods are for the hot path; `ask` awaits any verb. An answer is the verb's outcome or a Refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from quintet_core.domain.errors import Refusal
from quintet_core.domain.job import Job, JobState, LeasedRecord, LeaseTerms, NewJob
from quintet_core.domain.limits import DEDUPLICATION_WINDOW_MS_DEFAULT
from quintet_core.domain.outcomes import (
    Acknowledged,
    Deleted,
    Dequeued,
    Done,
    Enqueued,
    Extended,
    JobPage,
    Released,
)
from quintet_core.domain.queue import Queue, QueueCounts, QueueSettings
from quintet_core.storage import records
from quintet_core.storage.asking import home, parsed
from quintet_core.storage.keys import name_key, namespace_scope
from quintet_core.storage.link import Reply
from quintet_core.storage.packing import (
    Argument,
    bulk,
    pack,
    pack_acknowledge,
    pack_delete,
    pack_dequeue_one,
    pack_enqueue_one,
)
from quintet_core.storage.pipeline import Operation, Ordered
from quintet_core.storage.upkeep import Upkeep

TOKEN_MAX = 2**64 - 1
PACKED_PER_TERMS_MAX = 16

_T = TypeVar("_T")
_PACKED_SETTINGS = records.pack_settings(QueueSettings())
_DEFAULT_SETTINGS, _NO_SETTINGS = bulk(_PACKED_SETTINGS), bulk(b"")


@dataclass(frozen=True, slots=True)
class Best:
    """The place at the head of some queues of one partition, and which of them has it."""

    place: bytes
    index: int


@dataclass(frozen=True, slots=True)
class Worse:
    """There are jobs, but none as good as the bound."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which queue an id must be in: any of a namespace, or exactly one."""

    key: bytes
    exact: bool

    @staticmethod
    def of(namespace: str, queue: str | None) -> Scope:
        """The queue when there is one, else the namespace."""
        return _scope(namespace, queue)


@lru_cache(maxsize=65536)
def _scope(namespace: str, queue: str | None) -> Scope:
    if queue is None:
        return Scope(namespace_scope(namespace), False)
    return Scope(name_key(namespace, queue), True)


class RedisStore(Upkeep):
    """All operations of jobs and queues."""

    # --- jobs in

    def enqueue(
        self,
        namespace: str,
        queue: str,
        jobs: Sequence[NewJob],
        create_if_missing: bool,
        done: Done[Enqueued],
        order: Ordered | None = None,
    ) -> None:
        """All of the jobs or none. Refusals: QUEUE_NOT_FOUND, QUEUE_PAUSED and the queue's policies."""
        key, partition = home(namespace, queue, self.partitions)
        partitions = self.partitions
        job = jobs[0]
        if len(jobs) == 1 and not job.deduplication_key:
            settings = _DEFAULT_SETTINGS if create_if_missing else _NO_SETTINGS
            packed = pack_enqueue_one(key, settings, records.pack_options(job, 0), records.pack_tail(job))
        else:
            packed = _pack_enqueue(key, jobs, create_if_missing)

        def on_answer(answer: Reply) -> None:
            if answer.__class__ is bytes:
                done(Enqueued([int.from_bytes(answer, "big") * partitions + partition], []))
            elif answer.__class__ is Refusal:
                done(answer)
            else:
                sequences, repeated = answer
                done(Enqueued(_ids(sequences, partition, partitions), _ids(repeated, partition, partitions)))

        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    def enqueue_plain(
        self,
        namespace: str,
        queue: str,
        payload: bytes,
        content_type: bytes,
        rank: int,
        create_if_missing: bool,
        done: Done[int],
        order: Ordered | None = None,
    ) -> None:
        """One job of which nothing else is said; its id. Refusals as enqueue."""
        key, partition = home(namespace, queue, self.partitions)
        partitions = self.partitions

        def on_answer(answer: Reply) -> None:
            done(answer if answer.__class__ is Refusal else int.from_bytes(answer, "big") * partitions + partition)

        packed = pack_enqueue_one(
            key,
            _DEFAULT_SETTINGS if create_if_missing else _NO_SETTINGS,
            records.pack_plain_options(rank, len(payload)),
            records.pack_plain_tail(content_type, payload),
        )
        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    # --- jobs out

    def dequeue(
        self,
        namespace: str,
        queues: Sequence[str],
        jobs_max: int,
        terms: LeaseTerms,
        *,
        allow_missing: bool,
        await_jobs: bool,
        done: Done[Dequeued | Worse],
        bound: bytes = b"",
        order: Ordered | None = None,
    ) -> None:
        """The best jobs of queues that share a partition, none worse than `bound` (a place). `await_jobs`: when there
        are none, ask to be told of new ones."""
        partitions = self.partitions
        if len(queues) == 1 and not bound:
            partition, packed = self._pack_dequeue(namespace, queues[0], jobs_max, terms, allow_missing, await_jobs)
        else:
            names = [name_key(namespace, queue) for queue in queues]
            partition = self.partition_of(namespace, queues[0])
            packed_terms = records.pack_terms(jobs_max, terms, allow_missing, await_jobs, bound)
            packed = pack("dequeue", [len(names), *names, packed_terms])

        def on_answer(answer: Reply) -> None:
            if answer.__class__ is Refusal:
                done(answer)
                return
            if answer[0] != b"j":
                done(Worse() if answer[0] == b"c" else Dequeued([]))
                return
            jobs = [
                LeasedRecord(
                    int.from_bytes(answer[at + 3], "big") * partitions + partition,
                    namespace,
                    queues[answer[at]],
                    answer[at + 1],
                    answer[at + 2],
                )
                for at in range(1, len(answer), 4)
            ]
            done(Dequeued(jobs))

        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    def _pack_dequeue(
        self, namespace: str, queue: str, jobs_max: int, terms: LeaseTerms, allow_missing: bool, await_jobs: bool
    ) -> tuple[int, tuple[int, bytes]]:
        """The partition and the packed operation: mostly what the same terms were packed to the last time."""
        asked = (namespace, queue, jobs_max, allow_missing, await_jobs)
        found = terms.packed.get(asked)
        if found is None:
            if len(terms.packed) >= PACKED_PER_TERMS_MAX:
                terms.packed.clear()
            key, partition = home(namespace, queue, self.partitions)
            packed_terms = records.pack_terms(jobs_max, terms, allow_missing, await_jobs, b"")
            found = terms.packed[asked] = partition, pack_dequeue_one(key, bulk(packed_terms))
        return found

    def best(
        self,
        namespace: str,
        queues: Sequence[str],
        allow_missing: bool,
        await_jobs: bool,
        done: Done[Best | None],
        order: Ordered | None = None,
    ) -> None:
        """The head of queues that share a partition, or None. `await_jobs`: when None, ask to be told of new ones."""
        names = [name_key(namespace, queue) for queue in queues]

        def on_answer(answer: Reply) -> None:
            if answer.__class__ is Refusal:
                done(answer)
            else:
                done(Best(answer[1], answer[2]) if answer[0] == b"b" else None)

        flags = (b"1" if allow_missing else b"0", b"1" if await_jobs else b"0")
        arguments: list[Argument] = [len(names), *names, *flags]
        partition = self.partition_of(namespace, queues[0])
        self.submit(partition, "best", arguments, on_answer, order)

    # --- leases

    def _of_job(
        self,
        verb: str,
        job_id: int,
        scope: Scope,
        rest: tuple[Argument, ...],
        parse: Callable[[Reply], _T],
        done: Done[_T],
        order: Ordered | None,
    ) -> None:
        partition, sequence = self._place(job_id)

        def on_answer(answer: Reply) -> None:
            done(parsed(parse, answer))

        arguments: list[Argument] = [sequence, scope.key, b"1" if scope.exact else b"0", *rest]
        self.submit(partition, verb, arguments, on_answer, order)

    def acknowledge(
        self, job_id: int, scope: Scope, token: int | None, done: Done[Acknowledged], order: Ordered | None = None
    ) -> None:
        """End a leased job. `token` None: whichever lease. Refusals: JOB_NOT_FOUND, NOT_LEASED, STALE_LEASE."""
        sequence, partition = divmod(job_id, self.partitions)

        def on_answer(answer: Reply) -> None:
            done(answer if answer.__class__ is Refusal else _ACKNOWLEDGED)

        packed = pack_acknowledge(sequence, scope.key, scope.exact, _token(token))
        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    def release(
        self,
        job_id: int,
        scope: Scope,
        token: int | None,
        *,
        delay_ms: int | None,
        placement: int,
        failure_reason: str,
        undo_attempt: bool,
        done: Done[Released],
        order: Ordered | None = None,
    ) -> None:
        """Give a leased job back. Refusals as acknowledge."""
        rest: tuple[Argument, ...] = (
            _token(token),
            b"" if delay_ms is None else delay_ms,
            int(placement),
            failure_reason,
            b"1" if undo_attempt else b"0",
        )
        self._of_job("release", job_id, scope, rest, _released, done, order)

    def extend(
        self,
        job_id: int,
        scope: Scope,
        token: int | None,
        lease_ms: int,
        done: Done[Extended],
        order: Ordered | None = None,
    ) -> None:
        """Move the deadline of a duration lease. Refusals as acknowledge; INVALID_ARGUMENT for an owner lease."""
        self._of_job("extend", job_id, scope, (_token(token), lease_ms), _extended, done, order)

    def delete(self, job_id: int, scope: Scope, done: Done[Deleted], order: Ordered | None = None) -> None:
        """Remove a job in whatever state. Refusal: JOB_NOT_FOUND."""
        sequence, partition = divmod(job_id, self.partitions)

        def on_answer(answer: Reply) -> None:
            done(parsed(_deleted, answer))

        packed = pack_delete(sequence, scope.key, scope.exact)
        self.pipeline.submit(Operation(partition, packed, on_answer, order))

    def get_job(
        self, job_id: int, scope: Scope, with_payload: bool, done: Done[Job], order: Ordered | None = None
    ) -> None:
        """A job as it stands. Refusal: JOB_NOT_FOUND."""
        partition = job_id % self.partitions

        def parse(answer: Reply) -> Job:
            return records.unpack_shown(answer, partition, self.partitions)

        self._of_job("get_job", job_id, scope, (b"1" if with_payload else b"0",), parse, done, order)

    # --- queues

    def count(self, namespace: str, queue: str, done: Done[QueueCounts], order: Ordered | None = None) -> None:
        """Jobs by state. Refusal: QUEUE_NOT_FOUND."""
        self._of_name("count", namespace, queue, (), _counts, done, order)

    def list_jobs(
        self,
        namespace: str,
        queue: str,
        state: JobState,
        limit: int,
        cursor: tuple[bytes, bytes] | None,
        with_payload: bool,
        done: Done[JobPage],
        order: Ordered | None = None,
    ) -> None:
        """One page of the jobs in a state, in the order of the state's set. Refusal: QUEUE_NOT_FOUND."""
        score, place = cursor or (b"", b"")

        def parse(answer: Reply, partition: int) -> JobPage:
            jobs = [records.unpack_shown(shown, partition, self.partitions) for shown in answer[2:]]
            return JobPage(jobs, (answer[0], answer[1]) if answer[1] else None)

        rest: tuple[Argument, ...] = (int(state), limit, score, place, b"1" if with_payload else b"0")
        self._of_name("list_jobs", namespace, queue, rest, parse, done, order)

    def create_queue(
        self, namespace: str, queue: str, settings: QueueSettings, done: Done[Queue], order: Ordered | None = None
    ) -> None:
        """Refusal: QUEUE_EXISTS."""
        rest = (records.pack_settings(settings),)
        self._of_name("create_queue", namespace, queue, rest, records.unpack_queue, done, order)

    def update_queue(
        self, namespace: str, queue: str, settings: QueueSettings, done: Done[Queue], order: Ordered | None = None
    ) -> None:
        """Replace all settings. Refusal: QUEUE_NOT_FOUND."""
        rest = (records.pack_settings(settings),)
        self._of_name("update_queue", namespace, queue, rest, records.unpack_queue, done, order)

    def get_queue(self, namespace: str, queue: str, done: Done[Queue], order: Ordered | None = None) -> None:
        """Refusal: QUEUE_NOT_FOUND."""
        self._of_name("get_queue", namespace, queue, (), records.unpack_queue, done, order)

    def pause(
        self,
        namespace: str,
        queue: str,
        direction: int,
        duration_ms: int,
        done: Done[Queue],
        order: Ordered | None = None,
    ) -> None:
        """`duration_ms` 0: until resumed. Refusal: QUEUE_NOT_FOUND."""
        rest = (int(direction), duration_ms)
        self._of_name("pause", namespace, queue, rest, records.unpack_queue, done, order)

    def resume(self, namespace: str, queue: str, done: Done[Queue], order: Ordered | None = None) -> None:
        """Refusal: QUEUE_NOT_FOUND."""
        self._of_name("resume", namespace, queue, (), records.unpack_queue, done, order)

    def delete_queue(self, namespace: str, queue: str, done: Done[int], order: Ordered | None = None) -> None:
        """Gone at once for readers; answers the number of jobs in it. Refusal: QUEUE_NOT_FOUND."""
        self._of_name("delete_queue", namespace, queue, (), lambda answer, _: int(answer), done, order)

    async def purge_step(self, namespace: str, queue: str, state: JobState) -> int | Refusal:
        """Delete some jobs of a state; how many."""
        key, partition = home(namespace, queue, self.partitions)
        answer = await self.ask(partition, "purge", key, int(state))
        return answer if isinstance(answer, Refusal) else int(answer)

    async def redrive_step(
        self,
        namespace: str,
        queue: str,
        state: JobState,
        reason_contains: str,
        jobs_max: int,
        reset_attempts: bool,
        cursor: tuple[bytes, bytes] | None,
    ) -> tuple[int, tuple[bytes, bytes] | None] | Refusal:
        """Make some jobs of a state ready: how many, and the cursor behind what was looked at."""
        score, place = cursor or (b"", b"")
        key, partition = home(namespace, queue, self.partitions)
        answer = await self.ask(
            partition,
            "redrive",
            key,
            int(state),
            reason_contains,
            jobs_max,
            b"1" if reset_attempts else b"0",
            score,
            place,
        )
        if isinstance(answer, Refusal):
            return answer
        return int(answer[0]), ((answer[1], answer[2]) if answer[2] else None)

    async def redrive_job(self, job_id: int, scope: Scope, state: JobState, reset_attempts: bool) -> int | Refusal:
        """1 when the job was in that state and is ready now."""
        partition, sequence = self._place(job_id)
        flags = b"1" if reset_attempts else b"0"
        exact = b"1" if scope.exact else b"0"
        answer = await self.ask(partition, "redrive_job", sequence, scope.key, exact, int(state), flags)
        return answer if isinstance(answer, Refusal) else int(answer)

    async def list_queues(
        self, partition: int, namespace: str, prefix: str, after: str | None, limit: int
    ) -> list[Queue] | Refusal:
        """Queues of one partition in the order of their names, behind `after`."""
        low = name_key(namespace, prefix)
        behind = name_key(namespace, after) if after is not None else b""
        answer = await self.ask(partition, "list_queues", low, _past(low), behind, limit)
        if isinstance(answer, Refusal):
            return answer
        return [records.unpack_queue(described, partition) for described in answer]


def _pack_enqueue(key: bytes, jobs: Sequence[NewJob], create_if_missing: bool) -> tuple[int, bytes]:
    arguments: list[Argument] = [key, _PACKED_SETTINGS if create_if_missing else b"", len(jobs)]
    for job in jobs:
        window_ms = job.deduplication_window_ms or DEDUPLICATION_WINDOW_MS_DEFAULT
        arguments += (records.pack_options(job, window_ms), job.deduplication_key, records.pack_tail(job))
    return pack("enqueue", arguments)


def _ids(sequences: bytes, partition: int, partitions: int) -> list[int]:
    return [
        int.from_bytes(sequences[at : at + 8], "big") * partitions + partition for at in range(0, len(sequences), 8)
    ]


def _token(token: int | None) -> bytes:
    return b"" if token is None else (token & TOKEN_MAX).to_bytes(8, "big")


_ACKNOWLEDGED = Acknowledged()


def _released(answer: Reply) -> Released:
    return Released(JobState(answer) if answer else None)


def _extended(answer: Reply) -> Extended:
    return Extended(int(answer))


_DELETED = {int(state): Deleted(state) for state in JobState}


def _deleted(answer: Reply) -> Deleted:
    return _DELETED[answer]


def _counts(answer: Reply, _: int) -> QueueCounts:
    return QueueCounts(*answer)


def _past(prefix: bytes) -> bytes:
    """The least name key behind all that begin with a prefix."""
    return prefix + b"\xff"
