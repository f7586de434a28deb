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
from functools import partial

import pytest
from quintet.v1.table_pb2 import TableSettings
from quintet.v1.table_service_pb2 import CreateTableRequest

from tests.support.faults import Networks, breakable, faults, killed
from tests.support.history import History, Outcome, Verb
from tests.support.key_value_load import KeyValueClient
from tests.support.load_clients import JobCentreLoad, SessionLoad, TextLoad
from tests.support.row_history import Outcome as RowOutcome
from tests.support.row_history import now_ms
from tests.support.row_watcher import RowWatcher, last_offsets, watching
from tests.support.stack import AdapterPart, Stack, until
from tests.support.table_load import TableLoad, UnaryTableClient, table_service, work_on_tables
from tests.support.table_verdict import broken_promises
from tests.support.workload import Load, LoadClient, drain, under_load

ROUNDS = int(os.environ.get("QUINTET_FAULT_ROUNDS", "16"))
SEED = int(os.environ.get("QUINTET_FAULT_SEED") or random.randrange(10**9))
ONLY = tuple(filter(None, os.environ.get("QUINTET_FAULTS", "").split(",")))
SESSION_TTL_MS = 2000
TEXT_LEASE_S = 2
QUEUES = tuple(f"queue-{number}" for number in range(5))
DOORS = 3
TABLES = ("table-0", "table-1")
ROW_DOORS = 4


@pytest.fixture
def stack_and_networks() -> Iterator[tuple[Stack, Networks]]:
    """With short leases, so that what was lost comes back within the test."""
    settings = {
        "QUINTET_SESSION_TTL_MS": str(SESSION_TTL_MS),
        "QUINTET_LEASE_SECONDS": str(TEXT_LEASE_S),
        "QUINTET_REDIS_TIMEOUT_MS": "500",
        # What clients saw of tables is held against the whole log.
        "QUINTET_EVENTS_TAIL": "1000000",
    }
    with breakable(**settings) as (stack, networks):
        stack.further_adapter("zmq-kv", QUINTET_CORE_TARGET=f"unix:{networks.core.place}").start()
        yield stack, networks


def key_value(stack: Stack) -> AdapterPart:
    """The adapter of ZeroMQ."""
    [adapter] = [part for part in stack.extra if isinstance(part, AdapterPart)]
    return adapter


def clients_of(stack: Stack, networks: Networks, tables: TableLoad) -> list[LoadClient]:
    """Seventeen at work at once: of queues six and three on sockets, two on a Session stream of the first core; of
    tables two on that stream, one that makes calls to each core, two on ZeroMQ."""
    job_centre, text_queue, load = stack.job_centre.address, stack.text_queue.address, tables.load
    return [
        *(JobCentreLoad(load, f"job-centre-{number}", SEED, job_centre) for number in range(6)),
        *(TextLoad(load, f"text-{number}", SEED, text_queue) for number in range(3)),
        SessionLoad(load, "session", SEED, stack.core.target, beside=[partial(work_on_tables, tables)] * 2),
        UnaryTableClient(tables, "first-core", SEED, stack.core.target),
        UnaryTableClient(tables, "other-core", SEED, networks.second.target),
        *(KeyValueClient(tables, f"key-value-{number}", SEED, key_value(stack)) for number in range(2)),
    ]


def serves(tables: TableLoad) -> Callable[[], bool]:
    """Whether through every door a put that began from now on was acknowledged."""
    since, since_ms = time.monotonic(), now_ms()

    def holds() -> bool:
        jobs = (operation for operation in reversed(tables.load.history.operations[-5000:]))
        doors = {
            put.client[0]
            for put in jobs
            if put.invoked_at > since and put.verb is Verb.PUT and put.outcome is Outcome.OK
        }
        rows = (operation for operation in reversed(tables.history.operations[-5000:]))
        row_doors = {row.client[0] for row in rows if row.invoked_at > since_ms and row.outcome is RowOutcome.OK}
        return len(doors) == DOORS and len(row_doors) == ROW_DOORS

    return holds


def create_tables(target: str) -> dict[str, int]:
    """Their partitions."""
    settings = TableSettings(events_carry_values=True)
    with table_service(target) as service:
        return {
            name: service.CreateTable(CreateTableRequest(table=name, settings=settings)).table.partition
            for name in TABLES
        }


def rest_of_tables(stack: Stack, watcher: RowWatcher) -> None:
    """Wait until no row is about to go and the watcher has heard everything."""

    def is_quiet() -> bool:
        offsets = last_offsets(stack.core.target)
        return watcher.has_heard(offsets) and not any(replay.is_changing for replay in list(watcher.replays.values()))

    until(is_quiet, "every row that has a time to live has gone, and the watcher knows")


def in_turn(names: list[str], choice: random.Random) -> Iterator[str]:
    """Each fault as often as any other, in no order."""
    while True:
        yield from choice.sample(names, k=len(names))


@pytest.mark.timeout(180 + 20 * ROUNDS)
def test_nothing_acknowledged_is_lost_and_nothing_handed_out_twice(
    stack_and_networks: tuple[Stack, Networks], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, networks = stack_and_networks
    choice, history, done = random.Random(SEED), History(), Counter[str]()
    tables = TableLoad(Load(history, QUEUES, TEXT_LEASE_S), TABLES)
    every_fault = {**faults(stack, networks), "kill zmq-kv": killed(key_value(stack))}
    names = in_turn([name for name in every_fault if not ONLY or name in ONLY], choice)
    with capsys.disabled():
        print(f"\nQUINTET_FAULT_SEED={SEED} QUINTET_FAULT_ROUNDS={ROUNDS}")
    with watching([stack.core.target, networks.second.target]) as watcher:
        partitions = create_tables(stack.core.target)
        with under_load(clients_of(stack, networks, tables), tables.load):
            for name in (next(names) for _ in range(ROUNDS)):
                until(serves(tables), f"everything is served, after {dict(done)}")
                time.sleep(choice.random())  # Any moment will do.
                every_fault[name](choice)
                done[name] += 1
            until(serves(tables), f"everything is served, after {dict(done)}")
        until(lambda: all(stack.counts(queue).leased == 0 for queue in QUEUES), "every lease has ended")
        wrong = drain(history, stack.job_centre.address, QUEUES)
        left = [str(counts) for queue in QUEUES if (counts := stack.counts(queue)).ListFields()]
        rest_of_tables(stack, watcher)
    with capsys.disabled():
        print(f"  {history.summary()}\n  rows: {tables.history.summary()}; {watcher.summary()}")
    wrong += broken_promises(stack.core.target, tables.history, watcher, partitions)
    assert (history.violations(), wrong, left) == ([], [], []), f"QUINTET_FAULT_SEED={SEED}\n{stack.logs()}"
