"""The manifest of Spark's file sink: which files of a folder count.

Each batch writes its files to where they stay, and then one list of them (`_spark_metadata/<batch>`; every tenth holds
all before it, `<batch>.compact`), by a rename that only one can win. What no list names does not count: a driver
that was killed left it. Spark reads by these lists by itself; other readers ask `committed_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

FOLDER = "_spark_metadata"
_COMPACT = ".compact"
_VERSION = "v1"


class _Entry(msgspec.Struct):
    path: str
    action: str = "add"


def batch_of(name: str) -> int | None:
    """The batch of a list's file name; None of other files (drafts, checksums)."""
    digits = name.removesuffix(_COMPACT)
    return int(digits) if digits.isascii() and digits.isdigit() else None


def latest_batch(names: Iterable[str]) -> int:
    """The last batch that committed; -1 when none did."""
    return max((batch for name in names if (batch := batch_of(name)) is not None), default=-1)


def paths(names: Iterable[str], read: Callable[[str], str]) -> list[str]:
    """The paths that count (URIs, as Spark wrote them). `names` are those of the lists, `read` gives one's text."""
    lists = {name: batch for name in names if (batch := batch_of(name)) is not None}
    compacted = max((batch for name, batch in lists.items() if name.endswith(_COMPACT)), default=-1)
    wanted = [
        name
        for name, batch in sorted(lists.items(), key=lambda item: item[1])
        if batch > compacted or (batch == compacted and name.endswith(_COMPACT))
    ]
    found: dict[str, None] = {}
    for name in wanted:
        for entry in _entries(read(name)):
            if entry.action == "delete":
                found.pop(entry.path, None)
            else:
                found[entry.path] = None
    return list(found)


def committed_files(folder: Path) -> list[Path]:
    """The Parquet files of a local folder that count, for readers other than Spark.

    Raises FileNotFoundError when no batch has been written. The lake may have been moved since.
    """
    lists = folder / FOLDER
    found = paths([each.name for each in lists.iterdir()], lambda name: (lists / name).read_text())
    return [_below(folder, urlsplit(path).path) for path in found]


def _below(folder: Path, path: str) -> Path:
    """The file, by the folders that its columns make: the manifest still tells where a lake was before it was moved."""
    parts = [unquote(part) for part in path.split("/")]
    depth = next((place for place in range(len(parts) - 1, 0, -1) if "=" not in parts[place - 1]), 0)
    return folder.joinpath(*parts[depth:])


def _entries(text: str) -> list[_Entry]:
    version, *lines = text.splitlines()
    if version != _VERSION:
        raise ValueError(f"a manifest of version {version!r}, not {_VERSION}")
    return [msgspec.json.decode(line, type=_Entry) for line in lines if line]
