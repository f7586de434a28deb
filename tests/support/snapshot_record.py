"""A decoder of the metrics log of its own, written from event_service.proto: what is there must not need the core's."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from tests.support.redis_server import RedisConnection

FIXED_BYTES = 175
QUEUE, TABLE, PROCESS = 1, 2, 3
TOTALS = (
    "enqueued", "dequeued", "acknowledged", "released", "lease_expired", "owner_closed", "extended", "deleted",
    "became_ready", "expired", "redriven", "dead_lettered", "died",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One snapshot. Of a process `detail` is its JSON, and namespace and name are empty."""

    offset: int
    at_ms: int
    kind: int
    number: int
    namespace: str
    name: str
    interval_ms: int
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_age_ms: int
    totals: dict[str, int]
    detail: Any = None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Ready, delayed, leased, dead."""
        return self.ready, self.delayed, self.leased, self.dead


def read_metrics(redis: RedisConnection, partition: int, after: int = 0) -> list[Record]:
    """Every snapshot of a partition's log behind an offset, in order. Fails for offsets that do not follow."""
    found: list[Record] = []
    for entry_id, fields in redis.command("XRANGE", f"{{p{partition:02d}}}:metrics", f"({after}-0", "+"):
        told = dict(zip(fields[::2], fields[1::2], strict=True))
        last, _, part = entry_id.partition(b"-")
        assert part == b"0"
        records = list(_records(int(told[b"t"]), dict(_names(told[b"n"])), told[b"e"]))
        first = int(last) - len(records) + 1
        assert not found or first == found[-1].offset + 1, f"{first} behind {found[-1].offset}"
        found += (Record(first + index, *rest) for index, rest in enumerate(records))
    return found


def _names(packed: bytes) -> Any:
    at = 0
    while at < len(packed):
        number, size = struct.unpack_from(">IH", packed, at)
        key = packed[at + 6 : at + 6 + size]
        yield number, (key[1 : 1 + key[0]].decode(), key[1 + key[0] :].decode())
        at += 6 + size
    assert at == len(packed)


def _records(at_ms: int, names: dict[int, tuple[str, str]], packed: bytes) -> Any:
    at = 0
    while at < len(packed):
        kind, number = struct.unpack_from(">BI", packed, at)
        interval, ready, delayed, leased, dead, age, *rest = struct.unpack_from(">21Q", packed, at + 5)
        (size,) = struct.unpack_from(">H", packed, at + 173)
        detail = packed[at + FIXED_BYTES : at + FIXED_BYTES + size]
        assert len(detail) == size
        assert kind in (QUEUE, TABLE, PROCESS)
        assert (number >= 1 << 31) == (kind == TABLE)
        assert rest[13:] == [0, 0]
        namespace, name = ("", "") if kind == PROCESS else names[number]
        totals = dict(zip(TOTALS, rest[:13], strict=True))
        told = json.loads(detail) if kind == PROCESS else None
        yield at_ms, kind, number, namespace, name, interval, ready, delayed, leased, dead, age, totals, told
        at += FIXED_BYTES + size
    assert at == len(packed)
