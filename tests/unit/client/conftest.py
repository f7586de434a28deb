"""A scripted core on a unix socket, and a session with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quintet_client.session import Session

from tests.unit.client.scripted_core import ScriptedCore


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[ScriptedCore]:
    core = ScriptedCore(tmp_path / "core.sock")
    await core.start()
    yield core
    await core.stop()


@pytest.fixture
async def session(core: ScriptedCore) -> AsyncIterator[Session]:
    session = await Session.connect(core.target)
    yield session
    await session.close()
