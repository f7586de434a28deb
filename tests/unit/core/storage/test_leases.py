"""Leases: who holds a job, for how long, and what its token is good for."""

from __future__ import annotations

import pytest
from quintet_core.domain.job import Job, JobState, LeaseTerms, Placement
from quintet_core.domain.outcomes import Acknowledged, Deleted, Extended, Released

from tests.support.store import START_MS, Clock, Reason, reason_of
from tests.unit.core.storage.verbs import Verbs, owned, token_of


async def test_a_dequeued_job_tells_all_about_itself(verbs: Verbs) -> None:
    job_id = await verbs.put(
        b"payload", rank=-3, content_type="text/plain", attributes={"a": "1"}, attempts_max=5, lease_ms=7000
    )
    job = await verbs.take(terms=LeaseTerms(worker="worker 1"))
    assert (job.id, job.payload, job.payload_bytes, job.rank) == (job_id, b"payload", 7, -3)
    assert (job.content_type, job.attributes) == ("text/plain", {"a": "1"})
    assert (job.attempts, job.attempts_max, job.state) == (1, 5, JobState.LEASED)
    assert job.lease is not None
    assert (job.lease.deadline_at_ms, job.lease.worker) == (START_MS + 7000, "worker 1")
    assert (job.enqueued_at_ms, job.available_at_ms, job.expires_at_ms) == (START_MS, START_MS, 0)


@pytest.mark.parametrize(
    ("asked_ms", "job_ms", "queue_ms", "lasts_ms"),
    [(1000, 2000, 3000, 1000), (0, 2000, 3000, 2000), (0, 0, 3000, 3000), (0, 0, 0, 60_000)],
)
async def test_a_lease_lasts_as_asked_or_as_the_job_or_the_queue_says(
    verbs: Verbs, asked_ms: int, job_ms: int, queue_ms: int, lasts_ms: int
) -> None:
    await verbs.create(lease_ms=queue_ms)
    await verbs.put(lease_ms=job_ms)
    job = await verbs.take(terms=LeaseTerms(asked_ms))
    assert job.lease is not None
    assert job.lease.deadline_at_ms == START_MS + lasts_ms


