"""Connections that break or fall silent: between client and adapter, adapter and core, core and Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.conftest import NewClient, served_again
from tests.support.clients import TextClient, connect, reset
from tests.support.proxy import Proxy, Way
from tests.support.stack import AdapterPart, Stack, until


class TestBetweenAnAdapterAndTheCore:
    @pytest.fixture(scope="class")
    @classmethod
    def proxy(cls, module_stack: Stack) -> Iterator[Proxy]:
        with Proxy(module_stack.folder / "proxy.sock", module_stack.core.socket) as proxy:
            yield proxy

    @pytest.fixture(scope="class")
    @classmethod
    def far(cls, module_stack: Stack, proxy: Proxy) -> AdapterPart:
        """An adapter behind the proxy; the stack's own reaches the core directly."""
        adapter = module_stack.further_adapter("job-centre", QUINTET_CORE_TARGET=f"unix:{proxy.place}")
        adapter.start()
        return adapter

    def test_a_job_whose_answer_was_lost_goes_to_another_and_the_client_keeps_the_rest(
        self, stack: Stack, far: AdapterPart, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(far.address), new_client(stack.job_centre.address)
        held, lost = worker.put(queue), worker.put(queue)
        assert worker.get(queue)["id"] == held
        proxy.hold(Way.BACK)
        worker.send({"request": "get", "queues": [queue]})
        until(lambda: stack.counts(queue).leased == 2, "the job is taken")
        proxy.cut()
        assert worker.read()["status"] == "error"
        assert other.get(queue, wait=True)["id"] == lost
        assert worker.delete(held) == "ok"
        assert other.delete(lost) == "ok"

    def test_a_job_whose_answer_was_lost_by_a_client_without_jobs_goes_to_another(
        self, stack: Stack, far: AdapterPart, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(far.address), new_client(stack.job_centre.address)
        lost = worker.put(queue)
        proxy.hold(Way.BACK)
        worker.send({"request": "get", "queues": [queue]})
        until(lambda: stack.counts(queue).leased == 1, "the job is taken")
        proxy.cut()
        assert worker.read()["status"] == "error"
        assert other.get(queue, wait=True)["id"] == lost
        assert worker.get(queue)["status"] == "no-job"

    def test_a_waiting_client_is_told_and_may_wait_again(
        self, far: AdapterPart, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(far.address), new_client(far.address)
        worker.send({"request": "get", "queues": [queue], "wait": True})
        assert worker.is_silent()
        proxy.cut()
        assert worker.read()["status"] == "error"
        worker.send({"request": "get", "queues": [queue], "wait": True})
        served_again(other, f"{queue}-other")
        job_id = other.put(queue)
        answer = worker.read()
        assert (answer if answer["status"] == "ok" else worker.get(queue, wait=True))["id"] == job_id


class TestBetweenAClientAndItsAdapter:
    def test_a_break_gives_the_clients_jobs_back(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        with Proxy(("127.0.0.1", 0), stack.job_centre.address) as proxy:
            assert isinstance(proxy.place, tuple)
            worker, other = new_client(proxy.place), new_client(stack.job_centre.address)
            held = worker.put(queue)
            assert worker.get(queue)["id"] == held
            proxy.cut()
            assert other.get(queue, wait=True)["id"] == held

    def test_a_waiter_behind_a_break_takes_no_job_with_it(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        with Proxy(("127.0.0.1", 0), stack.job_centre.address) as proxy:
            assert isinstance(proxy.place, tuple)
            waiting, other = new_client(proxy.place), new_client(stack.job_centre.address)
            waiting.send({"request": "get", "queues": [queue], "wait": True})
            assert waiting.is_silent()
            proxy.cut()
            job_id = other.put(queue)
            assert other.get(queue, wait=True)["id"] == job_id

    def test_a_get_of_the_text_queue_is_undone_when_its_client_vanished(self, stack: Stack, queue: str) -> None:
        with Proxy(stack.folder / "text-proxy.sock", stack.core.socket) as proxy:
            adapter = stack.further_adapter("text-queue", QUINTET_CORE_TARGET=f"unix:{proxy.place}")
            adapter.start()
            job_id = TextClient(adapter.address).add(queue, b"hello")
            proxy.hold(Way.BACK)
            connection = connect(adapter.address)
            connection.sendall(f"GET {queue}\n".encode())
            until(lambda: stack.counts(queue).leased == 1, "the job is taken")
            reset(connection)
            until(lambda: adapter.metrics()["quintet_adapter_connections"] == 0, "the client is known to be gone")
            proxy.release()
            until(lambda: stack.counts(queue).leased == 0, "the job is back long before its lease of 300 s ends")
            assert TextClient(adapter.address).get(queue) == (job_id, b"hello")


class TestBetweenTheCoreAndRedis:
    @pytest.fixture(scope="class")
    @classmethod
    def proxy(cls, module_stack: Stack) -> Iterator[Proxy]:
        """In front of Redis, for the stack's only core."""
        with Proxy(module_stack.folder / "redis-proxy.sock", module_stack.redis.path) as proxy:
            module_stack.core.environment["QUINTET_REDIS_URL"] = f"unix://{proxy.place}"
            module_stack.core.restart()
            yield proxy
            del module_stack.core.environment["QUINTET_REDIS_URL"]
            module_stack.core.restart()

    def test_a_break_leaves_leases_as_they_are(
        self, stack: Stack, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        served_again(worker, f"{queue}-other")
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        proxy.cut()
        served_again(other, f"{queue}-other")
        assert other.get(queue)["status"] == "no-job"
        assert worker.delete(held) == "ok"

    def test_a_put_whose_answer_was_lost_is_in_doubt_and_there_once(
        self, stack: Stack, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        client = new_client(stack.job_centre.address)
        served_again(client, f"{queue}-other")
        proxy.hold(Way.BACK)
        client.send({"request": "put", "queue": queue, "job": {}, "pri": 0})
        proxy.wait_held(Way.BACK)
        assert client.read()["status"] == "error"
        proxy.cut()
        served_again(client, f"{queue}-other")
        assert stack.counts(queue).ready == 1

    def test_a_get_whose_answer_was_lost_leaves_the_job_to_others(
        self, stack: Stack, proxy: Proxy, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        served_again(worker, f"{queue}-other")
        held, lost = worker.put(queue), worker.put(queue)
        assert worker.get(queue)["id"] == held
        proxy.hold(Way.BACK)
        worker.send({"request": "get", "queues": [queue]})
        proxy.wait_held(Way.BACK)
        assert worker.read()["status"] == "error"
        proxy.cut()
        assert worker.delete(held) == "ok"
        served_again(other, f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == lost
