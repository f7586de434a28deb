"""Sleepers of Etzel on real sockets, in front of a scripted core: asked for again, and called off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quintet.v1.queue_service_pb2 import AwaitJobsResponse, CreateQueueResponse
from quintet.v1.reason_pb2 import REASON_UNAVAILABLE
from quintet.v1.session_service_pb2 import Failure, SessionOperation, SessionResult
from quintet_adapters.protocols.etzel import Etzel
from quintet_adapters.protocols.etzel_requests import EtzelLimits, EtzelReader
from quintet_adapters.settings import EtzelSettings

from tests.unit.adapters.test_connection import Served, script, serve
from tests.unit.client.scripted_core import ScriptedCore


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedCore]:
    core = ScriptedCore(tmp_path / "core.sock")
    script(core, "create_queue", lambda _: SessionResult(create_queue=CreateQueueResponse()))
    await core.start()
    yield core
    await core.stop()


@pytest.fixture
async def etzel(scripted: ScriptedCore) -> AsyncIterator[Served]:
    reader = EtzelReader(EtzelLimits())
    async for served in serve(scripted, lambda metrics: Etzel.by_lines(reader, metrics.requests), Etzel.commands):
        yield served


async def test_a_client_need_not_read_for_any_time() -> None:
    assert EtzelSettings().tcp_limits().unacknowledged_ms == 0


class Sleeper:
    """A client that has fallen asleep on a queue, and whose wait the core holds."""

    def __init__(self, etzel: Served, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.etzel = etzel
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, etzel: Served) -> Sleeper:
        sleeper = cls(etzel, *await etzel.connect())
        sleeper.writer.write(b'{"cmd":"SUB","qname":"q"}\n{"cmd":"ISLP","qname":"q"}\n')
        assert [(await sleeper.read())["cmd"] for _ in range(2)] == ["oksub", "okslp"]
        return sleeper

    async def read(self) -> dict[str, Any]:
        return dict(json.loads(await self.reader.readline()))

    async def waits(self, times: int) -> SessionOperation:
        """The last of so many waits that the core was asked for."""
        return (await self.etzel.until_asked("await_jobs", times))[-1]


def ready(operation: SessionOperation) -> SessionResult:
    return SessionResult(sequence=operation.sequence, await_jobs=AwaitJobsResponse(ready=True))


async def test_a_wait_that_fails_while_the_core_is_there_is_asked_for_again(etzel: Served) -> None:
    sleeper = await Sleeper.connect(etzel)
    first = await sleeper.waits(1)
    etzel.core.respond(SessionResult(sequence=first.sequence, failure=Failure(reason=REASON_UNAVAILABLE)))
    etzel.core.respond(ready(await sleeper.waits(2)))
    assert await sleeper.read() == {"cmd": "awk", "qname": "q"}


async def test_waits_that_a_stream_took_along_are_asked_for_again_by_the_next(etzel: Served) -> None:
    sleepers = [await Sleeper.connect(etzel) for _ in range(3)]
    await sleepers[0].waits(3)
    await etzel.core.break_streams()
    await sleepers[0].waits(6)
    again = etzel.operations("await_jobs")[3:]
    assert len({operation.owner for operation in again}) == 3
    for operation in again:
        etzel.core.respond(ready(operation))
    assert [await sleeper.read() for sleeper in sleepers] == [{"cmd": "awk", "qname": "q"}] * 3


async def test_who_disconnects_is_waited_for_no_longer(etzel: Served) -> None:
    sleeper = await Sleeper.connect(etzel)
    wait = await sleeper.waits(1)
    sleeper.writer.close()
    cancels = await etzel.until_asked("cancel_wait")
    assert (cancels[0].owner, cancels[0].cancel_wait.sequence) == (wait.owner, wait.sequence)


async def test_who_disconnects_while_the_core_is_away_is_not_waited_for_again(etzel: Served) -> None:
    leaving, staying = await Sleeper.connect(etzel), await Sleeper.connect(etzel)
    await staying.waits(2)
    await etzel.core.stop()
    leaving.writer.close()
    await leaving.writer.wait_closed()
    while etzel.metric("quintet_adapter_connections") > 1:
        await asyncio.sleep(0)
    await etzel.core.start()
    etzel.core.respond(ready(await staying.waits(3)))
    assert await staying.read() == {"cmd": "awk", "qname": "q"}
    assert len(etzel.operations("await_jobs")) == 3
