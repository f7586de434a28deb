"""The event log: every change once, in order, without gaps, for as long as somebody still reads it."""

from __future__ import annotations

import asyncio

import pytest
from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Event, PartitionLog
from quintet_core.domain.job import JobState, Placement

from tests.support import model
from tests.support.store import START_MS, Clock, Reason, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, Verbs


def told(event: Event) -> tuple[int, int, int, int, int, int, str]:
    """Kind, attempt, wait, service, size, state, detail."""
    return (
        event.kind,
        event.attempt,
        event.wait_ms,
        event.service_ms,
        event.payload_bytes,
        event.state,
        event.detail,
    )


async def test_a_jobs_life_can_be_read_in_the_log(verbs: Verbs, clock: Clock) -> None:
    job_id = await verbs.put(b"12345", rank=-7)
    clock.advance(100)
    job = await verbs.take()
    clock.advance(20)
    await verbs.extend(job)
    clock.advance(3)
    await verbs.release(job, failure_reason="no", delay_ms=50, placement=Placement.TAIL)
    clock.advance(60)
    again = await verbs.take()
    clock.advance(1)
    await verbs.acknowledge(again)
    events = await verbs.events()
    assert [event.offset for event in events] == list(range(1, 9))
    assert {(event.queue, event.namespace, event.partition) for event in events} == {("q", NAMESPACE, verbs.partition)}
    assert events[0].kind == model.CREATED
    assert (events[0].job_id, events[0].rank) == (0, 0)
    assert {(event.job_id, event.rank) for event in events[1:]} == {(job_id, -7)}
    assert [told(event) for event in events[1:]] == [
        (model.ENQUEUED, 0, 0, 0, 5, JobState.READY, ""),
        (model.DEQUEUED, 1, 100, 0, 5, JobState.LEASED, ""),
        (model.EXTENDED, 1, 0, 0, 5, JobState.LEASED, ""),
        (model.RELEASED, 1, 0, 23, 5, JobState.DELAYED, "no"),
        (model.BECAME_READY, 1, 0, 0, 5, JobState.READY, ""),
        (model.DEQUEUED, 2, 10, 0, 5, JobState.LEASED, ""),
        (model.ACKNOWLEDGED, 2, 0, 1, 5, 0, ""),
    ]
    assert events[-1].at_ms == START_MS + 184


async def test_a_refusal_is_no_event(verbs: Verbs) -> None:
    await verbs.create()
    before = await verbs.events()
    await verbs.create()
    await verbs.take_all()
    await verbs.acknowledge(4711)
    await verbs.count()
    assert await verbs.events() == before


async def test_the_log_is_read_from_any_offset_in_any_portion(verbs: Verbs) -> None:
    await asyncio.gather(*(verbs.put() for _ in range(300)))
    for _ in range(40):
        await verbs.put()
    everything = await verbs.events()
    assert [event.offset for event in everything] == list(range(1, 342))
    for after in (0, 1, 150, 300, 340, 341):
        answer = await verbs.store.read_events(verbs.partition, after, 7)
        assert answer == (everything[after : after + 7], 341)


async def test_reading_a_long_log_in_portions_misses_nothing(verbs: Verbs) -> None:
    for _ in range(100):
        await verbs.put()
    seen: list[int] = []
    while True:
        answer = await verbs.store.read_events(verbs.partition, len(seen), 33)
        assert isinstance(answer, tuple)
        if not answer[0]:
            break
        seen += [event.offset for event in answer[0]]
    assert seen == list(range(1, 102))


async def test_events_of_one_batch_tell_their_own_queues(verbs: Verbs) -> None:
    names = verbs.siblings(3)
    await asyncio.gather(*(verbs.put(queue=name) for name in names * 2))
    events = [event for event in await verbs.events() if event.kind == model.ENQUEUED]
    assert [event.queue for event in events] == names * 2


async def describe(verbs: Verbs, consumer: str = "") -> PartitionLog:
    """What the partition says of its log."""
    log = await verbs.store.describe_events(verbs.partition, consumer)
    assert isinstance(log, PartitionLog)
    return log


