"""Dequeues that wait: who is served when, and how waits end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from quintet_core.domain.errors import CallerError, Reason, refusal
from quintet_core.domain.job import LeaseTerms
from quintet_core.domain.limits import Limits
from quintet_core.domain.outcomes import Dequeued
from quintet_core.domain.queue import PauseDirection
from quintet_core.storage.keys import name_key
from quintet_core.storage.redis_store import Best, Scope
from quintet_core.waiting.dequeues import CLAIMS_MAX, REVIEW_S, Dequeue, Dequeues

from tests.support.redis_server import RedisConnection
from tests.support.replica import NAMESPACE, Replica, Waiter


def siblings(replica: Replica, count: int) -> list[str]:
    """Names of queues that share a partition."""
    home = replica.store.partition_of(NAMESPACE, "q")
    names = (f"q{number}" for number in range(10_000))
    same = (name for name in names if replica.store.partition_of(NAMESPACE, name) == home)
    return [next(same) for _ in range(count)]


def strangers(replica: Replica, count: int) -> list[str]:
    """Names of queues of as many partitions."""
    found: dict[int, str] = {}
    for number in range(10_000):
        found.setdefault(replica.store.partition_of(NAMESPACE, f"q{number}"), f"q{number}")
    return list(found.values())[:count]


async def payloads(*waiters: Waiter) -> list[bytes]:
    return [(await waiter.job()).payload for waiter in waiters]


class TestOrder:
    async def test_is_that_of_arrival(self, replica: Replica) -> None:
        waiters = [replica.wait("q") for _ in range(20)]
        await replica.settled()
        await replica.put("q", *(b"%d" % number for number in range(20)))
        assert await payloads(*waiters) == [b"%d" % number for number in range(20)]

    async def test_holds_among_those_that_come_at_once_to_a_full_queue(self, replica: Replica) -> None:
        await replica.put("q", *(b"%d" % number for number in range(100)))
        before = len(replica.batches)
        waiters = [replica.wait("q") for _ in range(100)]
        assert await payloads(*waiters) == [b"%d" % number for number in range(100)]
        assert len(replica.batches) - before < 10

    async def test_lets_nobody_overtake_one_that_is_looked_after_again(self, replica: Replica) -> None:
        """A job that comes between the next try of who waits and the arrival of another is for who waits."""
        first = replica.wait("q")
        await replica.settled()
        replica.dequeues.review_all()
        replica.submit("q", b"only")
        second = replica.wait("q")
        assert await payloads(first) == [b"only"]
        assert second.parked

    async def test_holds_when_the_first_gives_up(self, replica: Replica) -> None:
        first, second, third = (replica.wait("q") for _ in range(3))
        await replica.settled()
        assert first.handle is not None
        first.handle.cancel()
        late = replica.wait("q")
        await replica.put("q", b"1", b"2", b"3")
        assert await payloads(second, third, late) == [b"1", b"2", b"3"]

    async def test_of_tries_goes_on_behind_whoever_was_served(self, replica: Replica) -> None:
        """More than are tried at once when one leaves."""
        waiters = [replica.wait("q") for _ in range(300)]
        await replica.settled()
        for at in range(0, 300, 100):
            await replica.put("q", *(b"%d" % number for number in range(at, at + 100)))
        assert await payloads(*waiters) == [b"%d" % number for number in range(300)]

    async def test_a_thousand_waiters_and_a_thousand_jobs_meet_in_batches(self, replica: Replica) -> None:
        waiters = [replica.wait("q") for _ in range(1000)]
        await replica.settled()
        before = len(replica.batches)
        jobs = [replica.submit("q", b"%d" % number) for number in range(1000)]
        assert await payloads(*waiters) == [b"%d" % number for number in range(1000)]
        await asyncio.gather(*jobs)
        assert len(replica.batches) - before < 60
        assert replica.dequeues.parked == 0


class TestTheEnd:
    async def test_comes_with_the_time(self, replica: Replica) -> None:
        waiters = [replica.wait("q", wait_ms=20) for _ in range(50)]
        assert [await waiter.jobs() for waiter in waiters] == [[]] * 50
        assert replica.dequeues.parked == 0

    async def test_of_one_that_was_never_woken_costs_no_try(self, replica: Replica) -> None:
        waiters = [replica.wait("q") for _ in range(2)]
        await replica.settled()
        replica.dequeues.review_all()
        await replica.settled()
        before = len(replica.batches)
        assert waiters[0].handle is not None
        waiters[0].handle.cancel()
        await replica.settled()
        assert len(replica.batches) == before + 1  # that of settled itself

    async def test_by_cancelling_is_told_once(self, replica: Replica) -> None:
        waiter = replica.wait("q")
        assert waiter.handle is not None
        waiter.handle.cancel()
        waiter.handle.cancel(Reason.OWNER_CLOSED)
        assert await waiter.reason() is Reason.OWNER_CLOSED  # it was being tried: the last word counts
        waiter.handle.cancel()
        waiter.handle.abandon()
        await replica.settled()

    async def test_by_cancelling_comes_too_late_for_a_job_that_is_being_taken(self, replica: Replica) -> None:
        await replica.put("q", b"taken")
        waiter = replica.wait("q")
        assert waiter.handle is not None
        waiter.handle.cancel()
        assert (await waiter.job()).payload == b"taken"

    async def test_by_abandoning_gives_a_job_back_as_if_it_had_never_been_taken(self, replica: Replica) -> None:
        await replica.put("q", b"back")
        gone, next_one = replica.wait("q"), replica.wait("q")
        assert gone.handle is not None
        gone.handle.abandon()
        job = await next_one.job()
        assert (job.payload, job.attempts, job.failure_reason) == (b"back", 1, "")
        assert gone.parked

    async def test_by_abandoning_one_of_several_queues_loses_nothing(self, replica: Replica) -> None:
        names = strangers(replica, 3)
        await replica.put(names[1])
        gone = replica.wait(*names)
        assert gone.handle is not None
        gone.handle.abandon()
        await replica.settled()
        assert (await replica.wait(names[1]).job()).attempts == 1
        assert replica.dequeues.parked == 0

    async def test_while_looking_across_partitions_takes_nothing(self, replica: Replica) -> None:
        names = strangers(replica, 3)
        await replica.put(names[1])
        waiter = replica.wait(*names)
        assert waiter.handle is not None
        waiter.handle.cancel()
        assert await waiter.reason() is Reason.CANCELLED
        assert (await replica.wait(names[1]).job()).attempts == 1

    async def test_comes_to_all_when_the_replica_closes(self, replica: Replica) -> None:
        await replica.put("full")
        waiters = [replica.wait("q"), replica.wait(*strangers(replica, 2)), replica.wait("q")]
        await replica.settled()
        replica.dequeues.close(refusal(Reason.DRAINING))
        waiters.append(replica.wait("full"))
        assert [await waiter.reason() for waiter in waiters] == [Reason.DRAINING] * 4
        assert len(await replica.take("full")) == 1
        assert replica.dequeues.parked == 0

    async def test_comes_with_the_end_of_a_queue_that_must_exist(self, replica: Replica) -> None:
        await replica.put("q")
        await replica.take("q")
        strict = [replica.wait("q", allow_missing=False) for _ in range(3)]
        lenient = replica.wait("q")
        await replica.settled()
        await replica.do(replica.store.delete_queue, NAMESPACE, "q")
        assert [await waiter.reason() for waiter in strict] == [Reason.QUEUE_NOT_FOUND] * 3
        await replica.put("q", b"again")
        assert await payloads(lenient) == [b"again"]

    async def test_is_heard_of_from_another_replica(self, replica: Replica, other: Replica) -> None:
        await replica.put("q")
        await replica.take("q")
        waiter = replica.wait("q", allow_missing=False)
        await replica.settled()
        await other.do(other.store.delete_queue, NAMESPACE, "q")
        assert await waiter.reason() is Reason.QUEUE_NOT_FOUND


class TestWaking:
    async def test_by_another_replica(self, replica: Replica, other: Replica) -> None:
        waiters = [replica.wait("q") for _ in range(3)]
        await replica.settled()
        await other.put("q", b"1", b"2", b"3")
        assert await payloads(*waiters) == [b"1", b"2", b"3"]

    async def test_by_what_was_missed_while_nothing_was_heard(
        self, replica: Replica, other: Replica, redis: RedisConnection
    ) -> None:
        waiter = replica.wait("q")
        await replica.settled()
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        await other.put("q", b"missed")
        assert await payloads(waiter) == [b"missed"]

    async def test_by_a_release_an_expiry_and_the_end_of_a_delay(self, replica: Replica) -> None:
        (job_id,) = await replica.put("q")
        (job,) = await replica.take("q")
        waiter = replica.wait("q", terms=LeaseTerms(30))
        assert job.lease is not None
        await replica.do(
            replica.store.release,
            job_id,
            Scope.of(NAMESPACE, None),
            job.lease.token,
            delay_ms=30,
            placement=1,
            failure_reason="",
            undo_attempt=False,
        )
        assert (await waiter.job()).attempts == 2
        assert (await replica.wait("q").job()).failure_reason == "lease expired"

    @pytest.mark.parametrize("duration_ms", [0, 30])
    async def test_by_the_end_of_a_pause(self, replica: Replica, duration_ms: int) -> None:
        await replica.put("q", b"1", b"2")
        await replica.do(replica.store.pause, NAMESPACE, "q", PauseDirection.OUT, duration_ms)
        waiters = [replica.wait("q") for _ in range(2)]
        if not duration_ms:
            await replica.settled()
            assert all(waiter.parked for waiter in waiters)
            await replica.do(replica.store.resume, NAMESPACE, "q")
        assert await payloads(*waiters) == [b"1", b"2"]

    async def test_gives_many_jobs_to_one_that_asked_for_many(self, replica: Replica) -> None:
        first, second = replica.wait("q", jobs_max=10), replica.wait("q", jobs_max=10)
        await replica.settled()
        await replica.put("q", *(b"%d" % number for number in range(12)))
        assert len(await first.jobs()) == 10
        assert len(await second.jobs()) == 2
        third = replica.wait("q", jobs_max=10)
        await replica.put("q")
        assert len(await third.jobs()) == 1

    async def test_is_passed_on_by_one_that_found_something_better_elsewhere(
        self, deaf: Replica, other: Replica
    ) -> None:
        """Woken for a job of one queue, it took another's: who waits behind it for the first is not forgotten."""
        here, there = siblings(deaf, 2)
        both, behind = deaf.wait(here, there), deaf.wait(here)
        await deaf.settled()
        await other.put(there, b"better", rank=-1)
        await deaf.put(here, b"left")
        assert await payloads(both, behind) == [b"better", b"left"]

    async def test_is_made_up_for_by_reviews_of_every_queue_in_its_time(self, deaf: Replica, other: Replica) -> None:
        names = strangers(deaf, 12)
        waiters = [deaf.wait(name) for name in names]
        await deaf.settled()
        for name in names:
            await other.put(name)
        for _ in range(int(REVIEW_S) + 1):
            deaf.dequeues.review_some(1.0)
        await asyncio.gather(*(waiter.job() for waiter in waiters))

    async def test_by_the_return_of_redis(self, replica: Replica) -> None:
        """Who was being tried as it went is refused, for a job may have been taken; everybody else goes on waiting."""
        tried, behind, elsewhere = replica.wait("q"), replica.wait("q"), replica.wait("other")
        await replica.settled()
        replica.dequeues.on_woken(name_key(NAMESPACE, "q"), 1)
        assert replica.link is not None
        replica.link.abort()
        assert await tried.reason() is Reason.UNAVAILABLE
        assert await replica.wait("new").reason() is Reason.UNAVAILABLE
        assert behind.parked
        assert elsewhere.parked
        await replica.connect()
        replica.dequeues.review_all()
        await replica.put("q", b"1")
        await replica.put("other", b"2")
        assert await payloads(behind, elsewhere) == [b"1", b"2"]


