"""One stack of real processes for all conformance tests, and a queue name of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.clients import JobCentreClient, TextClient
from tests.support.stack import Stack, stack_for_tests

SESSION_TTL_MS = 2000
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Redis, core and adapters. Tests that kill or freeze a part start one of their own."""
    yield from stack_for_tests(
        QUINTET_READ_TIMEOUT_MS="1000",
        QUINTET_COMMAND_TIMEOUT_MS="3000",
        QUINTET_SESSION_TTL_MS=str(SESSION_TTL_MS),
    )


@pytest.fixture
def queue() -> str:
    """The name of a queue that no other test uses."""
    return f"queue-{next(_numbers)}"


@pytest.fixture
def text(stack: Stack) -> TextClient:
    """A client of the text queue."""
    return TextClient(stack.text_queue.address)


NewClient = Callable[[], JobCentreClient]


@pytest.fixture
def new_client(stack: Stack) -> Iterator[NewClient]:
    """Makes clients of Job Centre, which are disconnected after the test."""
    clients: list[JobCentreClient] = []

    def connect() -> JobCentreClient:
        clients.append(JobCentreClient(stack.job_centre.address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(new_client: NewClient) -> JobCentreClient:
    """One client of Job Centre."""
    return new_client()
