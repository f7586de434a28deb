"""kill -9 of the core, of an adapter, of Redis, of everything, in the middle of mixed load over every door.

The history of what every client saw then shows whether a promise was broken. The seed is printed;
QUINTET_FAULT_SEED repeats the choices of a run, QUINTET_FAULT_ROUNDS makes it longer.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.history import History, Outcome, Verb
from tests.support.stack import Part, Stack, stack_for_tests, until
from tests.support.workload import JobCentreLoad, Load, LoadClient, SessionLoad, TextLoad, drain, under_load

ROUNDS = int(os.environ.get("QUINTET_FAULT_ROUNDS", "8"))
SEED = int(os.environ.get("QUINTET_FAULT_SEED") or random.randrange(10**9))
SESSION_TTL_MS = 2000
TEXT_LEASE_S = 2
QUEUES = tuple(f"queue-{number}" for number in range(5))


@pytest.fixture
def stack() -> Iterator[Stack]:
    """With short leases, so that what was lost comes back within the test."""
    yield from stack_for_tests(QUINTET_SESSION_TTL_MS=str(SESSION_TTL_MS), QUINTET_LEASE_SECONDS=str(TEXT_LEASE_S))


def clients_of(stack: Stack, load: Load) -> list[LoadClient]:
    """Eleven at work at once: six and three on sockets, two on a Session stream."""
    job_centre, text_queue = stack.job_centre.address, stack.text_queue.address
    return [
        *(JobCentreLoad(load, f"job-centre-{number}", SEED, job_centre) for number in range(6)),
        *(TextLoad(load, f"text-{number}", SEED, text_queue) for number in range(3)),
        SessionLoad(load, "session", SEED, stack.core.target),
    ]


def kill_and_start(*parts: Part) -> None:
    """At once, and again from the bottom up."""
    for part in parts:
        part.kill9()
    for part in parts:
        part.start()


def serves_again(history: History, since: float) -> Callable[[], bool]:
    """Whether through every door a put that began later was acknowledged."""

    def holds() -> bool:
        puts = (operation for operation in reversed(history.operations[-5000:]) if operation.invoked_at > since)
        doors = {put.client[0] for put in puts if put.verb is Verb.PUT and put.outcome is Outcome.OK}
        return len(doors) == len(("job centre", "text", "session"))

    return holds


def wait_until_nothing_is_leased(stack: Stack) -> None:
    until(lambda: all(stack.counts(queue).leased == 0 for queue in QUEUES), "every lease has ended")


@pytest.mark.timeout(120 + 15 * ROUNDS)
def test_nothing_acknowledged_is_lost_and_nothing_handed_out_twice(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = random.Random(SEED)
    victims = [(stack.redis,), (stack.core,), (stack.job_centre,), (stack.text_queue,), stack.parts]
    history = History()
    load = Load(history, QUEUES, TEXT_LEASE_S)
    with under_load(clients_of(stack, load), load):
        for number in range(ROUNDS):
            # Every victim once, then any.
            victim = victims[number] if number < len(victims) else choice.choice(victims)
            until(serves_again(history, time.monotonic()), "everything is served")
            time.sleep(choice.random())  # A moment that nothing announces: any will do.
            kill_and_start(*victim)
        until(serves_again(history, time.monotonic()), "everything is served")
    wait_until_nothing_is_leased(stack)
    wrong = drain(history, stack.job_centre.address, QUEUES)
    left = [str(counts) for queue in QUEUES if (counts := stack.counts(queue)).ListFields()]
    with capsys.disabled():
        print(f"\nQUINTET_FAULT_SEED={SEED} QUINTET_FAULT_ROUNDS={ROUNDS}: {history.summary()}")
    assert (history.violations(), wrong, left) == ([], [], []), f"QUINTET_FAULT_SEED={SEED}\n{stack.logs()}"
