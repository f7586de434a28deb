"""Two cores on one Redis."""

from __future__ import annotations

import statistics
import time

import pytest

from tests.faults.conftest import NewClient
from tests.support.proxy import Proxy
from tests.support.stack import AdapterPart, CorePart, Stack

PUTS = 30


@pytest.fixture
def second(stack: Stack) -> CorePart:
    """The other replica."""
    core = stack.second_core()
    core.environment.update(stack.core.environment)
    core.start()
    return core


@pytest.fixture
def beside(stack: Stack, second: CorePart) -> AdapterPart:
    """An adapter on the other replica."""
    adapter = stack.further_adapter("job-centre", second)
    adapter.start()
    return adapter


def test_a_job_put_through_one_wakes_who_waits_at_the_other(
    stack: Stack, beside: AdapterPart, queue: str, new_client: NewClient, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting, producer = new_client(stack.job_centre.address), new_client(beside.address)
    waits_ms = []
    for _ in range(PUTS):
        waiting.send({"request": "get", "queues": [queue], "wait": True})
        assert waiting.is_silent(0.02)
        put_at = time.monotonic()
        job_id = producer.put(queue)
        assert waiting.read()["id"] == job_id
        waits_ms.append((time.monotonic() - put_at) * 1000)
    with capsys.disabled():
        print(f"\nwoken across replicas: median {statistics.median(waits_ms):.1f} ms, worst {max(waits_ms):.1f} ms")


def test_a_session_goes_on_at_the_other_with_its_leases(
    stack: Stack, second: CorePart, queue: str, new_client: NewClient
) -> None:
    with Proxy(stack.folder / "cores.sock", stack.core.socket) as proxy:
        adapter = stack.further_adapter("job-centre", QUINTET_CORE_TARGET=f"unix:{proxy.place}")
        adapter.start()
        worker, other = new_client(adapter.address), new_client(adapter.address)
        ids = [worker.put(queue) for _ in range(2)]
        assert [worker.get(queue)["id"] for _ in ids] == ids
        proxy.retarget(second.socket)
        stack.core.kill9()
        answer = other.get(queue)
        while answer["status"] == "error":
            answer = other.get(queue)
        assert answer["status"] == "no-job"
        assert worker.delete(ids[0]) == "ok"
        assert worker.abort(ids[1]) == "ok"
        assert other.get(queue)["id"] == ids[1]