async def test_a_leased_job_is_handed_to_nobody_else(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    await verbs.take(terms=LeaseTerms(1000))
    clock.advance(999)
    assert await verbs.take_all() == []
    clock.advance(1)
    again = await verbs.take()
    assert (again.attempts, again.failure_reason) == (2, "lease expired")


async def test_an_acknowledged_job_is_gone(verbs: Verbs) -> None:
    await verbs.put()
    job = await verbs.take()
    assert await verbs.acknowledge(job) == Acknowledged()
    assert reason_of(await verbs.acknowledge(job)) is Reason.JOB_NOT_FOUND
    assert reason_of(await verbs.get(job.id)) is Reason.JOB_NOT_FOUND


async def test_the_token_of_an_earlier_lease_is_stale(verbs: Verbs) -> None:
    await verbs.put()
    first = await verbs.take()
    await verbs.release(first)
    second = await verbs.take()
    assert token_of(second) > token_of(first)
    for answer in (await verbs.acknowledge(first), await verbs.release(first), await verbs.extend(first)):
        assert reason_of(answer) is Reason.STALE_LEASE
    assert await verbs.acknowledge(second) == Acknowledged()


async def test_a_lease_that_ran_out_cannot_be_completed(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=LeaseTerms(1000))
    clock.advance(1000)
    for answer in (await verbs.acknowledge(job), await verbs.release(job), await verbs.extend(job)):
        assert reason_of(answer) is Reason.NOT_LEASED
    assert await verbs.state(job.id) is JobState.READY
    assert reason_of(await verbs.acknowledge(job)) is Reason.NOT_LEASED


async def test_without_a_token_whichever_lease_holds_the_job_ends(verbs: Verbs) -> None:
    job_id = await verbs.put()
    assert reason_of(await verbs.acknowledge(job_id)) is Reason.NOT_LEASED
    await verbs.take()
    assert await verbs.acknowledge(job_id) == Acknowledged()


async def test_a_job_is_found_only_in_the_queue_and_namespace_that_are_named(verbs: Verbs) -> None:
    one, two = verbs.siblings(2)
    job_id = await verbs.put(queue=one)
    await verbs.put(queue=two)
    await verbs.take(one)
    assert reason_of(await verbs.acknowledge(job_id, queue=two)) is Reason.JOB_NOT_FOUND
    assert reason_of(await verbs.get(job_id, queue=two)) is Reason.JOB_NOT_FOUND
    assert reason_of(await verbs.delete(job_id, queue=two)) is Reason.JOB_NOT_FOUND
    assert await verbs.acknowledge(job_id, queue=one) == Acknowledged()


async def test_extend_counts_from_now(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=LeaseTerms(1000))
    clock.advance(600)
    assert await verbs.extend(job, 5000) == Extended(clock.now + 5000)
    clock.advance(4999)
    assert await verbs.take_all() == []
    assert await verbs.extend(job) == Extended(clock.now + 1000)
    clock.advance(1000)
    assert (await verbs.take()).id == job.id


async def test_a_lease_can_be_cut_short(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=LeaseTerms(60_000))
    await verbs.extend(job, 1)
    clock.advance(1)
    assert (await verbs.take()).id == job.id


async def test_an_owners_lease_has_no_deadline_to_extend(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    job = await verbs.take(terms=owned())
    assert job.lease is not None
    assert job.lease.deadline_at_ms == 0
    assert reason_of(await verbs.extend(job, 1000)) is Reason.INVALID_ARGUMENT
    clock.advance(10**9)
    assert await verbs.take_all() == []
    assert await verbs.acknowledge(job) == Acknowledged()


async def test_a_release_can_wait(verbs: Verbs, clock: Clock) -> None:
    await verbs.put()
    assert await verbs.release(await verbs.take(), delay_ms=500) == Released(JobState.DELAYED)
    assert await verbs.take_all() == []
    clock.advance(500)
    assert (await verbs.take()).attempts == 2


async def test_the_reason_of_a_release_stays_until_there_is_another(verbs: Verbs) -> None:
    job_id = await verbs.put()
    await verbs.release(await verbs.take(), failure_reason="no disk")
    await verbs.release(await verbs.take())
    assert (await verbs.get(job_id)).failure_reason == "no disk"


async def test_attempts_that_are_used_up_kill(verbs: Verbs) -> None:
    await verbs.put(attempts_max=2)
    assert await verbs.release(await verbs.take()) == Released(JobState.READY)
    assert await verbs.release(await verbs.take(), failure_reason="broken") == Released(JobState.DEAD)
    assert await verbs.take_all() == []
    (dead,) = (await verbs.page(JobState.DEAD)).jobs
    assert (dead.attempts, dead.failure_reason) == (2, "broken")


async def test_the_queues_attempts_count_when_the_job_has_none_of_its_own(verbs: Verbs, clock: Clock) -> None:
    await verbs.create(attempts_max=1)
    mine, own = await verbs.put(), await verbs.put(attempts_max=2)
    await verbs.take_all()
    clock.advance(60_000)
    assert await verbs.state(mine) is JobState.DEAD
    assert await verbs.state(own) is JobState.READY


async def test_an_undone_delivery_does_not_count(verbs: Verbs) -> None:
    await verbs.put(attempts_max=1)
    for _ in range(3):
        job = await verbs.take()
        assert job.attempts == 1
        assert await verbs.release(job, undo_attempt=True) == Released(JobState.READY)


async def test_each_failure_waits_twice_as_long_up_to_the_longest(verbs: Verbs, clock: Clock) -> None:
    await verbs.create(backoff_ms=100, backoff_max_ms=350)
    job_id = await verbs.put()
    for waits_ms in (100, 200, 350, 350):
        assert await verbs.release(await verbs.take()) == Released(JobState.DELAYED)
        assert (await verbs.get(job_id)).available_at_ms == clock.now + waits_ms
        clock.advance(waits_ms)


async def test_a_delay_given_replaces_the_backoff(verbs: Verbs) -> None:
    await verbs.create(backoff_ms=100)
    await verbs.put()
    assert await verbs.release(await verbs.take(), delay_ms=0) == Released(JobState.READY)


async def test_undone_to_nothing_there_is_no_backoff(verbs: Verbs) -> None:
    await verbs.create(backoff_ms=101)
    await verbs.put()
    assert await verbs.release(await verbs.take(), undo_attempt=True) == Released(JobState.READY)


@pytest.mark.parametrize("state", list(JobState))
async def test_delete_takes_a_job_in_any_state(verbs: Verbs, state: JobState) -> None:
    job_id = await in_state(verbs, state)
    assert await verbs.delete(job_id) == Deleted(state)
    assert reason_of(await verbs.delete(job_id)) is Reason.JOB_NOT_FOUND
    counts = await verbs.count()
    assert (counts.ready, counts.delayed, counts.leased, counts.dead) == (0, 0, 0, 0)


async def in_state(verbs: Verbs, state: JobState) -> int:
    """A job of the queue "q" in a state."""
    job_id = await verbs.put(attempts_max=1, delay_ms=9000 if state is JobState.DELAYED else 0)
    if state in (JobState.LEASED, JobState.DEAD):
        job: Job = await verbs.take()
        if state is JobState.DEAD:
            await verbs.release(job)
    assert await verbs.state(job_id) is state
    return job_id


async def test_get_job_can_leave_the_payload_out(verbs: Verbs) -> None:
    job_id = await verbs.put(b"payload", attributes={"k": "v"}, content_type="c", deduplication_key="d")
    job = await verbs.get(job_id, with_payload=False)
    assert (job.payload, job.payload_bytes) == (b"", 7)
    assert (job.attributes, job.content_type, job.deduplication_key) == ({"k": "v"}, "c", "d")


async def test_a_tail_of_a_tail_is_found_by_its_id(verbs: Verbs) -> None:
    job_id = await verbs.put(rank=2**63 - 1)
    for _ in range(3):
        await verbs.release(await verbs.take(), placement=Placement.TAIL)
    assert await verbs.state(job_id) is JobState.READY
    assert await verbs.delete(job_id) == Deleted(JobState.READY)
