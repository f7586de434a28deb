"""When duties are done, and that none can end the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.maintenance import rounds
from quintet_core.maintenance.rounds import Duty, Rounds, Work, in_every_partition, until_done


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TICK_S", 0.001)


def counting(times: int, outcome: Callable[[], Refusal | None] = lambda: None) -> tuple[Work, asyncio.Event]:
    """A duty's work, and an event that is set once it was done some times."""
    done = asyncio.Event()
    left = times

    async def work() -> Refusal | None:
        nonlocal left
        left -= 1
        if left <= 0:
            done.set()
        return outcome()

    return work, done


async def run_until(event: asyncio.Event, *duties: Duty, ready: Callable[[], bool] = lambda: True) -> list[str]:
    """Do rounds until the event; the duties that failed."""
    failures: list[str] = []
    running = Rounds(list(duties), ready, failures.append)
    running.start()
    await event.wait()
    await running.close()
    return failures


async def test_every_duty_is_done_again_and_again() -> None:
    one, one_done = counting(3)
    two, two_done = counting(1)
    await run_until(one_done, Duty("one", 0.001, one), Duty("two", 0.001, two))
    assert two_done.is_set()


async def test_a_duty_waits_for_its_period() -> None:
    often, done = counting(20)
    seldom, twice = counting(2)
    await run_until(done, Duty("often", 0.0, often), Duty("seldom", 3600.0, seldom))
    assert not twice.is_set()


async def test_a_duty_that_breaks_or_is_refused_is_told_and_done_again() -> None:
    def break_() -> Refusal | None:
        raise RuntimeError("broken")

    broken, broken_done = counting(2, break_)
    refused, refused_done = counting(2, lambda: refusal(Reason.UNAVAILABLE))
    both = asyncio.Event()

    async def watch() -> Refusal | None:
        if broken_done.is_set() and refused_done.is_set():
            both.set()
        return None

    duties = (Duty("broken", 0.0, broken), Duty("refused", 0.0, refused), Duty("watch", 0.0, watch))
    failures = await run_until(both, *duties)
    assert {"broken", "refused"} == set(failures)


async def test_nothing_is_done_while_not_ready() -> None:
    work, done = counting(1)
    asked = asyncio.Event()

    def ready() -> bool:
        asked.set()
        return False

    await run_until(asked, Duty("duty", 0.0, work), ready=ready)
    assert not done.is_set()


async def test_steps_are_repeated_while_there_is_more_but_not_for_ever() -> None:
    answers: list[bool | Refusal] = [True, True, False, True]

    async def step() -> bool | Refusal:
        return answers.pop(0)

    assert await until_done(step, 10) is None
    assert answers == [True]
    answers[:] = [True] * 5
    assert await until_done(step, 3) is None
    assert len(answers) == 2
    answers[:] = [True, refusal(Reason.UNAVAILABLE), True]
    assert await until_done(step, 10) == refusal(Reason.UNAVAILABLE)


async def test_a_refusal_of_one_partition_does_not_keep_others_from_their_work() -> None:
    seen: list[int] = []

    async def work(partition: int) -> Refusal | None:
        seen.append(partition)
        return refusal(Reason.DAMAGED) if partition == 1 else None

    assert await in_every_partition(4, work) == refusal(Reason.DAMAGED)
    assert seen == [0, 1, 2, 3]