class TestSeveralQueues:
    async def test_give_the_best_of_all(self, replica: Replica) -> None:
        for names in (siblings(replica, 3), strangers(replica, 3)):
            for name, rank in zip(names, (2, -5, 7), strict=True):
                await replica.put(name, b"%d" % rank, rank=rank)
            taken = [(await replica.take(*names, *names))[0].payload for _ in range(3)]
            assert taken == [b"-5", b"2", b"7"]
            assert await replica.take(*names) == []

    async def test_are_waited_for_together(self, replica: Replica) -> None:
        for names in (siblings(replica, 3), strangers(replica, 3)):
            for name in names:
                waiter = replica.wait(*names)
                await replica.settled()
                await replica.put(name, name.encode())
                assert await payloads(waiter) == [name.encode()]

    async def test_that_are_missing_are_told_unless_they_may_be(self, replica: Replica) -> None:
        for names in (siblings(replica, 2), strangers(replica, 2)):
            await replica.put(names[0])
            assert await replica.wait(*names, allow_missing=False).reason() is Reason.QUEUE_NOT_FOUND
            assert len(await replica.take(*names)) == 1

    async def test_at_once_by_many_are_each_taken_once(self, replica: Replica, other: Replica) -> None:
        names = strangers(replica, 4)
        for name in names:
            await replica.put(name, *(b"x" for _ in range(10)))
        waiters = [where.wait(*names) for _ in range(20) for where in (replica, other)]
        jobs = [await waiter.job() for waiter in waiters]
        assert len({job.id for job in jobs}) == 40
        assert {job.attempts for job in jobs} == {1}

    async def test_whose_best_has_gone_are_looked_at_again(self, deaf: Replica, other: Replica) -> None:
        """Between the look and the claim somebody else takes the best: what is left there is worse than elsewhere."""
        here, there = strangers(deaf, 2)
        await other.put(here, b"best", rank=0)
        await other.put(here, b"worst", rank=9)
        await other.put(there, b"second", rank=5)
        thieves = steal_after_looking(deaf, other, here, times=1)
        assert (await deaf.take(here, there))[0].payload == b"second"
        assert await payloads(*thieves) == [b"best"]

    async def test_that_are_emptied_under_the_eyes_are_waited_for(self, deaf: Replica, other: Replica) -> None:
        here, there = strangers(deaf, 2)
        thefts = steal_after_looking(deaf, other, here, times=CLAIMS_MAX + 2, baits=True)
        waiter = deaf.wait(here, there)
        while len(thefts) < CLAIMS_MAX + 2:
            await deaf.settled()
        await deaf.settled()
        await deaf.put(there, b"mine")
        assert await payloads(waiter) == [b"mine"]

    async def test_none_at_all_is_a_wait_for_its_end(self, replica: Replica) -> None:
        waiter = replica.wait()
        replica.dequeues.review_all()
        await replica.settled()
        assert waiter.parked
        assert waiter.handle is not None
        waiter.handle.cancel()
        assert await waiter.reason() is Reason.CANCELLED


