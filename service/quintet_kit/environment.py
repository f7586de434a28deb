"""The environment of this process and of its children: the only module of Quintet that reads `os.environ`."""

import os
from collections.abc import Mapping


def variables() -> Mapping[str, str]:
    """The environment as it is now."""
    return os.environ


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child process: ours, with `overrides`."""
    return {**os.environ, **overrides}


def set_default_variable(name: str, value: str) -> None:
    """Set an environment variable that another library reads, unless whoever started the process has set it."""
    os.environ.setdefault(name, value)
