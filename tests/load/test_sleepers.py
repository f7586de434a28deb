"""Workers of Etzel by the thousand that sleep on one queue; more by hand, with the figures printed:

QUINTET_LOAD_CLIENTS=5000 pytest tests/load/test_sleepers.py
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket

from tests.support.crowd import crowd, join
from tests.support.stack import AdapterPart, Stack, stack_for_tests, until

SLEEPERS = int(os.environ.get("QUINTET_LOAD_CLIENTS", "1000"))
ROUNDS = 3
QUEUE = "sleepers"
_CONNECTING_MAX = 100


class Worker(Protocol):
    """A connection of Etzel that sends and reads JSON."""

    async def send(self, cmd: str, **fields: Any) -> None:
        """One request about the queue."""

    async def read(self) -> dict[str, Any]:
        """The next answer or wake-up."""


class ByLines:
    """A worker of the TCP port."""

    def __init__(self, member: Any) -> None:
        self._member = member

    async def send(self, cmd: str, **fields: Any) -> None:
        self._member.send([{"cmd": cmd, "qname": QUEUE, **fields}])

    async def read(self) -> dict[str, Any]:
        return dict(await self._member.read())


class ByWebSocket:
    """A worker of the WebSocket port."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket

    async def send(self, cmd: str, **fields: Any) -> None:
        await self._websocket.send(json.dumps({"cmd": cmd, "qname": QUEUE, **fields}))

    async def read(self) -> dict[str, Any]:
        return dict(json.loads(await self._websocket.recv()))


@pytest.fixture
def stack() -> Iterator[Stack]:
    yield from stack_for_tests(QUINTET_CONNECTIONS_MAX=str(SLEEPERS + 100))


@pytest.fixture
def etzel(stack: Stack) -> AdapterPart:
    adapter = stack.further_adapter("etzel", QUINTET_CONNECTIONS_MAX=str(SLEEPERS + 100))
    adapter.start()
    return adapter


@asynccontextmanager
async def workers_by(transport: str, etzel: AdapterPart) -> AsyncIterator[list[Worker]]:
    """So many connections."""
    if transport == "lines":
        async with crowd(etzel.address_of("etzel-lines"), SLEEPERS) as members:
            yield [ByLines(member) for member in members]
        return
    host, port = etzel.address
    async with AsyncExitStack() as stack:
        websockets: list[ClientConnection] = []
        while len(websockets) < SLEEPERS:
            count = min(_CONNECTING_MAX, SLEEPERS - len(websockets))
            opening = [connect_websocket(f"ws://{host}:{port}/connect", proxy=None) for _ in range(count)]
            websockets += await asyncio.gather(*map(stack.enter_async_context, opening))
        yield [ByWebSocket(websocket) for websocket in websockets]


async def everybody(workers: list[Worker], cmd: str) -> list[dict[str, Any]]:
    """Every worker's answer to the same request."""
    for worker in workers:
        await worker.send(cmd)
    return [await worker.read() for worker in workers]


@pytest.mark.timeout(60 + SLEEPERS // 20)
@pytest.mark.parametrize("transport", ["lines", "websocket"])
async def test_one_message_wakes_everybody_asleep_once_and_one_gets_it(
    stack: Stack, etzel: AdapterPart, transport: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = ByLines(await join(etzel.address_of("etzel-lines")))
    figures = []
    async with workers_by(transport, etzel) as workers:
        assert {answer["cmd"] for answer in await everybody(workers, "SUB")} == {"oksub"}
        for number in range(ROUNDS):
            assert {answer["cmd"] for answer in await everybody(workers, "ISLP")} == {"okslp"}
            until(lambda: stack.core.metrics()["quintet_core_awaiting_jobs"] == SLEEPERS, "everybody to be waited for")
            published_at = time.monotonic()
            await publisher.send("PUB", message=number)
            assert [(await worker.read())["cmd"] for worker in workers] == ["awk"] * SLEEPERS
            figures.append(f"{SLEEPERS} woken by {transport} within {(time.monotonic() - published_at) * 1000:.0f} ms")
            uid = (await publisher.read())["uid"]
            answers = await everybody(workers, "FET")
            assert sorted(answer["cmd"] for answer in answers) == ["msg"] + ["nomsg"] * (SLEEPERS - 1)
            await publisher.send("ACK", uid=uid)
            assert (await publisher.read())["cmd"] == "okack"
    until(lambda: stack.core.metrics()["quintet_core_awaiting_jobs"] == 0, "nobody to be waited for")
    with capsys.disabled():
        print("", *figures, sep="\n  ")
