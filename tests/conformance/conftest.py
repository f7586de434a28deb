"""One stack of real processes for all conformance tests, and a queue name of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import grpc
import pytest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.support.clients import JobCentreClient, TextClient
from tests.support.etzel import EtzelClient, EtzelLinesClient, EtzelWebSocketClient
from tests.support.stack import AdapterPart, Stack, stack_for_tests
from tests.support.taskflux import TaskFluxClient

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


@pytest.fixture
def api(stack: Stack) -> Iterator[QueueServiceStub]:
    """The core's own API, as any other tongue uses it."""
    with grpc.insecure_channel(stack.core.target) as channel:
        yield QueueServiceStub(channel)


@pytest.fixture(scope="session")
def taskflux(stack: Stack) -> AdapterPart:
    """The adapter of TaskFlux, in the dialect document."""
    adapter = stack.further_adapter("taskflux")
    adapter.start()
    return adapter


NewTaskFlux = Callable[[], TaskFluxClient]


@pytest.fixture
def new_taskflux(taskflux: AdapterPart) -> Iterator[NewTaskFlux]:
    """Makes clients of TaskFlux, which are disconnected after the test."""
    clients: list[TaskFluxClient] = []

    def connect() -> TaskFluxClient:
        clients.append(TaskFluxClient(taskflux.address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


class NamespaceOfItsOwn:
    """Makes adapters of TaskFlux in namespaces that no other test uses, or named ones."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.adapters: list[AdapterPart] = []

    def __call__(self, namespace: str = "", **environment: str) -> AdapterPart:
        adapter = self._stack.further_adapter("taskflux")
        adapter.environment.update(environment)
        adapter.environment["QUINTET_NAMESPACE"] = namespace or f"namespace-{next(_numbers)}"
        self.adapters.append(adapter)
        adapter.start()
        return adapter


@pytest.fixture
def namespace_of_its_own(stack: Stack) -> Iterator[NamespaceOfItsOwn]:
    """Adapters that are ended after the test."""
    made = NamespaceOfItsOwn(stack)
    yield made
    for adapter in made.adapters:
        adapter.kill9()


@pytest.fixture(scope="session")
def etzel(stack: Stack) -> Iterator[AdapterPart]:
    """The adapter of Etzel."""
    adapter = stack.further_adapter("etzel")
    adapter.start()
    yield adapter
    adapter.kill9()


NewEtzelClient = Callable[..., EtzelClient]


@pytest.fixture(params=["lines", "websocket"])
def new_etzel_client(etzel: AdapterPart, request: pytest.FixtureRequest) -> Iterator[NewEtzelClient]:
    """Makes clients of Etzel, by lines and then by WebSocket, which are disconnected after the test."""
    clients: list[EtzelClient] = []

    def connect(adapter: AdapterPart = etzel) -> EtzelClient:
        if request.param == "lines":
            clients.append(EtzelLinesClient(adapter.address_of("etzel-lines")))
        else:
            clients.append(EtzelWebSocketClient(adapter.address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def etzel_client(new_etzel_client: NewEtzelClient) -> EtzelClient:
    """One client of Etzel."""
    return new_etzel_client()
