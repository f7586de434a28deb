"""Sessions that end because nobody hears of them: their jobs go to others, but not before their holders know."""

from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from quintet.v1.queue_service_pb2 import DequeueRequest
from quintet.v1.reason_pb2 import REASON_SESSION_LAPSED
from quintet.v1.session_service_pb2 import (
    Heartbeat,
    SessionOpen,
    SessionOperation,
    SessionRequest,
    SessionResult,
)
from quintet.v1.session_service_pb2_grpc import SessionServiceStub

from tests.faults.conftest import NewClient, served_again
from tests.support.proxy import Proxy
from tests.support.stack import AdapterPart, Stack

SESSION_TTL_MS = 2000


@pytest.fixture
def beside(stack: Stack) -> AdapterPart:
    """An adapter on a core of its own, on the same Redis."""
    second = stack.second_core()
    second.environment.update(stack.core.environment)
    second.start()
    adapter = stack.further_adapter("job-centre", second)
    adapter.start()
    return adapter


class TestACoreThatIsAway:
    def test_that_stays_away_costs_the_clients_with_jobs_their_connection_and_no_others(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        address = stack.job_centre.address
        worker, other = new_client(address), new_client(address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        stack.core.kill9()
        assert worker.read_line() == b""
        assert other.ask({"request": "get", "queues": [queue]})["status"] == "error"
        stack.core.start()
        served_again(other, f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == held

    def test_what_a_killed_replica_held_is_released_by_another(
        self, stack: Stack, beside: AdapterPart, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(beside.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        other.send({"request": "get", "queues": [queue], "wait": True})
        stack.core.kill9()
        assert other.read()["id"] == held
        assert worker.has_heard()

    def test_another_replica_gives_its_jobs_away_only_after_their_holders_were_disconnected(
        self, stack: Stack, beside: AdapterPart, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(beside.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        other.send({"request": "get", "queues": [queue], "wait": True})
        with stack.core.frozen():
            assert other.read()["id"] == held
            assert worker.has_heard()
            assert worker.read_line() == b""
            late = new_client(stack.job_centre.address)
            assert late.ask({"request": "put", "queue": queue, "job": {}, "pri": 0})["status"] == "error"
        served_again(late, f"{queue}-other")
        assert late.get(queue)["status"] in ("ok", "no-job")
        assert other.delete(held) == "ok"

    def test_a_waiter_of_a_replica_that_froze_takes_no_job_with_it(
        self, stack: Stack, beside: AdapterPart, queue: str, new_client: NewClient
    ) -> None:
        waiting, other = new_client(stack.job_centre.address), new_client(beside.address)
        waiting.send({"request": "get", "queues": [queue], "wait": True})
        assert waiting.is_silent()
        with stack.core.frozen():
            job_id = other.put(queue)
            # It might have been about to get a job: either an error or, when the session is over, the end.
            assert b'"ok"' not in waiting.read_line()
        # The thawed core may have woken for it; whatever it took it gives back, or loses with its session.
        served_again(new_client(stack.job_centre.address), f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == job_id


class TestRedisThatIsAway:
    def test_that_stays_away_costs_the_clients_with_jobs_their_connection(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        address = stack.job_centre.address
        worker, other = new_client(address), new_client(address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        stack.redis.kill9()
        assert worker.read_line() == b""
        assert other.ask({"request": "get", "queues": [queue]})["status"] == "error"
        stack.redis.start()
        served_again(other, f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == held


class TestAnAdapter:
    def test_that_dies_gives_its_clients_jobs_back(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        second = stack.further_adapter("job-centre")
        second.start()
        worker, other = new_client(stack.job_centre.address), new_client(second.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        other.send({"request": "get", "queues": [queue], "wait": True})
        stack.job_centre.kill9()
        assert other.read()["id"] == held

    def test_silence_costs_a_client_its_connection_before_another_gets_its_job(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        proxy = Proxy(stack.folder / "proxy.sock", stack.core.socket)
        far = stack.further_adapter("job-centre", QUINTET_CORE_TARGET=f"unix:{proxy.place}")
        far.start()
        worker, other = new_client(far.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        proxy.hold()
        assert other.get(queue, wait=True)["id"] == held
        assert worker.has_heard()
        assert worker.read_line() == b""
        proxy.release()
        served_again(new_client(far.address), f"{queue}-other")
        assert other.delete(held) == "ok"
        proxy.close()

    def test_its_clients_jobs_go_to_others_and_its_clients_are_disconnected_when_it_wakes(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        adapter = stack.further_adapter("job-centre")
        adapter.start()
        worker, other = new_client(adapter.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        with adapter.frozen():
            assert other.get(queue, wait=True)["id"] == held
            worker.send({"request": "abort", "id": held})
        with suppress(ConnectionResetError):  # What it sent was not read.
            assert worker.read_line() == b""
        assert other.delete(held) == "ok"
        served_again(new_client(adapter.address), f"{queue}-other")


class RawSession:
    """A Session stream without the client library, which never sends a heartbeat."""

    def __init__(self, channel: grpc.Channel, *, resumable: bool) -> None:
        self._requests: SimpleQueue[SessionRequest | None] = SimpleQueue()
        stub: Any = SessionServiceStub(channel)  # Its stubs do not know that a call is an iterator.
        self._responses = stub.Session(iter(self._requests.get, None))
        self._requests.put(SessionRequest(open=SessionOpen(resumable=resumable)))
        assert next(self._responses).HasField("opened")

    def ask(self, **operation: Any) -> SessionResult:
        """The result of one operation of owner 1."""
        self._requests.put(SessionRequest(operations=[SessionOperation(sequence=1, owner=1, **operation)]))
        result: SessionResult = next(self._responses).results[0]
        return result

    def take(self, queue: str, wait_ms: int = 0) -> int:
        """The id of a job, under an owner lease."""
        request = DequeueRequest(queues=[queue], owner_lease=True, wait_ms=wait_ms)
        return self.ask(dequeue=request).dequeue.jobs[0].id

    def close(self) -> None:
        """In order."""
        self._requests.put(None)
        assert not any(response.results for response in self._responses)


def test_a_session_that_could_be_resumed_lives_by_heartbeats_and_another_by_its_stream(
    stack: Stack, queue: str, new_client: NewClient
) -> None:
    client = new_client(stack.job_centre.address)
    jobs = [client.put(queue) for _ in range(2)]
    with grpc.insecure_channel(stack.core.target) as channel:
        plain, resumable, waiting = [RawSession(channel, resumable=kind) for kind in (False, True, False)]
        assert [plain.take(queue), resumable.take(queue)] == jobs
        assert waiting.take(queue, wait_ms=-1) == jobs[1]
        assert resumable.ask(heartbeat=Heartbeat()).failure.reason == REASON_SESSION_LAPSED
        assert not plain.ask(heartbeat=Heartbeat()).HasField("failure")
        assert stack.counts(queue).leased == 2
        for session in (plain, waiting):
            session.close()