async def test_without_consumers_a_short_tail_is_kept(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    assert await describe(verbs) == PartitionLog(verbs.partition, 1, 10, -1, 0, START_MS, START_MS)
    assert await verbs.store.trim_events(verbs.partition, 3, 1000) == (8, 10, False)
    assert [event.offset for event in await verbs.events(7)] == [8, 9, 10]
    refused = await verbs.store.read_events(verbs.partition, 6, 10)
    assert reason_of(refused) is Reason.OFFSET_TRIMMED
    assert refused.metadata == {"first_offset": "8"}  # type: ignore[union-attr]


async def test_a_read_beside_the_first_changes_of_all_misses_nothing(verbs: Verbs) -> None:
    putting = asyncio.ensure_future(verbs.put())
    await asyncio.sleep(0)
    log, read = await asyncio.gather(describe(verbs), verbs.store.read_events(verbs.partition, 0, 10))
    await putting
    assert log == PartitionLog(verbs.partition, 1, 2, -1, 0, START_MS, START_MS)
    assert not isinstance(read, Refusal)
    assert [event.offset for event in (await verbs.events(0))] == [1, 2]


async def test_what_a_consumer_has_not_dealt_with_is_kept(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    assert await verbs.store.commit_offset(verbs.partition, "spark", 4, 1) == 4
    assert await verbs.store.commit_offset(verbs.partition, "other", 6, 1) == 6
    assert await verbs.store.trim_events(verbs.partition, 1, 1000) == (5, 10, False)
    assert await describe(verbs, "spark") == PartitionLog(verbs.partition, 5, 10, 4, 1, START_MS, START_MS)
    assert (await describe(verbs, "nobody")).committed_offset == -1


async def test_the_cap_cuts_even_that_and_says_so(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    await verbs.store.commit_offset(verbs.partition, "spark", 2, 1)
    assert await verbs.store.trim_events(verbs.partition, 1, 4) == (7, 10, True)


async def test_what_is_young_is_kept_up_to_the_cap_and_nobody_misses_the_rest(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    assert await verbs.store.trim_events(verbs.partition, 1, 1000, 4) == (5, 10, False)
    assert await verbs.store.trim_events(verbs.partition, 1, 3, 4) == (8, 10, False)
    await verbs.store.commit_offset(verbs.partition, "spark", 7, 1)
    assert await verbs.store.trim_events(verbs.partition, 1, 1000, 9) == (8, 10, False)


@pytest.mark.parametrize(("tail", "cap"), [(0, 100), (100, 0), (0, 0)])
async def test_the_last_entry_stays_whatever_is_trimmed(verbs: Verbs, tail: int, cap: int) -> None:
    for _ in range(5):
        await verbs.put()
    first, last, _ = await verbs.store.trim_events(verbs.partition, tail, cap)  # type: ignore[misc]
    assert (first, last) == (6, 6)
    await verbs.put()
    assert [event.offset for event in await verbs.events(5)] == [6, 7]


async def test_an_entry_is_cut_only_when_all_its_events_may_go(verbs: Verbs) -> None:
    await asyncio.gather(*(verbs.put() for _ in range(10)))
    assert await verbs.store.trim_events(verbs.partition, 3, 1000) == (1, 11, False)


async def test_a_committed_offset_never_moves_back(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    await verbs.store.commit_offset(verbs.partition, "c", 5, 1)
    assert await verbs.store.commit_offset(verbs.partition, "c", 3, 1) == 5
    assert await verbs.store.commit_offset(verbs.partition, "c", 3, 2) == 5


async def test_a_later_epoch_shuts_out_the_earlier(verbs: Verbs) -> None:
    await verbs.put()
    await verbs.store.commit_offset(verbs.partition, "c", 1, 2)
    refused = await verbs.store.commit_offset(verbs.partition, "c", 2, 1)
    assert reason_of(refused) is Reason.STALE_EPOCH
    assert refused.metadata == {"epoch": "2"}  # type: ignore[union-attr]


async def test_nobody_commits_what_has_not_happened(verbs: Verbs) -> None:
    await verbs.put()
    refused = await verbs.store.commit_offset(verbs.partition, "c", 3, 1)
    assert reason_of(refused) is Reason.INVALID_ARGUMENT
    assert refused.metadata == {"last_offset": "2"}  # type: ignore[union-attr]


async def test_cores_of_before_there_were_two_logs_are_answered_as_they_were(verbs: Verbs) -> None:
    for _ in range(9):
        await verbs.put()
    ask, partition = verbs.store.ask, verbs.partition
    assert await ask(partition, "commit_offset", "old", 4, 1) == b"4"
    assert await ask(partition, "describe_events", "old") == [b"1", b"10", b"4", b"1"]
    # The queue and its first job are one entry.
    for wanted, fields in (((b"1",), 5), ((), 4)):
        read = await ask(partition, "read_events", 0, 100, *wanted)
        assert not isinstance(read, Refusal)
        assert len(read) == 2 + 9 * fields
    assert await ask(partition, "trim_events", 1, 1000) == [b"5", b"10", 0]
    assert await ask(partition, "trim_events", 1, 3, 2**53) == [b"8", b"10", 1]
