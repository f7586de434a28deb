"""TaskFlux while parts of Quintet are away: errors in its own words, connections that stay, records that come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import grpc
import pytest
from quintet.v1.queue_service_pb2 import DeleteQueueRequest, ListQueuesRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.support import taskflux as tf
from tests.support.stack import AdapterPart, Stack, until
from tests.support.taskflux import ACK, NACK, Answer, End, Error, Nothing, Ok, Record, TaskFluxClient

SESSION_TTL_MS = 6000
AWAY = Error(0)


@pytest.fixture
def adapter(stack: Stack) -> AdapterPart:
    adapter = stack.further_adapter("taskflux")
    adapter.start()
    return adapter


NewTaskFlux = Callable[[], TaskFluxClient]


@pytest.fixture
def new_client(adapter: AdapterPart) -> Iterator[NewTaskFlux]:
    clients: list[TaskFluxClient] = []

    def connect() -> TaskFluxClient:
        clients.append(TaskFluxClient(adapter.address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(new_client: NewTaskFlux) -> TaskFluxClient:
    return new_client()


@pytest.fixture
def made(client: TaskFluxClient, queue: str) -> str:
    assert client.ask(tf.create(queue)) == Ok()
    return queue


def served_again(client: TaskFluxClient, queue: str) -> None:
    """Return once this connection's requests are carried out again."""
    until(lambda: client.ask(tf.count(queue)) != AWAY, "counts succeed")


def every_request(queue: str) -> list[bytes]:
    return [
        tf.create(f"{queue}-new"),
        tf.count(queue),
        tf.dequeue(queue),
        tf.dequeue(queue, 60_000),
        tf.LIST,
        tf.delete(queue),
    ]


class TestACoreThatIsAway:
    def test_is_error_0_to_every_request_and_the_connection_stays(
        self, stack: Stack, client: TaskFluxClient, made: str
    ) -> None:
        stack.core.kill9()
        until(lambda: client.ask(tf.count(made)) == AWAY, "the adapter to know")
        assert [client.ask(request) for request in every_request(made)] == [AWAY] * 6
        assert client.put(made, b"lost") == AWAY
        # What needs no core is answered as ever.
        assert isinstance(client.ask(tf.METADATA), tf.Metadata)
        assert client.ask(tf.create("")) == Error(3)
        stack.core.start()
        served_again(client, made)
        assert client.put(made, b"kept") == Ok()
        assert client.take(made) == Record(0, b"kept")

    def test_ends_a_wait_with_error_0_and_the_connection_stays(
        self, stack: Stack, client: TaskFluxClient, made: str
    ) -> None:
        client.send(tf.dequeue(made, 2**32 - 1))
        assert client.is_silent()
        stack.core.restart()
        assert client.read() == AWAY
        served_again(client, made)
        assert client.put(made, b"x") == Ok()
        assert client.get(made) == Record(0, b"x")

    def test_for_less_than_a_session_lives_leaves_a_client_its_record(
        self, stack: Stack, client: TaskFluxClient, new_client: NewTaskFlux, made: str
    ) -> None:
        other = new_client()
        for answer in (ACK, NACK):
            client.put(made, b"x")
            assert client.get(made) == Record(0, b"x")
            stack.core.restart()
            served_again(other, made)
            assert other.get(made) == Nothing()
            assert client.ask(answer) == Ok()
        assert other.take(made) == Record(0, b"x")

    @pytest.mark.parametrize("answer", [ACK, NACK])
    def test_gets_a_record_back_that_could_not_be_acknowledged(
        self, stack: Stack, client: TaskFluxClient, new_client: NewTaskFlux, made: str, answer: bytes
    ) -> None:
        other = new_client()
        for payload in (b"1", b"2"):
            client.put(made, payload)
        assert client.get(made) == Record(0, b"1")
        stack.core.kill9()
        until(lambda: other.ask(tf.count(made)) == AWAY, "the adapter to know")
        assert client.ask(answer) == AWAY
        assert client.ask(tf.count(made)) == AWAY
        stack.core.start()
        served_again(other, made)
        until(lambda: other.count(made) == 2, "the record to be back")
        assert [client.take(made), other.take(made)] == [Record(0, b"2"), Record(0, b"1")]

    def test_for_longer_costs_the_clients_with_records_their_connection_and_no_others(
        self, stack: Stack, client: TaskFluxClient, new_client: NewTaskFlux, made: str
    ) -> None:
        other = new_client()
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        stack.core.kill9()
        assert client.read() == End()
        assert other.ask(tf.count(made)) == AWAY
        stack.core.start()
        served_again(other, made)
        assert other.get(made, 60_000) == Record(0, b"x")

    def test_finds_the_default_queue_made_again_when_it_was_deleted(
        self, stack: Stack, adapter: AdapterPart, client: TaskFluxClient
    ) -> None:
        assert client.count("") == 0
        with grpc.insecure_channel(stack.core.target) as channel:
            QueueServiceStub(channel).DeleteQueue(DeleteQueueRequest(queue=""))
        stack.core.restart()
        until(lambda: _exists(stack, ""), "the default queue is there")


