"""The exposition server answers three paths and bounds everything else."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Counter
from quintet_kit.exposition import REQUEST_BYTES_MAX, Exposition


class World:
    """A running exposition whose readiness the test decides."""

    def __init__(self) -> None:
        self.readiness = (True, "ready")
        self.registry = CollectorRegistry()
        self.exposition: Exposition

    async def ask(self, request: bytes) -> bytes:
        host, port = self.exposition.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def get(self, path: str) -> bytes:
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.exposition = await Exposition.start(registry=world.registry, ready=lambda: world.readiness)
    yield world
    await world.exposition.close()


async def test_metrics_are_served_as_text(world: World) -> None:
    Counter("example_total", "Example.", registry=world.registry).inc()
    answer = await world.get("/metrics?name=x")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
    assert b"example_total 1.0\n" in answer


async def test_a_live_process_says_so_also_when_it_is_not_ready(world: World) -> None:
    world.readiness = (False, "draining")
    assert (await world.get("/healthz")).startswith(b"HTTP/1.1 200 ")


async def test_readiness_answers_503_with_the_reason(world: World) -> None:
    assert (await world.get("/readyz")).startswith(b"HTTP/1.1 200 ")
    world.readiness = (False, "Redis does not fsync")
    answer = await world.get("/readyz")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b"\r\n\r\nRedis does not fsync\n")


async def test_head_sends_no_body(world: World) -> None:
    answer = await world.ask(b"HEAD /healthz HTTP/1.0\r\n\r\n")
    assert b"Content-Length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x00\xff\r\n\r\n", b"400"),
        (b"GET /metrics SPDY\r\n\r\n", b"400"),
        (b"GET /" + b"x" * REQUEST_BYTES_MAX + b" HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_other_requests_are_refused(world: World, request_bytes: bytes, status: bytes) -> None:
    assert (await world.ask(request_bytes)).split(b" ")[1] == status
    assert (await world.get("/healthz")).startswith(b"HTTP/1.1 200 ")


async def test_a_request_cut_off_harms_nobody(world: World) -> None:
    host, port = world.exposition.address.rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /met")
    writer.close()
    assert (await world.get("/healthz")).startswith(b"HTTP/1.1 200 ")
