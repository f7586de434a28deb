"""Workers of Etzel that sleep: woken through any replica, through restarts, and never missed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clients import TextClient
from tests.support.etzel import EtzelClient, EtzelLinesClient, EtzelWebSocketClient
from tests.support.stack import AdapterPart, Stack, until

UNAVAILABLE = {"cmd": "nok", "err": "UNAVAILABLE"}
ROUNDS = 30
MESSAGES = 300


@pytest.fixture
def etzel(stack: Stack) -> AdapterPart:
    """The adapter of the workers, in front of the first core."""
    adapter = stack.further_adapter("etzel")
    adapter.start()
    return adapter


@pytest.fixture
def beside(stack: Stack) -> AdapterPart:
    """Another, in front of another core."""
    core = stack.second_core()
    core.environment.update(stack.core.environment)
    core.start()
    adapter = stack.further_adapter("etzel", core)
    adapter.start()
    return adapter


@pytest.fixture
def workers(etzel: AdapterPart) -> Iterator[list[EtzelClient]]:
    """One by WebSocket, one by lines."""
    with EtzelWebSocketClient(etzel.address) as one, EtzelLinesClient(etzel.address_of("etzel-lines")) as other:
        yield [one, other]


def fall_asleep(workers: list[EtzelClient], queue: str) -> None:
    for worker in workers:
        worker.subscribe(queue)
        worker.sleep(queue)


def fetch_when_served(client: EtzelClient, queue: str) -> dict[str, object]:
    """The answer to a FET once the core and its store are back."""
    while (answer := client.fetch(queue)) == UNAVAILABLE:
        time.sleep(0.01)
    return answer


def test_a_message_published_through_another_replica_wakes(
    beside: AdapterPart, workers: list[EtzelClient], queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waits_ms = []
    with EtzelLinesClient(beside.address_of("etzel-lines")) as publisher:
        for number in range(ROUNDS):
            fall_asleep(workers, queue)
            assert workers[0].fetch(queue)["cmd"] == "nomsg"
            published_at = time.monotonic()
            uid = publisher.publish(queue, number)
            assert [worker.awake() for worker in workers] == [queue] * 2
            waits_ms.append((time.monotonic() - published_at) * 1000)
            workers[0].acknowledge(queue, uid)
    with capsys.disabled():
        print(f"\nwoken across replicas: median {statistics.median(waits_ms):.1f} ms, worst {max(waits_ms):.1f} ms")


def test_nothing_is_missed_between_nomsg_and_islp(etzel: AdapterPart, beside: AdapterPart, queue: str) -> None:
    """Workers fetch only when they are woken, while messages come at any moment. Who misses one sleeps for ever."""
    chance = random.Random(7)

    def publish() -> set[str]:
        with EtzelLinesClient(beside.address_of("etzel-lines")) as publisher:
            uids = set()
            for number in range(MESSAGES):
                uids.add(publisher.publish(queue, number))
                if chance.random() < 0.5:
                    time.sleep(chance.random() * 0.004)
            uids.add(publisher.publish(queue, "the end"))
            return uids

    def work() -> set[str]:
        with EtzelWebSocketClient(etzel.address) as worker:
            worker.subscribe(queue)
            uids = set()
            while True:
                answer = worker.fetch(queue)
                if answer["cmd"] == "nomsg":
                    worker.sleep(queue)
                    assert worker.awake() == queue
                    continue
                uids.add(answer["uid"])
                worker.acknowledge(queue, answer["uid"])
                if answer["msg"] == "the end":
                    return uids

    with ThreadPoolExecutor(2) as pool:
        working, publishing = pool.submit(work), pool.submit(publish)
        assert working.result() == publishing.result()


class TestARestart:
    def test_of_the_core_leaves_sleepers_asleep_until_something_comes(
        self, stack: Stack, etzel: AdapterPart, workers: list[EtzelClient], queue: str
    ) -> None:
        fall_asleep(workers, queue)
        stack.core.kill9()
        until(lambda: etzel.readiness()[0] == 503, "the adapter to miss its core")
        assert workers[0].fetch(queue) == UNAVAILABLE
        assert workers[0].ask({"cmd": "PUB", "qname": queue, "message": 1}) == UNAVAILABLE
        stack.core.start()
        assert fetch_when_served(workers[0], queue)["cmd"] == "nomsg"
        assert workers[1].is_silent(0.1)
        TextClient(stack.text_queue.address).add(queue, b"later")
        assert [worker.awake() for worker in workers] == [queue] * 2

    def test_of_the_core_misses_nothing_that_came_meanwhile(
        self, stack: Stack, etzel: AdapterPart, beside: AdapterPart, workers: list[EtzelClient], queue: str
    ) -> None:
        fall_asleep(workers, queue)
        stack.core.kill9()
        until(lambda: etzel.readiness()[0] == 503, "the adapter to miss its core")
        with EtzelLinesClient(beside.address_of("etzel-lines")) as publisher:
            publisher.publish(queue, "meanwhile")
        stack.core.start()
        assert [worker.awake() for worker in workers] == [queue] * 2

    def test_of_redis_leaves_sleepers_asleep_and_misses_nothing(
        self, stack: Stack, workers: list[EtzelClient], queue: str
    ) -> None:
        fall_asleep(workers, queue)
        uid = workers[0].publish(f"{queue}-kept", "kept")
        stack.redis.restart()
        assert fetch_when_served(workers[0], f"{queue}-kept")["uid"] == uid
        workers[0].publish(queue, "later")
        assert [worker.awake() for worker in workers] == [queue] * 2

    def test_of_redis_under_a_core_is_unavailable_meanwhile_never_a_success(
        self, stack: Stack, workers: list[EtzelClient], queue: str
    ) -> None:
        workers[0].subscribe(queue)
        stack.redis.kill9()
        for request in (
            {"cmd": "PUB", "qname": queue, "message": 1},
            {"cmd": "FET", "qname": queue},
            {"cmd": "SUB", "qname": queue},
            {"cmd": "ACK", "qname": queue, "uid": "0000000000000007"},
        ):
            assert workers[0].ask(request) == UNAVAILABLE
        workers[0].sleep(queue)
        stack.redis.start()
        fetch_when_served(workers[0], queue)
        workers[1].publish(queue, 1)
        assert workers[0].awake() == queue


def test_a_core_that_drains_hands_its_sleepers_over(
    stack: Stack, etzel: AdapterPart, workers: list[EtzelClient], queue: str
) -> None:
    fall_asleep(workers, queue)
    assert stack.core.terminate() == 0
    stack.core.start()
    fetch_when_served(workers[1], queue)
    workers[1].publish(queue, 1)
    assert [worker.awake() for worker in workers] == [queue] * 2