def steal_after_looking(victim: Replica, thief: Replica, queue: str, times: int, baits: bool = False) -> list[Waiter]:
    """The next looks of one replica are each followed by a take of the other, before anything else is done; and, with
    `baits`, come after a put for just that."""
    look, thefts = victim.store.best, list[Waiter]()

    def best(*arguments: Any) -> None:
        *before, done, order = arguments
        looking: Any = look

        def seen(outcome: Best | None) -> None:
            if outcome is None or len(thefts) == times:
                done(outcome)
                return
            thefts.append(thief.wait(queue, wait_ms=0))
            thefts[-1].answer.add_done_callback(lambda _: done(outcome))

        if baits and len(thefts) < times and queue in arguments[1]:
            thief.submit(queue).add_done_callback(lambda _: looking(*before, seen, order))
        else:
            looking(*before, seen, order)

    victim.store.best = best  # type: ignore[method-assign, assignment]
    return thefts


class TestBounds:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"wait_ms": -2}, Reason.INVALID_ARGUMENT),
            ({"wait_ms": 2**32}, Reason.INVALID_ARGUMENT),
            ({"queues": []}, Reason.INVALID_ARGUMENT),
            ({"queues": [], "wait_ms": -1}, Reason.INVALID_ARGUMENT),
            ({"queues": ["q"] * 1001}, Reason.LIMIT_EXCEEDED),
            ({"queues": ["x" * 4097]}, Reason.LIMIT_EXCEEDED),
            ({"jobs_max": 101}, Reason.INVALID_ARGUMENT),
            ({"namespace": "x" * 256}, Reason.LIMIT_EXCEEDED),
            ({"terms": LeaseTerms(-1)}, Reason.INVALID_ARGUMENT),
            ({"terms": LeaseTerms(worker="x" * 256)}, Reason.LIMIT_EXCEEDED),
        ],
    )
    async def test_are_kept_by_a_dequeue(self, replica: Replica, fields: dict[str, Any], reason: Reason) -> None:
        whole = {"namespace": NAMESPACE, "queues": ["q"], "terms": LeaseTerms(), **fields}
        for dequeue in (replica.dequeues.dequeue, replica.dequeues.take):
            caller: Callable[..., Any] = dequeue
            with pytest.raises(CallerError) as raised:
                caller(Dequeue(**whole), _never)
            assert raised.value.refusal.reason is reason
        assert replica.dequeues.parked == 0

    async def test_are_kept_by_all_that_wait(self, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replica.dequeues, "_limits", Limits(parked_max=2))
        waiters = [replica.wait("q") for _ in range(2)]
        assert await replica.wait("q").reason() is Reason.TOO_MANY_IN_FLIGHT
        assert await replica.take("q") == []
        await replica.put("q", b"1", b"2")
        assert await payloads(*waiters) == [b"1", b"2"]
        assert replica.wait("q").parked

    async def test_are_settings(self, replica: Replica) -> None:
        narrow = Dequeues(replica.store, Limits(wait_ms_max=10, queues_per_dequeue_max=1))
        for request in (
            Dequeue(NAMESPACE, ["q"], LeaseTerms(), wait_ms=11),
            Dequeue(NAMESPACE, ["q", "r"], LeaseTerms()),
        ):
            with pytest.raises(CallerError):
                narrow.dequeue(request, _never)


def _never(outcome: Dequeued | object) -> None:
    raise AssertionError(f"answered with {outcome}")
