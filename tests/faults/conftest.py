"""A stack of its own for each module of faults; a queue name for each test.

A module's SESSION_TTL_MS is how long its sessions live: short where they are to lapse; otherwise longer than any
restart takes on a machine with other work to do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.clients import Address, JobCentreClient
from tests.support.stack import Stack, stack_for_tests, until

SESSION_TTL_MS_DEFAULT = 20_000
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def module_stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Take `stack` instead."""
    ttl_ms = getattr(request.module, "SESSION_TTL_MS", SESSION_TTL_MS_DEFAULT)
    yield from stack_for_tests(QUINTET_SESSION_TTL_MS=str(ttl_ms), QUINTET_REDIS_TIMEOUT_MS="2000")


@pytest.fixture
def stack(module_stack: Stack) -> Iterator[Stack]:
    """Whole at the start of every test, whatever the one before it broke."""
    for part in module_stack.parts:
        part.ensure_running()
    until(lambda: _is_whole(module_stack), "all parts have found one another")
    before = len(module_stack.extra)
    yield module_stack
    for part in module_stack.extra[before:]:
        part.kill9()
    del module_stack.extra[before:]


def _is_whole(stack: Stack) -> bool:
    return all(part.readiness()[0] == 200 for part in (stack.core, stack.job_centre, stack.text_queue))


@pytest.fixture
def queue() -> str:
    """The name of a queue that no other test uses."""
    return f"queue-{next(_numbers)}"


NewClient = Callable[[Address], JobCentreClient]


@pytest.fixture
def new_client() -> Iterator[NewClient]:
    """Makes clients of Job Centre, which are disconnected after the test."""
    clients: list[JobCentreClient] = []

    def connect(address: Address) -> JobCentreClient:
        clients.append(JobCentreClient(address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def served_again(client: JobCentreClient, queue: str) -> None:
    """Return once a put through this connection succeeds."""
    until(lambda: client.ask({"request": "put", "queue": queue, "job": {}, "pri": 0})["status"] == "ok", "puts succeed")
