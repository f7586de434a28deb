"""Fixtures of the tests against real processes."""

from tests.support.core import core, queue

__all__ = ["core", "queue"]
