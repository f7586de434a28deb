"""The state machine in Redis and its model in Python, side by side, through whatever comes; how often: see
tests/support/comparisons.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from quintet_core.domain.errors import Reason, Refusal
from quintet_core.domain.event import Event
from quintet_core.domain.job import Job, JobState, LeaseTerms, NewJob, Placement
from quintet_core.domain.outcomes import Acknowledged, Deleted, Dequeued, Enqueued, Extended, JobPage, Released
from quintet_core.domain.queue import PauseDirection, Queue, QueueCounts, QueueSettings
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.link import into
from quintet_core.storage.records import rank_bytes, unpack_leased
from quintet_core.storage.redis_store import Best, Scope, Worse

from tests.support.comparisons import compare
from tests.support.model import Model, ModelJob, ModelQueue
from tests.support.partition_state import PartitionState
from tests.support.redis_server import RedisConnection, RedisServer, prepare
from tests.support.replay import Replay
from tests.support.store import Clock, OpenStore, open_store

PARTITIONS = 2
NAMESPACE = "n"
# "a", "c" and "e" share partition 0; "b" is in partition 1.
NAMES = ["a", "c", "e", "b"]
SESSIONS = [b"session%d" % number for number in range(3)]
OWNERS = [b"owner-%02d" % number for number in range(2)]

names = st.sampled_from(["a", "a", "a", "a", "c", "c", "e", "b"])
several_names = st.sampled_from(
    [["a"], ["a"], ["a"], ["a"], ["c"], ["b"], ["a", "c"], ["c", "a"], ["e", "c", "a", "c"], ["a", "e"]]
)
picks = st.integers(0, 12)
mostly = st.sampled_from([True, True, True, True, False])
ranks = st.sampled_from([0, 0, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1])
spans = st.sampled_from([0, 0, 0, 1, 500, 1000, 5000, 60_000])
batched = st.sampled_from([True, True, True, False])
either = st.booleans()
tokens = st.sampled_from(["current", "current", "current", "any", "old"])
sessions = st.sampled_from([*SESSIONS[:1] * 3, *SESSIONS])
owners = st.sampled_from([*OWNERS[:1] * 2, *OWNERS])
partitions = st.sampled_from([0, 0, 0, 1])
states = st.sampled_from(list(JobState))
new_jobs = st.builds(
    NewJob,
    payload=st.sampled_from([b"", b"x", b"x" * 40]),
    rank=ranks,
    delay_ms=spans,
    time_to_live_ms=spans,
    deduplication_key=st.sampled_from(["", "", "k1", "k1", "k2"]),
    deduplication_window_ms=st.sampled_from([0, 1000, 1000]),
    attempts_max=st.sampled_from([0, 0, 1, 2]),
    lease_ms=st.sampled_from([0, 0, 2000]),
    content_type=st.sampled_from(["", "text/plain"]),
    attributes=st.sampled_from([{}, {"a": "1"}]),
)
all_settings = st.builds(
    QueueSettings,
    jobs_max=st.sampled_from([None, None, 0, 3]),
    payload_bytes_max=st.sampled_from([None, None, 10]),
    rank_range=st.sampled_from([None, None, (-1, 1)]),
    lease_ms=st.sampled_from([0, 3000]),
    attempts_max=st.sampled_from([0, 1, 1, 3]),
    backoff_ms=st.sampled_from([0, 0, 700]),
    backoff_max_ms=st.sampled_from([0, 1000]),
    dead_letter_queue=st.sampled_from(["", "letters"]),
)

Check = Callable[[Any], None]


class Comparison(RuleBasedStateMachine):
    """Operations go to both. Some are sent together, as one batch; then all their answers are compared."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.redis = RedisConnection(path)
        prepare(self.redis, PARTITIONS)
        self.clock = Clock(self.redis, PARTITIONS)
        self.models = [Model(number, PARTITIONS) for number in range(PARTITIONS)]
        self.replays = [Replay() for _ in range(PARTITIONS)]
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.opened: OpenStore = self.run(self.stack.enter_async_context(open_store(path, PARTITIONS)))
        self.store = self.opened.store
        self.ids: list[int] = [10_001]
        self.tokens: dict[int, list[int]] = {}
        self.waiting: list[tuple[Callable[[Callable[[Any], None]], None], Check]] = []
        self._advance(0)

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()
        self.redis.close()

    def run(self, awaitable: Any) -> Any:
        async def whole() -> Any:
            return await awaitable

        return self.runner.run(whole())

    # --- sending and comparing

    def send(self, more: bool, submit: Callable[[Callable[[Any], None]], None], check: Check) -> None:
        """Submit one operation; unless there is more for its batch, send all and compare."""

        self.waiting.append((submit, check))
        if not more:
            self.flush()

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []

        async def sending() -> list[Any]:
            loop = asyncio.get_running_loop()
            futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in waiting]
            for (submit, _), future in zip(waiting, futures, strict=True):
                submit(into(future))
            return [await future for future in futures]

        for answer, (_, check) in zip(self.run(sending()), waiting, strict=True):
            check(answer)

    def ask(self, awaitable_of: Callable[[], Any], check: Check) -> None:
        """A verb that is awaited: alone, after what is waiting."""
        self.flush()

        async def asking() -> Any:
            return await awaitable_of()

        check(self.run(asking()))

    def model_of(self, name: str) -> Model:
        found: Model = self.models[self.store.partition_of(NAMESPACE, name)]
        return found

    def _advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        for model in self.models:
            model.now = self.clock.now

    def job_id(self, pick: int, state: JobState | None = None) -> int:
        """One of all jobs that ever were, or of those that are in a state now if there are any."""
        of_state = sorted(
            job.id for model in self.models for queue in model.queues.values() for job in queue.jobs.values()
            if job.state is state
        )  # fmt: skip
        ids = of_state or self.ids
        return ids[-1 - pick % len(ids)]

    def token(self, job_id: int, kind: str) -> int | None:
        known = self.tokens.get(job_id)
        if kind == "any" or not known:
            return None if kind == "any" else 4711
        return known[-1] if kind == "current" else known[0]

    def same_job(self, seen: Job, expected: ModelJob) -> None:
        new = expected.new
        assert (seen.id, seen.queue, seen.namespace) == (expected.id, expected.queue.name, NAMESPACE)
        assert (seen.payload, seen.payload_bytes, seen.rank) == (new.payload, len(new.payload), new.rank)
        assert (seen.content_type, seen.attributes) == (new.content_type, new.attributes)
        assert (seen.deduplication_key, seen.attempts_max) == (new.deduplication_key, new.attempts_max)
        assert seen.state is expected.state
        assert (seen.attempts, seen.failure_reason) == (expected.attempts, expected.reason)
        assert (seen.enqueued_at_ms, seen.expires_at_ms) == (expected.enqueued_at, expected.expires_at)
        if expected.state is JobState.DELAYED:
            assert seen.available_at_ms == expected.due
        if expected.state is JobState.LEASED:
            assert seen.lease is not None
            assert (seen.lease.deadline_at_ms, seen.lease.worker) == (expected.deadline, expected.worker)
            assert seen.lease.token == expected.token
        else:
            assert seen.lease is None

    def same_queue(self, seen: Any, expected: ModelQueue | Reason) -> None:
        if isinstance(expected, Reason):
            self.refused(seen, expected)
            return
        assert isinstance(seen, Queue), seen
        assert (seen.namespace, seen.name, seen.settings) == (NAMESPACE, expected.name, expected.settings)
        assert (seen.paused, seen.paused_until_ms) == (expected.paused, expected.paused_until)
        assert (seen.created_at_ms, seen.counts) == (expected.created_at, QueueCounts(*expected.counts()))

    @staticmethod
    def refused(seen: Any, expected: Reason) -> None:
        assert isinstance(seen, Refusal), f"{seen} instead of {expected!r}"
        assert seen.reason is expected, seen

    def same(self, seen: Any, expected: Any) -> None:
        if isinstance(expected, Reason):
            self.refused(seen, expected)
        else:
            assert seen == expected

    @initialize(jobs=st.lists(new_jobs, min_size=2, max_size=6), first=all_settings, second=all_settings)
    def begin(self, jobs: list[NewJob], first: QueueSettings, second: QueueSettings) -> None:
        self.set_queue("a", first, "create_queue", True)
        self.enqueue("a", jobs, True, True)
        self.set_queue("c", second, "create_queue", False)

    # --- jobs in and out

    @rule(
        name=names,
        jobs=st.lists(new_jobs, min_size=1, max_size=4),
        create=st.sampled_from([True, True, False]),
        more=batched,
    )
    def enqueue(self, name: str, jobs: list[NewJob], create: bool, more: bool) -> None:
        def check(seen: Any) -> None:
            expected = self.model_of(name).enqueue(name, jobs, create)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
                return
            assert seen == Enqueued(*expected)
            self.ids += (job_id for job_id in expected[0] if job_id not in self.ids)

        self.send(more, lambda done: self.store.enqueue(NAMESPACE, name, jobs, create, done), check)

    @rule(
        queues=several_names,
        jobs_max=st.sampled_from([1, 1, 2, 5]),
        missing=st.sampled_from([True, True, False]),
        lease_ms=st.sampled_from([0, 1000, 30_000]),
        holder=st.none() | st.tuples(sessions, owners),
        on_close=st.sampled_from(list(Placement)),
        bound=st.none() | st.none() | picks,
        more=batched,
    )
    def dequeue(
        self,
        queues: list[str],
        jobs_max: int,
        missing: bool,
        lease_ms: int,
        holder: tuple[bytes, bytes] | None,
        on_close: Placement,
        bound: int | None,
        more: bool,
    ) -> None:
        model = self.model_of(queues[0])
        session, owner = holder or (b"", b"")
        terms = LeaseTerms(lease_ms, session, owner, int(on_close), "w", 8000)
        limit = (0, bound) if bound is not None else None
        place = rank_bytes(limit[0]) + limit[1].to_bytes(8, "big") if limit else b""

        def check(seen: Any) -> None:
            expected = model.dequeue(
                queues, jobs_max, missing, lease_ms=lease_ms, owner=holder, session_ttl_ms=8000, worker="w",
                on_close=on_close, bound=limit,
            )  # fmt: skip
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            elif not expected and model.best(queues, missing):
                assert isinstance(seen, Worse)
            else:
                assert isinstance(seen, Dequeued), seen
                self.took(list(map(unpack_leased, seen.jobs)), expected)

        self.send(
            more,
            lambda done: self.store.dequeue(
                NAMESPACE, queues, jobs_max, terms, allow_missing=missing, await_jobs=False, done=done, bound=place
            ),
            check,
        )

    @rule(jobs_max=st.sampled_from([1, 1, 3]), owned=either, tail=either, bound=st.none() | picks, more=batched)
    def take(self, jobs_max: int, owned: bool, tail: bool, bound: int | None, more: bool) -> None:
        """What dequeue does most of the time."""
        holder = (SESSIONS[0], OWNERS[0]) if owned else None
        self.dequeue(["a"], jobs_max, True, 0, holder, Placement.TAIL if tail else Placement.ORIGINAL, bound, more)

    @rule(pick=picks, placement=st.sampled_from(list(Placement)), more=batched)
    def fail(self, pick: int, placement: Placement, more: bool) -> None:
        """What release does most of the time."""
        self.release(pick, True, "current", None, placement, "broken", False, more)

    @rule(more=batched)
    def put(self, more: bool) -> None:
        """What enqueue does most of the time."""
        self.enqueue("a", [NewJob(b"x")], True, more)

    def took(self, seen: list[Job], expected: list[ModelJob]) -> None:
        assert [job.id for job in seen] == [job.id for job in expected]
        for job, modelled in zip(seen, expected, strict=True):
            assert job.lease is not None
            assert job.lease.token > modelled.token
            modelled.token = job.lease.token
            self.tokens.setdefault(job.id, []).append(modelled.token)
            self.same_job(job, modelled)

    @rule(queues=several_names, missing=either, more=batched)
    def best(self, queues: list[str], missing: bool, more: bool) -> None:
        def check(seen: Any) -> None:
            expected = self.model_of(queues[0]).best(queues, missing)
            if isinstance(expected, Reason):
                self.refused(seen, expected)
            elif expected is None:
                assert seen is None
            else:
                assert isinstance(seen, Best), seen
                assert queues[seen.index] == expected.queue.name
                assert seen.place[:16] == rank_bytes(expected.new.rank) + expected.position.to_bytes(8, "big")

        self.send(more, lambda done: self.store.best(NAMESPACE, queues, missing, False, done), check)

    # --- leases

    def of_job(self, pick: int, in_queue: str | None, state: JobState | None) -> tuple[int, Scope, Model]:
        job_id = self.job_id(pick, state)
        return job_id, Scope.of(NAMESPACE, in_queue), self.models[job_id % PARTITIONS]

    scoped = st.sampled_from([None, None, None, None, "a"])

    @rule(pick=picks, held=mostly, token=tokens, in_queue=scoped, more=batched)
    def acknowledge(self, pick: int, held: bool, token: str, in_queue: str | None, more: bool) -> None:
        job_id, scope, model = self.of_job(pick, in_queue, JobState.LEASED if held else None)
        value = self.token(job_id, token)

        def check(seen: Any) -> None:
            expected = model.acknowledge(job_id, in_queue, value)
            self.same(seen, Acknowledged() if expected is None else expected)

        self.send(more, lambda done: self.store.acknowledge(job_id, scope, value, done), check)

    @rule(
        pick=picks,
        held=mostly,
        token=tokens,
        delay_ms=st.none() | st.none() | spans,
        placement=st.sampled_from(list(Placement)),
        why=st.sampled_from(["", "broken", "lost"]),
        undo=st.sampled_from([False, False, True]),
        more=batched,
    )
    def release(
        self,
        pick: int,
        held: bool,
        token: str,
        delay_ms: int | None,
        placement: Placement,
        why: str,
        undo: bool,
        more: bool,
    ) -> None:
        job_id, scope, model = self.of_job(pick, None, JobState.LEASED if held else None)
        value = self.token(job_id, token)

        def check(seen: Any) -> None:
            expected = model.release(job_id, None, value, delay_ms, placement, why, undo)
            self.same(seen, expected if isinstance(expected, Reason) else Released(expected))

        self.send(
            more,
            lambda done: self.store.release(
                job_id,
                scope,
                value,
                delay_ms=delay_ms,
                placement=int(placement),
                failure_reason=why,
                undo_attempt=undo,
                done=done,
            ),
            check,
        )

    @rule(pick=picks, held=mostly, token=tokens, lease_ms=st.sampled_from([0, 1, 5000, 90_000]), more=batched)
    def extend(self, pick: int, held: bool, token: str, lease_ms: int, more: bool) -> None:
        job_id, scope, model = self.of_job(pick, None, JobState.LEASED if held else None)
        value = self.token(job_id, token)

        def check(seen: Any) -> None:
            expected = model.extend(job_id, None, value, lease_ms)
            self.same(seen, expected if isinstance(expected, Reason) else Extended(expected))

        self.send(more, lambda done: self.store.extend(job_id, scope, value, lease_ms, done), check)

    @rule(pick=picks, in_queue=scoped, more=batched)
    def delete(self, pick: int, in_queue: str | None, more: bool) -> None:
        job_id, scope, model = self.of_job(pick, in_queue, None)

        def check(seen: Any) -> None:
            expected = model.delete(job_id, in_queue)
            self.same(seen, expected if isinstance(expected, Reason) else Deleted(expected))

        self.send(more, lambda done: self.store.delete(job_id, scope, done), check)

    @rule(pick=picks, in_queue=scoped, more=batched)
    def get_job(self, pick: int, in_queue: str | None, more: bool) -> None:
        job_id, scope, model = self.of_job(pick, in_queue, None)

        def check(seen: Any) -> None:
            expected = model.get_job(job_id, in_queue)
            if expected is None:
                self.refused(seen, Reason.JOB_NOT_FOUND)
            else:
                self.same_job(seen, expected)

        self.send(more, lambda done: self.store.get_job(job_id, scope, True, done), check)

    # --- queues

    @rule(name=names, queue_settings=all_settings, verb=st.sampled_from(["create_queue", "update_queue"]), more=batched)
    def set_queue(self, name: str, queue_settings: QueueSettings, verb: str, more: bool) -> None:
        self.send(
            more,
            lambda done: getattr(self.store, verb)(NAMESPACE, name, queue_settings, done),
            lambda seen: self.same_queue(seen, getattr(self.model_of(name), verb)(name, queue_settings)),
        )

    @rule(name=names, more=batched)
    def get_queue(self, name: str, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.get_queue(NAMESPACE, name, done),
            lambda seen: self.same_queue(seen, self.model_of(name).settled(name)),
        )

    @rule(name=names, direction=st.sampled_from([1, 2, 3]), duration_ms=spans, more=batched)
    def pause(self, name: str, direction: int, duration_ms: int, more: bool) -> None:
        expected = PauseDirection(direction)
        self.send(
            more,
            lambda done: self.store.pause(NAMESPACE, name, direction, duration_ms, done),
            lambda seen: self.same_queue(seen, self.model_of(name).pause(name, expected, duration_ms)),
        )

    @rule(name=names, more=batched)
    def resume(self, name: str, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.resume(NAMESPACE, name, done),
            lambda seen: self.same_queue(seen, self.model_of(name).resume(name)),
        )

    @rule(name=names, more=batched)
    def count(self, name: str, more: bool) -> None:
        def check(seen: Any) -> None:
            expected = self.model_of(name).settled(name)
            self.same(seen, expected if isinstance(expected, Reason) else QueueCounts(*expected.counts()))

        self.send(more, lambda done: self.store.count(NAMESPACE, name, done), check)

    @rule(name=names, state=states, limit=st.sampled_from([1, 2, 100]))
    def list_jobs(self, name: str, state: JobState, limit: int) -> None:
        self.flush()
        expected = self.model_of(name).settled(name)
        seen: list[Job] = []
        cursor: tuple[bytes, bytes] | None = None
        while True:
            page = self.run(self.opened.do(self.store.list_jobs, NAMESPACE, name, state, limit, cursor, True))
            if isinstance(expected, Reason):
                self.refused(page, expected)
                return
            assert isinstance(page, JobPage), page
            seen += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
        listed = expected.within(state)
        assert [job.id for job in seen] == [job.id for job in listed]
        for job, modelled in zip(seen, listed, strict=True):
            self.same_job(job, modelled)

    @rule(name=names, more=batched)
    def delete_queue(self, name: str, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.delete_queue(NAMESPACE, name, done),
            lambda seen: self.same(seen, self.model_of(name).delete_queue(name)),
        )

    @rule(name=names, state=states)
    def purge(self, name: str, state: JobState) -> None:
        self.ask(
            lambda: self.store.purge_step(NAMESPACE, name, state),
            lambda seen: self.same(seen, self.model_of(name).purge(name, state)),
        )

    @rule(
        name=names,
        state=st.sampled_from([JobState.DEAD, JobState.DEAD, JobState.DELAYED]),
        contains=st.sampled_from(["", "", "bro", "lease"]),
        jobs_max=st.sampled_from([1, 100]),
        reset=either,
    )
    def redrive(self, name: str, state: JobState, contains: str, jobs_max: int, reset: bool) -> None:
        def check(seen: Any) -> None:
            expected = self.model_of(name).redrive(name, state, contains, jobs_max, reset)
            self.same(seen if isinstance(seen, Refusal) else seen[0], expected)

        self.ask(lambda: self.store.redrive_step(NAMESPACE, name, state, contains, jobs_max, reset, None), check)

    @rule(pick=picks, in_queue=scoped, state=st.sampled_from([JobState.DEAD, JobState.DELAYED]), reset=either)
    def redrive_job(self, pick: int, in_queue: str | None, state: JobState, reset: bool) -> None:
        job_id, scope, model = self.of_job(pick, in_queue, state)
        self.ask(
            lambda: self.store.redrive_job(job_id, scope, state, reset),
            lambda seen: self.same(seen, model.redrive_job(job_id, in_queue, state, reset)),
        )

    @rule(prefix=st.sampled_from(["", "a"]), after=st.sampled_from([None, "a"]), limit=st.sampled_from([1, 100]))
    def list_queues(self, prefix: str, after: str | None, limit: int) -> None:
        def check(seen: Any) -> None:
            known = sorted(self.models[0].queues)
            expected = [name for name in known if name.startswith(prefix) and (after is None or name > after)][:limit]
            assert [queue.name for queue in seen] == expected

        self.ask(lambda: self.store.list_queues(0, NAMESPACE, prefix, after, limit), check)

    # --- sessions

    @rule(session=sessions, ttl_ms=st.sampled_from([1000, 8000]), partition=partitions, more=batched)
    def heartbeat(self, session: bytes, ttl_ms: int, partition: int, more: bool) -> None:
        self.send(
            more,
            lambda done: self.store.heartbeat(partition, [session], ttl_ms, done),
            lambda seen: self.same(seen, [self.models[partition].heartbeat(session, ttl_ms)]),
        )

    @rule(session=sessions, owner=owners, partition=partitions, kept=st.none() | picks)
    def close_owner(self, session: bytes, owner: bytes, partition: int, kept: int | None) -> None:
        self.flush()
        jobs = [] if kept is None else [self.job_id(kept, JobState.LEASED)]
        self.ask(
            lambda: self.store.close_owner(partition, session, owner, None, jobs),
            lambda seen: self.same(seen, self.models[partition].close_owner(session, owner, jobs)),
        )

    @rule(session=sessions, partition=partitions)
    def close_session(self, session: bytes, partition: int) -> None:
        self.ask(
            lambda: self.store.close_session(partition, session),
            lambda seen: self.same(seen, self.models[partition].close_session(session)),
        )

    @rule(partition=partitions)
    def lapse(self, partition: int) -> None:
        self.ask(lambda: self.store.lapse(partition), lambda seen: self.same(seen, self.models[partition].lapse()))

    # --- duties and time

    @rule(by_ms=st.sampled_from([1, 500, 500, 1000, 1000, 3000, 8000, 60_000, 300_000]))
    def time_passes(self, by_ms: int) -> None:
        self.flush()
        self._advance(by_ms)

    @rule(partition=partitions)
    def settle_due(self, partition: int) -> None:
        def check(seen: Any) -> None:
            assert seen is False
            self.models[partition].settle_due()

        self.ask(lambda: self.store.settle_due(partition, 100), check)

    @rule(partition=partitions)
    def sweep(self, partition: int) -> None:
        def check(seen: Any) -> None:
            assert not isinstance(seen, Refusal)
            self.models[partition].sweep()

        self.ask(lambda: self.store.sweep(partition), check)

    @rule(partition=partitions, move=either)
    def letters(self, partition: int, move: bool) -> None:
        model = self.models[partition]

        def check(seen: Any) -> None:
            assert {letter.job.id for letter in seen} == model.letters()
            if not move:
                return
            for letter in seen:
                job = letter.job
                assert letter.to == "letters"
                answer = self.run(self.store.dead_letter(job, letter.to))
                self.same(answer, model.dead_letter(job.id, job.queue, "letters"))

        self.ask(lambda: self.store.letters(partition, 0, 100), check)

    # --- what holds after every step

    @precondition(lambda self: not self.waiting)
    @invariant()
    def the_log_tells_what_happened(self) -> None:
        for model, replay in zip(self.models, self.replays, strict=True):
            answer = self.run(self.store.read_events(model.partition, replay.last_offset, 10_000))
            events, last = answer
            for event in events:
                replay.play(event)
            assert replay.last_offset == last
            assert Counter(map(_told, events)) == model.events, partition_tag(model.partition)
            model.events.clear()
            living = {
                job.id: (queue.name, job.state)
                for queue in [*model.queues.values(), *model.deleting]
                for job in queue.jobs.values()
            }
            assert replay.jobs == living

    @precondition(lambda self: not self.waiting)
    @invariant()
    def the_keys_agree(self) -> None:
        for model in self.models:
            found = PartitionState(self.redis, model.partition)
            found.check()
            states = {
                job.id // PARTITIONS: job.state
                for queue in [*model.queues.values(), *model.deleting]
                for job in queue.jobs.values()
            }
            assert found.states() == states


def _told(event: Event) -> tuple[int, str, int, int, int, int, int, str]:
    return (
        event.kind, event.queue, event.job_id, event.attempt, event.wait_ms, event.service_ms, event.state,
        event.detail,
    )  # fmt: skip


@pytest.mark.timeout(0)
def test_redis_and_the_model_agree(redis_server: RedisServer) -> None:
    class OnThisServer(Comparison):
        def __init__(self) -> None:
            super().__init__(redis_server.path)

    compare(OnThisServer)
