"""The queue without a name is asked for whenever the core is there, and again while its store is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quintet.v1.queue_service_pb2 import CreateQueueResponse
from quintet.v1.reason_pb2 import REASON_PERMISSION_DENIED, REASON_QUEUE_EXISTS, REASON_UNAVAILABLE
from quintet.v1.session_service_pb2 import Failure, SessionOperation, SessionResult
from quintet_adapters.default_queue import DefaultQueue
from quintet_client.session import Session

from tests.unit.client.scripted_core import ScriptedCore

MADE = SessionResult(create_queue=CreateQueueResponse())


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[ScriptedCore]:
    core = ScriptedCore(tmp_path / "core.sock")
    await core.start()
    yield core
    await core.stop()


@pytest.fixture
async def session(core: ScriptedCore) -> AsyncIterator[Session]:
    async with await Session.connect(core.target) as session:
        yield session


def answers(core: ScriptedCore, *results: SessionResult) -> None:
    left = list(results)

    def answer(operation: SessionOperation) -> SessionResult:
        result = SessionResult(sequence=operation.sequence)
        result.MergeFrom(left.pop(0))
        return result

    core.answers["create_queue"] = answer


def refused(reason: int) -> SessionResult:
    return SessionResult(failure=Failure(reason=reason))  # type: ignore[arg-type]


async def until_asked(core: ScriptedCore, times: int) -> SessionOperation:
    await core.until(lambda: len(core.received("create_queue")) >= times)
    return core.received("create_queue")[-1]


async def test_is_asked_for_without_limits(core: ScriptedCore, session: Session) -> None:
    answers(core, MADE)
    DefaultQueue(session, "tenant")
    asked = (await until_asked(core, 1)).create_queue
    assert (asked.namespace, asked.queue) == ("tenant", "")
    assert not asked.settings.HasField("jobs_max")


async def test_is_asked_for_again_with_every_new_connection(core: ScriptedCore, session: Session) -> None:
    answers(core, MADE, refused(REASON_QUEUE_EXISTS))
    DefaultQueue(session, "default")
    await until_asked(core, 1)
    await core.break_streams()
    await until_asked(core, 2)


async def test_is_asked_for_again_while_the_store_is_away(core: ScriptedCore, session: Session) -> None:
    answers(core, refused(REASON_UNAVAILABLE), MADE)
    DefaultQueue(session, "default")
    await until_asked(core, 2)


async def test_that_is_not_allowed_is_told(
    core: ScriptedCore, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(core, refused(REASON_PERMISSION_DENIED))
    DefaultQueue(session, "default")
    while "PERMISSION_DENIED" not in "".join(capsys.readouterr()):
        await asyncio.sleep(0)
