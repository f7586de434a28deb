"""Processes that stop without dying (SIGSTOP): a machine that swaps, a container that is paused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.faults.conftest import NewClient, served_again
from tests.faults.test_networks import has_heard
from tests.support.clients import TextClient
from tests.support.stack import Part, Stack


@contextmanager
def frozen(part: Part) -> Iterator[None]:
    """Within the block it does nothing."""
    part.freeze()
    try:
        yield
    finally:
        part.thaw()


class TestRedis:
    def test_every_client_gets_an_error_and_nobody_hangs(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        clients = [new_client(stack.job_centre.address) for _ in range(3)]
        text = TextClient(stack.text_queue.address)
        with frozen(stack.redis):
            clients[0].send({"request": "put", "queue": queue, "job": {}, "pri": 0})
            clients[1].send({"request": "get", "queues": [queue]})
            clients[2].send({"request": "delete", "id": 1})
            assert [client.read()["status"] for client in clients] == ["error"] * 3
            assert text.ask(f"ADD {queue} 2 hi".encode()).startswith(b"ERROR")
            assert text.ask(f"GET {queue}\n".encode()).startswith(b"ERROR")
        for client in clients:
            served_again(client, f"{queue}-other")
        assert stack.counts(queue).ready in (0, 1, 2)

    def test_a_short_freeze_costs_nobody_anything(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        with frozen(stack.redis):
            worker.send({"request": "put", "queue": queue, "job": {}, "pri": 0})
        assert worker.read()["status"] == "ok"
        assert other.get(queue)["id"] != held
        assert worker.delete(held) == "ok"


class TestTheCore:
    def test_another_replica_gives_its_jobs_away_only_after_their_holders_were_disconnected(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        second = stack.second_core()
        second.environment.update(stack.core.environment)
        second.start()
        adapter = stack.further_adapter("job-centre", second)
        adapter.start()
        worker, other = new_client(stack.job_centre.address), new_client(adapter.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        other.send({"request": "get", "queues": [queue], "wait": True})
        with frozen(stack.core):
            assert other.read()["id"] == held
            assert has_heard(worker)
            assert worker.read_line() == b""
            late = new_client(stack.job_centre.address)
            assert late.ask({"request": "put", "queue": queue, "job": {}, "pri": 0})["status"] == "error"
        served_again(late, f"{queue}-other")
        assert late.get(queue)["status"] in ("ok", "no-job")
        assert other.delete(held) == "ok"

    def test_a_waiter_of_a_replica_that_froze_takes_no_job_with_it(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        second = stack.second_core()
        second.environment.update(stack.core.environment)
        second.start()
        adapter = stack.further_adapter("job-centre", second)
        adapter.start()
        waiting, other = new_client(stack.job_centre.address), new_client(adapter.address)
        waiting.send({"request": "get", "queues": [queue], "wait": True})
        assert waiting.is_silent()
        with frozen(stack.core):
            job_id = other.put(queue)
            # It might have been about to get a job: either an error or, when the session is over, the end.
            assert b'"ok"' not in waiting.read_line()
        # The thawed core may have woken for it; whatever it took it gives back, or loses with its session.
        served_again(new_client(stack.job_centre.address), f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == job_id


class TestAnAdapter:
    def test_its_clients_jobs_go_to_others_and_its_clients_are_disconnected_when_it_wakes(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        adapter = stack.further_adapter("job-centre")
        adapter.start()
        worker, other = new_client(adapter.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        with frozen(adapter):
            assert other.get(queue, wait=True)["id"] == held
            worker.send({"request": "abort", "id": held})
        with suppress(ConnectionResetError):  # What it sent was not read.
            assert worker.read_line() == b""
        assert other.delete(held) == "ok"
        served_again(new_client(adapter.address), f"{queue}-other")
