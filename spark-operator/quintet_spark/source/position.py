"""Places in a log: as options name them, as checkpoints keep them, and how the way between two is divided.

Offsets are kept by partition, as the offset of the last record dealt with: reading goes on behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql.datasource import InputPartition

Offsets = dict[int, int]

EARLIEST, LATEST = "earliest", "latest"
_DIGITS = re.compile(r"\d{1,15}")


@dataclass(frozen=True, slots=True)
class Position:
    """A word (EARLIEST, LATEST), offsets of some partitions, or a moment in epoch milliseconds."""

    word: str = ""
    offsets: tuple[tuple[int, int], ...] = ()
    at_ms: int | None = None

    @classmethod
    def of_text(cls, text: str) -> Position:
        """What an option says. Raises ValueError."""
        stripped = text.strip()
        if stripped.lower() in (EARLIEST, LATEST):
            return cls(word=stripped.lower())
        if stripped.startswith("{"):
            return cls(offsets=tuple(sorted(_json_offsets(stripped).items())))
        if _DIGITS.fullmatch(stripped):
            return cls(at_ms=int(stripped))
        return cls(at_ms=_moment_ms(stripped))


def _json_offsets(text: str) -> Offsets:
    try:
        told = json.loads(text)
    except ValueError:
        raise ValueError("is no JSON") from None
    return parsed(told)


def _moment_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "must be earliest, latest, a moment (2026-01-31T12:00:00Z, or epoch milliseconds), "
            'or offsets by partition ({"0": 123})'
        ) from None
    if moment.tzinfo is None:
        raise ValueError("names no time zone: end it with Z, or an offset like +02:00")
    if moment.timestamp() < 0:
        raise ValueError("is before 1970")
    return round(moment.timestamp() * 1000)


def parsed(told: object) -> Offsets:
    """Offsets as JSON keeps them: partition, as text, to offset. Raises ValueError for anything else."""
    if not isinstance(told, Mapping) or not all(_is_offset(*item) for item in told.items()):
        raise ValueError('must be offsets by partition, such as {"0": 123, "1": 0}')
    return {int(partition): offset for partition, offset in told.items()}


def _is_offset(partition: object, offset: object) -> bool:
    return (
        isinstance(partition, str)
        and re.fullmatch(r"\d{1,5}", partition) is not None
        and isinstance(offset, int)
        and not isinstance(offset, bool)
        and 0 <= offset < 1 << 63
    )


def stored(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets as checkpoints keep them; the same text each time."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


@dataclass
class Stretch(InputPartition):
    """What one task reads: records (after, through] of one partition of a log. `partitions`: how many Quintet has."""

    partition: int
    after: int
    through: int
    partitions: int


def divided(starts: Mapping[int, int], ends: Mapping[int, int], partitions: int, split_events: int) -> list[Stretch]:
    """The way from `starts` to `ends`: a stretch for each partition that has moved, and several nearly equal ones
    where it is longer than `split_events`."""
    return [
        Stretch(partition, after, through, partitions)
        for partition in sorted(ends)
        for after, through in _pieces(starts[partition], ends[partition], split_events)
    ]


def _pieces(after: int, through: int, longest: int) -> Iterator[tuple[int, int]]:
    length = through - after
    count = -(-length // longest)
    for k in range(count):
        yield after + length * k // count, after + length * (k + 1) // count


def spread(available: Mapping[int, int], most: int) -> Offsets:
    """How many of `available` records to take of each partition, `most` in all: every one gets the same, but those
    that have less, whose remainder goes to the others. No partition waits for another one."""
    taken, left = dict[int, int](), most
    for rank, partition in enumerate(sorted(available, key=lambda each: (available[each], each))):
        taken[partition] = min(available[partition], left // (len(available) - rank))
        left -= taken[partition]
    return taken
