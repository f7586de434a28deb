"""Every fault around the adapter of TaskFlux in the middle of mixed load; the history of what each client saw shows
whether a promise was broken. QUINTET_FAULT_SEED repeats the choices of a run, QUINTET_FAULT_ROUNDS makes it longer.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import pytest
from quintet.v1.queue_service_pb2 import CreateQueueRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.support.faults import Fault, Networks, breakable, faults, killed, stopped
from tests.support.history import History, Outcome, Verb
from tests.support.load_clients import JobCentreLoad, TextLoad
from tests.support.stack import AdapterPart, Stack, until
from tests.support.taskflux_load import TaskFluxLoad
from tests.support.workload import Load, LoadClient, drain, under_load

ROUNDS = int(os.environ.get("QUINTET_FAULT_ROUNDS", "10"))
SEED = int(os.environ.get("QUINTET_FAULT_SEED") or random.randrange(10**9))
LEASE_S = 2
QUEUES = tuple(f"queue-{number}" for number in range(3))
SHARED = (
    *("kill Redis", "kill the core", "kill everything", "stop the core", "freeze the core", "lose answers of Redis"),
    *("move the adapters to the other core", "cut between the adapters and the core", "lose answers of the core"),
)


@pytest.fixture
def surroundings() -> Iterator[tuple[Stack, Networks, AdapterPart]]:
    """A stack with an adapter of TaskFlux, and queues: it makes none by putting."""
    settings = {
        "QUINTET_SESSION_TTL_MS": "2000",
        "QUINTET_LEASE_SECONDS": str(LEASE_S),
        "QUINTET_REDIS_TIMEOUT_MS": "500",
    }
    with breakable(**settings) as (stack, networks):
        taskflux = stack.further_adapter("taskflux", QUINTET_CORE_TARGET=f"unix:{networks.core.place}")
        taskflux.start()
        with grpc.insecure_channel(stack.core.target) as channel:
            for queue in QUEUES:
                QueueServiceStub(channel).CreateQueue(CreateQueueRequest(queue=queue))
        yield stack, networks, taskflux


def clients_of(stack: Stack, taskflux: AdapterPart, load: Load) -> list[LoadClient]:
    return [
        *(TaskFluxLoad(load, f"taskflux-{number}", SEED, taskflux.address) for number in range(6)),
        *(JobCentreLoad(load, f"job-centre-{number}", SEED, stack.job_centre.address) for number in range(2)),
        TextLoad(load, "text", SEED, stack.text_queue.address),
    ]


def faults_around(stack: Stack, networks: Networks, taskflux: AdapterPart) -> dict[str, Fault]:
    everywhere = faults(stack, networks)
    own = {"kill taskflux": killed(taskflux), "stop taskflux": stopped(taskflux)}
    return {name: everywhere[name] for name in SHARED} | own


def serves(load: Load) -> Callable[[], bool]:
    """Whether through every door a put that began from now on was acknowledged."""
    since = time.monotonic()

    def holds() -> bool:
        recent = (operation for operation in reversed(load.history.operations[-5000:]))
        doors = {
            put.client.partition("-")[0].partition(".")[0]
            for put in recent
            if put.invoked_at > since and put.verb is Verb.PUT and put.outcome is Outcome.OK
        }
        return doors == {"taskflux", "job", "text"}

    return holds


@pytest.mark.timeout(180 + 20 * ROUNDS)
def test_nothing_acknowledged_is_lost_and_nothing_handed_out_twice(
    surroundings: tuple[Stack, Networks, AdapterPart], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, networks, taskflux = surroundings
    choice, history, done = random.Random(SEED), History(), Counter[str]()
    load = Load(history, QUEUES, LEASE_S)
    every_fault = faults_around(stack, networks, taskflux)
    with capsys.disabled():
        print(f"\nQUINTET_FAULT_SEED={SEED} QUINTET_FAULT_ROUNDS={ROUNDS}")
    with under_load(clients_of(stack, taskflux, load), load):
        names: list[str] = []
        for _ in range(ROUNDS):
            names = names or choice.sample(sorted(every_fault), k=len(every_fault))
            until(serves(load), f"everything is served, after {dict(done)}")
            time.sleep(choice.random())  # Any moment will do.
            name = names.pop()
            every_fault[name](choice)
            done[name] += 1
        until(serves(load), f"everything is served, after {dict(done)}")
    until(lambda: all(stack.counts(queue).leased == 0 for queue in QUEUES), "every lease has ended")
    wrong = drain(history, stack.job_centre.address, QUEUES, to_tail=True)
    left = [str(counts) for queue in QUEUES if (counts := stack.counts(queue)).ListFields()]
    with capsys.disabled():
        print(f"  {history.summary()}")
    found = history.violations(to_tail=True)
    assert (found, wrong, left) == ([], [], []), f"QUINTET_FAULT_SEED={SEED}\n{stack.logs()}"
    assert "Traceback" not in taskflux.log.read_text()
