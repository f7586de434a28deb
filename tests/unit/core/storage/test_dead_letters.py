"""Dead jobs of queues that name a dead-letter queue: told, moved by whoever asked, gone from where they died."""

from __future__ import annotations

from quintet_core.domain.job import DeadLetter
from quintet_core.storage.redis_store import Scope

from tests.support import model
from tests.support.partition_state import PartitionState
from tests.support.redis_server import RedisConnection
from tests.support.store import Reason, reason_of
from tests.unit.core.storage.verbs import NAMESPACE, Verbs


async def letters(verbs: Verbs, limit: int = 100, skip: int = 0) -> list[DeadLetter]:
    """What is to move."""
    found = await verbs.store.letters(verbs.partition, skip, limit)
    assert isinstance(found, list)
    return found


async def kill(verbs: Verbs, payload: bytes = b"dead", queue: str = "q") -> int:
    """A dead job."""
    job_id = await verbs.put(payload, queue=queue, attempts_max=1)
    await verbs.release(await verbs.take(queue), failure_reason="broken")
    return job_id


async def test_a_dead_job_is_told_with_all_that_a_copy_needs(verbs: Verbs) -> None:
    await verbs.create(dead_letter_queue="letters")
    job_id = await kill(verbs, b"payload")
    (letter,) = await letters(verbs)
    job = letter.job
    assert (job.id, job.payload, job.attempts, job.failure_reason) == (job_id, b"payload", 1, "broken")
    assert letter.to == "letters"


async def test_each_death_has_a_token_of_its_own(verbs: Verbs) -> None:
    await verbs.create(dead_letter_queue="letters")
    await kill(verbs)
    (first,) = await letters(verbs)
    await verbs.store.redrive_job(first.job.id, Scope.of(NAMESPACE, None), first.job.state, True)
    await verbs.release(await verbs.take(), failure_reason="broken again")
    (second,) = await letters(verbs)
    assert second.job.id == first.job.id
    assert second.token > first.token


async def test_some_can_be_skipped(verbs: Verbs) -> None:
    await verbs.create(dead_letter_queue="letters")
    for payload in (b"1", b"2", b"3"):
        await kill(verbs, payload)
    assert [letter.job.payload for letter in await letters(verbs, 1, skip=1)] == [b"2"]


async def test_a_moved_letter_is_gone(verbs: Verbs) -> None:
    await verbs.create(dead_letter_queue="letters")
    await kill(verbs)
    job = (await letters(verbs))[0].job
    assert await verbs.store.dead_letter(job, "letters") is None
    assert reason_of(await verbs.store.dead_letter(job, "letters")) is Reason.JOB_NOT_FOUND
    assert await letters(verbs) == []
    assert (await verbs.count()).dead == 0
    event = (await verbs.events())[-1]
    assert (event.kind, event.detail, event.state) == (model.DEAD_LETTERED, "letters", 0)


async def test_a_redriven_job_is_no_letter_any_more(verbs: Verbs, redis: RedisConnection) -> None:
    await verbs.create(dead_letter_queue="letters")
    await kill(verbs)
    job = (await letters(verbs))[0].job
    await verbs.store.redrive_job(job.id, Scope.of(NAMESPACE, None), job.state, True)
    PartitionState(redis, verbs.partition).check()
    assert await letters(verbs) == []
    assert reason_of(await verbs.store.dead_letter(job, "letters")) is Reason.NOT_LEASED


async def test_dead_jobs_of_other_queues_stay(verbs: Verbs) -> None:
    await kill(verbs)
    assert await letters(verbs) == []
    assert (await verbs.count()).dead == 1


async def test_letters_of_a_queue_that_wants_none_any_more_make_room_for_others(
    verbs: Verbs, redis: RedisConnection
) -> None:
    one, two, three = verbs.siblings(3)
    for queue in (one, two, three):
        await verbs.create(queue, dead_letter_queue="letters")
        await kill(verbs, queue.encode(), queue)
    await verbs.update(one)
    await verbs.delete_queue(two)
    assert await letters(verbs, 2) == []
    job = (await letters(verbs, 2))[0].job
    assert job.queue == three
    assert redis.command("ZCARD", f"{{p{verbs.partition:02d}}}:letters") == 1
