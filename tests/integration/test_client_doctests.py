"""The examples in the client's documentation, run against a real core."""

from __future__ import annotations

import asyncio
import doctest

import pytest
import quintet_client
from quintet_client import client

from tests.support.stack import CorePart

MODULES = (client,)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_example_does_what_it_says(core: CorePart, module: object) -> None:
    names = {name: getattr(quintet_client, name) for name in quintet_client.__all__}
    failures, tried = doctest.testmod(
        module,  # type: ignore[arg-type]
        extraglobs=names | {"asyncio": asyncio, "TARGET": core.target},
        optionflags=doctest.NORMALIZE_WHITESPACE,
    )
    assert tried > 0
    assert failures == 0
