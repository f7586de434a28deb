"""Each duty, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from quintet_core.domain.errors import Refusal
from quintet_core.domain.job import DeadLetter, Job, JobState, LeaseTerms, NewJob, Placement
from quintet_core.domain.outcomes import Dequeued
from quintet_core.domain.queue import QueueSettings
from quintet_core.domain.table import RowPut
from quintet_core.maintenance.due import DueTimers
from quintet_core.maintenance.letters import JOBS_PER_STEP, REASON, SOURCE, DeadLetters
from quintet_core.maintenance.logs import LogTrim, Retention
from quintet_core.maintenance.sessions import LapsedSessions
from quintet_core.maintenance.sweep import IDLE_ROUNDS, Sweep
from quintet_core.storage.records import unpack_leased
from quintet_core.storage.redis_store import Scope
from quintet_core.storage.table_store import TableStore

from tests.support.redis_server import RedisConnection
from tests.support.store import Clock, OpenStore, Reason

SPACE = "default"


class Queues:
    """The verbs that these tests need."""

    def __init__(self, opened: OpenStore) -> None:
        self._opened = opened
        self.store = opened.store

    async def put(self, queue: str, *payloads: bytes, **fields: Any) -> list[int]:
        jobs = [NewJob(payload, **fields) for payload in payloads]
        ids: list[int] = (await self._opened.do(self.store.enqueue, SPACE, queue, jobs, True)).ids
        return ids

    async def take(self, queue: str, terms: LeaseTerms | None = None) -> list[Job]:
        outcome = await self._opened.do(
            self.store.dequeue, SPACE, [queue], 10, terms or LeaseTerms(), allow_missing=True, await_jobs=False
        )
        assert isinstance(outcome, Dequeued)
        return list(map(unpack_leased, outcome.jobs))

    async def give_back(self, job: Job, reason: str = "") -> None:
        assert job.lease is not None
        outcome = await self._opened.do(
            self.store.release,
            job.id,
            Scope.of(SPACE, None),
            job.lease.token,
            delay_ms=0,
            placement=Placement.ORIGINAL,
            failure_reason=reason,
            undo_attempt=False,
        )
        assert not isinstance(outcome, Refusal)

    async def counts(self, queue: str) -> tuple[int, int, int, int]:
        counts = await self._opened.do(self.store.count, SPACE, queue)
        return (counts.ready, counts.delayed, counts.leased, counts.dead)

    async def create(self, queue: str, **settings: Any) -> None:
        await self._opened.do(self.store.create_queue, SPACE, queue, QueueSettings(**settings))


@pytest.fixture
def queues(opened: OpenStore) -> Queues:
    return Queues(opened)


class TestDueTimers:
    @pytest.fixture
    async def timers(self, opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DueTimers]:
        timers = DueTimers(opened.store)
        monkeypatch.setattr(opened.recorder, "on_clock", timers.on_clock)
        yield timers
        await timers.close()

    async def test_carry_out_a_delay_when_it_is_over(
        self, opened: OpenStore, queues: Queues, timers: DueTimers
    ) -> None:
        ids = await queues.put("q", b"x", delay_ms=30)
        partition = opened.store.partition_of(SPACE, "q")
        while True:
            events, _ = await self._events(opened, partition)
            if events[-1].state == JobState.READY:
                break
            await asyncio.sleep(0.01)
        assert events[-1].job_id == ids[0]

    async def test_give_back_a_job_whose_lease_is_over(
        self, opened: OpenStore, queues: Queues, timers: DueTimers
    ) -> None:
        await queues.put("q", b"x")
        await queues.take("q", LeaseTerms(lease_ms=30))
        partition = opened.store.partition_of(SPACE, "q")
        while True:
            events, _ = await self._events(opened, partition)
            if events[-1].detail == "lease expired":
                break
            await asyncio.sleep(0.01)

    async def test_hear_of_what_another_core_left_by_asking(self, opened: OpenStore, queues: Queues) -> None:
        await queues.put("q", b"x", delay_ms=30)  # nobody listens yet
        timers = DueTimers(opened.store)
        opened.recorder.on_clock = timers.on_clock  # type: ignore[method-assign]
        assert await timers.ask_all() is None
        partition = opened.store.partition_of(SPACE, "q")
        while (await self._events(opened, partition))[0][-1].state != JobState.READY:
            await asyncio.sleep(0.01)
        await timers.close()

    async def _events(self, opened: OpenStore, partition: int) -> tuple[list[Any], int]:
        answer = await opened.store.read_events(partition, 0, 100)
        assert not isinstance(answer, Refusal)
        return answer


class TestLapsedSessions:
    async def test_lose_their_leases(self, opened: OpenStore, queues: Queues, clock: Clock) -> None:
        await queues.put("q", b"1", b"2")
        terms = LeaseTerms(session=b"session1", owner=b"owner001", session_ttl_ms=1000)
        assert len(await queues.take("q", terms)) == 2
        lapsed = LapsedSessions(opened.store)
        clock.advance(900)
        assert await lapsed.release() is None
        assert await queues.counts("q") == (0, 0, 2, 0)
        clock.advance(200)
        assert await lapsed.release() is None
        assert await queues.counts("q") == (2, 0, 0, 0)


class TestSweep:
    async def test_removes_what_a_deleted_queue_left(
        self, opened: OpenStore, queues: Queues, redis: RedisConnection
    ) -> None:
        await queues.put("q", *(b"x" for _ in range(450)))
        assert await opened.do(opened.store.delete_queue, SPACE, "q") == 450
        tag = f"{{p{opened.store.partition_of(SPACE, 'q'):02d}}}"
        assert redis.command("HLEN", f"{tag}:jobs") == 450
        assert await Sweep(opened.store).sweep() is None
        assert redis.command("EXISTS", f"{tag}:jobs", f"{tag}:deleting") == 0

    async def test_looks_seldom_where_there_was_nothing(self, opened: OpenStore) -> None:
        sweep = Sweep(opened.store)
        batches: list[int] = []
        for _ in range(IDLE_ROUNDS + 2):
            before = len(opened.recorder.batches)
            await sweep.sweep()
            batches.append(len(opened.recorder.batches) - before)
        assert [bool(batch) for batch in batches] == [True, *[False] * IDLE_ROUNDS, True]

    async def test_looks_at_once_where_a_table_with_rows_was_deleted(
        self, opened: OpenStore, redis: RedisConnection
    ) -> None:
        sweep = Sweep(opened.store)
        tables = TableStore(opened.store.pipeline, opened.store.partitions, sweep.expect)
        await sweep.sweep()
        await opened.do(tables.put_row, SPACE, "t", RowPut(b"k", b"v"), True)
        assert await opened.do(tables.delete_table, SPACE, "t") == 1
        tag = f"{{p{tables.partition_of(SPACE, 't'):02d}}}"
        assert redis.command("EXISTS", f"{tag}:dropping") == 1
        await sweep.sweep()
        assert redis.command("EXISTS", f"{tag}:dropping") == 0


class TestLogTrim:
    async def test_keeps_a_tail_when_nobody_needs_more(self, opened: OpenStore, queues: Queues) -> None:
        for _ in range(10):
            await queues.put("q", b"x")
        partition = opened.store.partition_of(SPACE, "q")
        dropped: list[None] = []
        assert await LogTrim(opened.store, Retention(3, 0, 1000), lambda: dropped.append(None)).trim() is None
        log = await opened.store.describe_events(partition, "")
        assert not isinstance(log, Refusal)
        assert (log.first_offset, log.last_offset) == (9, 11)
        assert not dropped

    async def test_keeps_what_a_consumer_needs_up_to_the_cap(self, opened: OpenStore, queues: Queues) -> None:
        for _ in range(10):
            await queues.put("q", b"x")
        partition = opened.store.partition_of(SPACE, "q")
        assert await opened.store.commit_offset(partition, "consumer", 4, 1) == 4
        dropped: list[None] = []
        await LogTrim(opened.store, Retention(0, 0, 1000), lambda: dropped.append(None)).trim()
        log = await opened.store.describe_events(partition, "")
        assert not isinstance(log, Refusal)
        assert log.first_offset == 5
        assert not dropped
        await LogTrim(opened.store, Retention(0, 0, 2), lambda: dropped.append(None)).trim()
        log = await opened.store.describe_events(partition, "")
        assert not isinstance(log, Refusal)
        assert log.first_offset == 10
        assert dropped

    async def test_tells_how_much_is_held_and_how_far_consumers_are_behind(
        self, opened: OpenStore, queues: Queues
    ) -> None:
        for _ in range(9):
            await queues.put("q", b"x")
        partition = opened.store.partition_of(SPACE, "q")
        trim = LogTrim(opened.store, Retention(0, 0, 1000), _nothing)
        assert (trim.records_max, trim.lags()) == (0, {})
        for consumer, offset in (("near", 9), ("far", 2)):
            await opened.store.commit_offset(partition, consumer, offset, 1)
        await opened.store.commit_offset((partition + 1) % opened.store.partitions, "near", 0, 1)
        await trim.trim()
        assert (trim.records_max, trim.cap_ratio, trim.lags()) == (8, 0.008, {"far": 8, "near": 1})


def _nothing() -> None:
    """Nobody wants to know."""


class TestLogTrimByTime:
    KEEP_MS = 60_000

    @pytest.fixture
    def trims(self, opened: OpenStore) -> list[LogTrim]:
        """Of a core that is told the clocks, after it has begun; and of one that begins later."""
        return [LogTrim(opened.store, Retention(1, self.KEEP_MS, 1000), _nothing) for _ in range(2)]

    async def _first(self, opened: OpenStore, trim: LogTrim) -> int:
        """The first event that is left of queue q's partition when it was trimmed."""
        partition = opened.store.partition_of(SPACE, "q")
        if trim.on_clock not in opened.recorder.listeners:
            opened.recorder.listeners.append(trim.on_clock)
        assert await trim.trim() is None
        log = await opened.store.describe_events(partition, "")
        assert not isinstance(log, Refusal)
        return log.first_offset

    async def test_keeps_what_is_young(
        self, opened: OpenStore, queues: Queues, clock: Clock, trims: list[LogTrim]
    ) -> None:
        for _ in range(5):
            await queues.put("q", b"x")
        assert await self._first(opened, trims[0]) == 1
        clock.advance(self.KEEP_MS // 2)
        for _ in range(3):
            await queues.put("q", b"x")
        assert await self._first(opened, trims[0]) == 1
        clock.advance(self.KEEP_MS // 2 - 1)
        assert await self._first(opened, trims[0]) == 1
        assert await self._first(opened, trims[0]) == 1
        clock.advance(1)
        await queues.put("q", b"x")
        assert await self._first(opened, trims[0]) == 7
        clock.advance(self.KEEP_MS // 2)
        await queues.put("q", b"x")
        assert await self._first(opened, trims[0]) == 10

    async def test_knows_no_ages_at_first(
        self, opened: OpenStore, queues: Queues, clock: Clock, trims: list[LogTrim]
    ) -> None:
        for _ in range(5):
            await queues.put("q", b"x")
        clock.advance(self.KEEP_MS * 10)
        for _ in range(3):
            assert await self._first(opened, trims[1]) == 1
        clock.advance(self.KEEP_MS)
        await queues.put("q", b"x")
        assert await self._first(opened, trims[1]) == 7

    async def test_remembers_no_more_than_it_needs(
        self, opened: OpenStore, queues: Queues, clock: Clock, trims: list[LogTrim]
    ) -> None:
        for _ in range(300):
            clock.advance(1000)
            await queues.put("q", b"x")
            await self._first(opened, trims[0])
        ages = trims[0]._ages[opened.store.partition_of(SPACE, "q")]
        assert len(ages._samples) <= self.KEEP_MS // 1000 + 2


class TestDeadLetters:
    async def _die(self, queues: Queues, *payloads: bytes, **fields: Any) -> list[int]:
        await queues.create("q", attempts_max=1, dead_letter_queue="letters")
        ids = await queues.put("q", *payloads, **fields)
        while jobs := await queues.take("q"):
            for job in jobs:
                await queues.give_back(job, "too bad")
        return ids

    async def test_move_with_all_they_had_and_where_they_came_from(self, opened: OpenStore, queues: Queues) -> None:
        await self._die(queues, b"1", b"2", rank=3, content_type="t", attributes={"a": "b"})
        moved: list[None] = []
        assert await DeadLetters(opened.store, lambda: moved.append(None)).move() is None
        assert len(moved) == 2
        assert await queues.counts("q") == (0, 0, 0, 0)
        first, second = await queues.take("letters")
        assert (first.payload, second.payload) == (b"1", b"2")
        assert (first.rank, first.content_type) == (3, "t")
        assert first.attributes == {"a": "b", SOURCE: "q", REASON: "too bad"}

    async def test_are_put_once_when_a_core_died_in_between(self, opened: OpenStore, queues: Queues) -> None:
        await self._die(queues, b"1")
        letters = DeadLetters(opened.store, lambda: None)
        (found,) = await self._found(opened)
        assert not isinstance(await letters._put(found), Refusal)  # and there it died
        assert await letters.move() is None
        assert await queues.counts("letters") == (1, 0, 0, 0)
        assert await queues.counts("q") == (0, 0, 0, 0)

    async def test_that_cannot_be_put_stay_dead(self, opened: OpenStore, queues: Queues) -> None:
        await queues.create("letters", jobs_max=1)
        await self._die(queues, b"1", b"2")
        refused = await DeadLetters(opened.store, lambda: None).move()
        assert refused is not None
        assert refused.reason is Reason.QUEUE_FULL
        assert await queues.counts("q") == (0, 0, 0, 1)
        assert await queues.counts("letters") == (1, 0, 0, 0)

    async def test_behind_one_that_cannot_be_put_are_moved(self, opened: OpenStore, queues: Queues) -> None:
        await queues.create("letters", payload_bytes_max=3)
        await self._die(queues, b"too long", *(b"%d" % number for number in range(2 * JOBS_PER_STEP)))
        refused = await DeadLetters(opened.store, lambda: None).move()
        assert refused is not None
        assert refused.reason is Reason.PAYLOAD_TOO_LARGE
        assert await queues.counts("q") == (0, 0, 0, 1)
        assert await queues.counts("letters") == (2 * JOBS_PER_STEP, 0, 0, 0)

    async def _found(self, opened: OpenStore) -> list[DeadLetter]:
        answer = await opened.store.letters(opened.store.partition_of(SPACE, "q"), 0, 10)
        assert not isinstance(answer, Refusal)
        return answer