def _exists(stack: Stack, queue: str) -> bool:
    with grpc.insecure_channel(stack.core.target) as channel:
        return any(found.name == queue for found in QueueServiceStub(channel).ListQueues(ListQueuesRequest()).queues)


class TestRedisThatIsAway:
    def test_is_error_0_and_the_connection_stays(self, stack: Stack, client: TaskFluxClient, made: str) -> None:
        stack.redis.kill9()
        answers: list[Answer] = [client.ask(request) for request in every_request(made)]
        assert answers == [AWAY] * 6
        assert client.put(made, b"in doubt") == AWAY
        stack.redis.start()
        served_again(client, made)
        assert client.put(made, b"x") == Ok()

    def test_gets_a_record_back_that_could_not_be_acknowledged(
        self, stack: Stack, client: TaskFluxClient, new_client: NewTaskFlux, made: str
    ) -> None:
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        stack.redis.kill9()
        assert client.ask(ACK) == AWAY
        stack.redis.start()
        served_again(client, made)
        assert client.get(made, 60_000) == Record(0, b"x")


class TestAnAdapterThatDies:
    def test_gives_the_records_of_its_clients_back_to_the_tail(
        self, stack: Stack, adapter: AdapterPart, client: TaskFluxClient, made: str
    ) -> None:
        beside = stack.further_adapter("taskflux")
        beside.start()
        for payload in (b"1", b"2"):
            client.put(made, payload)
        assert client.get(made) == Record(0, b"1")
        adapter.kill9()
        with TaskFluxClient(beside.address) as other:
            assert other.take(made) == Record(0, b"2")
            assert other.take(made, 60_000) == Record(0, b"1")

    def test_between_enqueue_and_acknowledgement_stores_nothing(
        self, adapter: AdapterPart, client: TaskFluxClient, made: str
    ) -> None:
        assert client.ask(tf.enqueue(made, 0, b"x")) == Ok()
        adapter.kill9()
        adapter.start()
        with TaskFluxClient(adapter.address) as other:
            assert other.count(made) == 0

    def test_keeps_what_was_acknowledged(self, stack: Stack, adapter: AdapterPart, client: TaskFluxClient) -> None:
        queue = "kept"
        assert client.ask(tf.create(queue, 2, 7, 8, (-1, 1))) == Ok()
        assert client.put(queue, b"x", -1) == Ok()
        stack.kill9()
        stack.start()
        adapter.start()
        with TaskFluxClient(adapter.address) as other:
            listed = other.list().named(queue)
            policies = {"max-queue-size": "7", "max-payload-size": "8", "priority-range": "-1 1"}
            assert listed == tf.Listed(queue, 1, policies)
            assert other.take(queue) == Record(-1, b"x")


def test_an_adapter_that_is_told_to_stop_lets_records_in_hand_be_acknowledged(
    adapter: AdapterPart, client: TaskFluxClient, new_client: NewTaskFlux, made: str
) -> None:
    waiting, idle = new_client(), new_client()
    client.put(made, b"x")
    assert client.get(made) == Record(0, b"x")
    waiting.send(tf.dequeue(made, 2**32 - 1))
    assert waiting.is_silent()
    os.kill(adapter.pid, signal.SIGTERM)
    assert (waiting.read(), waiting.read(), idle.read()) == (AWAY, End(), End())
    assert client.ask(ACK) == Ok()
    assert client.read() == End()
    until(lambda: not adapter.is_running, "the process to end")
