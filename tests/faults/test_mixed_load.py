"""Every fault in the middle of mixed load over every door; then the history of what each client saw shows whether a
promise was broken.

The seed is printed. QUINTET_FAULT_SEED repeats the choices of a run, QUINTET_FAULT_ROUNDS makes it longer,
QUINTET_FAULTS="kill Redis,freeze the core" takes only these.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.support.faults import Networks, breakable, faults
from tests.support.history import History, Outcome, Verb
from tests.support.load_clients import JobCentreLoad, SessionLoad, TextLoad
from tests.support.stack import Stack, until
from tests.support.workload import Load, LoadClient, drain, under_load

ROUNDS = int(os.environ.get("QUINTET_FAULT_ROUNDS", "16"))
SEED = int(os.environ.get("QUINTET_FAULT_SEED") or random.randrange(10**9))
ONLY = tuple(filter(None, os.environ.get("QUINTET_FAULTS", "").split(",")))
SESSION_TTL_MS = 2000
TEXT_LEASE_S = 2
QUEUES = tuple(f"queue-{number}" for number in range(5))
DOORS = 3


@pytest.fixture
def stack_and_networks() -> Iterator[tuple[Stack, Networks]]:
    """With short leases, so that what was lost comes back within the test."""
    settings = {
        "QUINTET_SESSION_TTL_MS": str(SESSION_TTL_MS),
        "QUINTET_LEASE_SECONDS": str(TEXT_LEASE_S),
        "QUINTET_REDIS_TIMEOUT_MS": "500",
    }
    with breakable(**settings) as everything:
        yield everything


def clients_of(stack: Stack, load: Load) -> list[LoadClient]:
    """Eleven at work at once: six and three on sockets, two on a Session stream of the first core."""
    job_centre, text_queue = stack.job_centre.address, stack.text_queue.address
    return [
        *(JobCentreLoad(load, f"job-centre-{number}", SEED, job_centre) for number in range(6)),
        *(TextLoad(load, f"text-{number}", SEED, text_queue) for number in range(3)),
        SessionLoad(load, "session", SEED, stack.core.target),
    ]


def serves(history: History, since: float) -> Callable[[], bool]:
    """Whether through every door a put that began later was acknowledged."""

    def holds() -> bool:
        later = (operation for operation in reversed(history.operations[-5000:]) if operation.invoked_at > since)
        doors = {put.client[0] for put in later if put.verb is Verb.PUT and put.outcome is Outcome.OK}
        return len(doors) == DOORS

    return holds


def in_turn(names: list[str], choice: random.Random) -> Iterator[str]:
    """Each fault as often as any other, in no order."""
    while True:
        yield from choice.sample(names, k=len(names))


@pytest.mark.timeout(120 + 15 * ROUNDS)
def test_nothing_acknowledged_is_lost_and_nothing_handed_out_twice(
    stack_and_networks: tuple[Stack, Networks], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, networks = stack_and_networks
    choice, history, done = random.Random(SEED), History(), Counter[str]()
    load = Load(history, QUEUES, TEXT_LEASE_S)
    every_fault = faults(stack, networks)
    names = in_turn([name for name in every_fault if not ONLY or name in ONLY], choice)
    with capsys.disabled():
        print(f"\nQUINTET_FAULT_SEED={SEED} QUINTET_FAULT_ROUNDS={ROUNDS}")
    with under_load(clients_of(stack, load), load):
        for name in (next(names) for _ in range(ROUNDS)):
            until(serves(history, time.monotonic()), f"everything is served, after {dict(done)}")
            time.sleep(choice.random())  # Any moment will do.
            every_fault[name](choice)
            done[name] += 1
        until(serves(history, time.monotonic()), f"everything is served, after {dict(done)}")
    until(lambda: all(stack.counts(queue).leased == 0 for queue in QUEUES), "every lease has ended")
    wrong = drain(history, stack.job_centre.address, QUEUES)
    left = [str(counts) for queue in QUEUES if (counts := stack.counts(queue)).ListFields()]
    with capsys.disabled():
        print(f"  {history.summary()}")
    assert (history.violations(), wrong, left) == ([], [], []), f"QUINTET_FAULT_SEED={SEED}\n{stack.logs()}"
