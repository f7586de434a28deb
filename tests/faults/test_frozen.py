"""Processes that stop without dying (SIGSTOP): a machine that swaps, a container that is paused."""

from __future__ import annotations

from tests.faults.conftest import NewClient, served_again
from tests.support.clients import TextClient
from tests.support.stack import Stack


class TestRedis:
    def test_every_client_gets_an_error_and_nobody_hangs(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        clients = [new_client(stack.job_centre.address) for _ in range(3)]
        text = TextClient(stack.text_queue.address)
        clients[0].put(queue, {}, 0)
        with stack.redis.frozen():
            clients[0].send({"request": "put", "queue": queue, "job": {}, "pri": 0})
            clients[1].send({"request": "get", "queues": [queue]})
            clients[2].send({"request": "delete", "id": 1})
            assert [client.read()["status"] for client in clients] == ["error"] * 3
            assert text.ask(f"ADD {queue} 2 hi".encode()).startswith(b"ERROR")
            assert text.ask(f"GET {queue}\n".encode()).startswith(b"ERROR")
        for client in clients:
            served_again(client, f"{queue}-other")
        # None, one or both of what was to be added; none or both of what was to be taken.
        assert stack.counts(queue).ready in (0, 1, 2, 3)

    def test_a_short_freeze_costs_nobody_anything(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        with stack.redis.frozen():
            worker.send({"request": "put", "queue": queue, "job": {}, "pri": 0})
        assert worker.read()["status"] == "ok"
        assert other.get(queue)["id"] != held
        assert worker.delete(held) == "ok"
