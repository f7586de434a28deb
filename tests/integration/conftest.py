"""Fixtures of the tests against real processes."""

from collections.abc import AsyncIterator

import pytest

from tests.support.api import Api, open_api
from tests.support.core import core, queue
from tests.support.stack import CorePart

__all__ = ["api", "core", "queue"]


@pytest.fixture
async def api(core: CorePart) -> AsyncIterator[Api]:
    """Every service of the core of the module."""
    async with open_api(core.target) as api:
        yield api
