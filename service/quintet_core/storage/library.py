"""The Redis Functions library: its source, its version, and loading it.

A core loads it when it is missing or older and never downgrades it: a newer library keeps every `_v1` function.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

NAME = "quintet"


@lru_cache(maxsize=1)
def source() -> str:
    """The library as Redis takes it: the files of `storage/lua` in the order of their names."""
    files = sorted(
        (entry for entry in (resources.files(__package__) / "lua").iterdir() if entry.name.endswith(".lua")),
        key=lambda entry: entry.name,
    )
    return f"#!lua name={NAME}\n" + "".join(entry.read_text() for entry in files)


@lru_cache(maxsize=1)
def version() -> int:
    """The version that the source declares."""
    found = re.search(r"^local VERSION = (\d+)$", source(), re.MULTILINE)
    if not found:
        raise RuntimeError("the function library declares no version")
    return int(found[1])
