"""The event log as Redis itself holds it, decoded here from its bytes: what an archive is held against.

Nothing of the core's or the pipeline's reading is used, so that a fault of theirs cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from quintet.v1.event_pb2 import EventKind
from quintet.v1.job_pb2 import JobState

from tests.support.redis_server import RedisConnection

EVENT_BYTES = 48
TABLES_FROM = 2**31
ENTRIES_PER_READ = 500
_ROW_KINDS = (EventKind.EVENT_KIND_ROW_PUT, EventKind.EVENT_KIND_ROW_DELETED, EventKind.EVENT_KIND_ROW_EXPIRED)
_CARRIES_PAYLOAD, _CARRIES_VALUE, _DROPPED = 64, 1, 2
_EVENT = np.dtype(
    [
        ("kind", ">u1"),
        ("number", ">u4"),
        ("sequence", ">u8"),
        ("rank", ">u8"),
        ("attempt", ">u4"),
        ("wait_ms", ">u8"),
        ("service_ms", ">u8"),
        ("payload_bytes", ">u4"),
        ("state", ">u1"),
        ("detail_bytes", ">u2"),
    ]
)
_KINDS = {number: name.removeprefix("EVENT_KIND_").lower() for name, number in EventKind.items()}
_STATES = {number: name.removeprefix("JOB_STATE_").lower() for name, number in JobState.items()}

RECORD = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("kind", pa.string()),
        ("at_ms", pa.int64()),
        ("namespace", pa.string()),
        ("queue", pa.string()),
        ("job_id", pa.int64()),
        ("rank", pa.int64()),
        ("attempt", pa.int32()),
        ("wait_ms", pa.int64()),
        ("service_ms", pa.int64()),
        ("payload_bytes", pa.int32()),
        ("state", pa.string()),
        ("detail", pa.string()),
        ("table", pa.string()),
        ("key", pa.binary()),
        ("expires_at_ms", pa.int64()),
        ("payload", pa.binary()),
    ]
)
"""One row is one event, as in the archive; instants are epoch milliseconds."""


@dataclass
class _Gathered:
    """Events of one partition, walked through and not yet put in columns."""

    fixed: list[bytes] = field(default_factory=list)
    details: list[bytes] = field(default_factory=list)
    at_ms: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    carried: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, fields: Sequence[bytes]) -> int:
        """An entry of the stream; returns how many events are in it."""
        parts = dict(zip(fields[::2], fields[1::2], strict=True))
        self._learn(parts[b"n"])
        events, start, at = parts[b"e"], len(self.fixed), 0
        while at < len(events):
            end = at + EVENT_BYTES
            detail_bytes = events[end - 2] << 8 | events[end - 1]
            self.fixed.append(events[at:end])
            self.details.append(events[end : end + detail_bytes])
            at = end + detail_bytes
        assert at == len(events), "an event is cut short"
        count = len(self.fixed) - start
        self.at_ms.append(int(parts[b"t"]))
        self.counts.append(count)
        if b"v" in parts:
            self._carry(parts[b"v"], start)
        return count

    def _learn(self, names: bytes) -> None:
        at = 0
        while at < len(names):
            number = int.from_bytes(names[at : at + 4], "big")
            end = at + 6 + int.from_bytes(names[at + 4 : at + 6], "big")
            key = names[at + 6 : end]
            namespace_end = 1 + key[0]
            name = key[1:namespace_end].decode(), key[namespace_end:].decode()
            # A number stands for one name for ever.
            assert self.names.setdefault(number, name) == name, f"{number} was {self.names[number]}, now {name}"
            at = end

    def _carry(self, values: bytes, start: int) -> None:
        """What the events from `start` on carry, one behind the other."""
        at = 0
        for index in range(start, len(self.fixed)):
            event = self.fixed[index]
            kind, state = event[0], event[EVENT_BYTES - 3]
            is_put = kind == EventKind.EVENT_KIND_ROW_PUT and state == _CARRIES_VALUE
            if is_put or (kind == EventKind.EVENT_KIND_JOB_ENQUEUED and state & _CARRIES_PAYLOAD):
                end = at + int.from_bytes(event[EVENT_BYTES - 7 : EVENT_BYTES - 3], "big")
                self.carried[index] = values[at:end]
                at = end
        assert at == len(values), "something is carried that no event is of"


class Recorder:
    """Reads the logs of all partitions piece by piece, each from where it had come; for logs that are being trimmed."""

    def __init__(self, path: str, partitions: int) -> None:
        self._path = path
        self.partitions = partitions
        self._gathered = [_Gathered() for _ in range(partitions)]
        self.last_offsets = [0] * partitions
        """How far each partition was read."""

    def read(self) -> int:
        """Read on to the end; how many events that were. Raises AssertionError where some are gone already."""
        with RedisConnection(self._path) as redis:
            return sum(self._read_partition(redis, partition) for partition in range(self.partitions))

    def _read_partition(self, redis: RedisConnection, partition: int) -> int:
        found = 0
        for last_offset, fields in _entries(redis, partition, self.last_offsets[partition]):
            count = self._gathered[partition].add(fields)
            expected = self.last_offsets[partition] + count
            assert last_offset == expected, f"partition {partition}: entry {last_offset} where {expected} was expected"
            self.last_offsets[partition] = last_offset
            found += count
        return found

    def table(self) -> pa.Table:
        """Everything read so far, with the columns of RECORD, by partition and offset."""
        parts = (
            _columns(gathered, number, self.partitions)
            for number, gathered in enumerate(self._gathered)
            if gathered.fixed
        )
        return pa.concat_tables([RECORD.empty_table(), *parts])


def recorded(path: str, partitions: int) -> pa.Table:
    """The whole log of the Redis on the unix socket `path`, none of which may have been trimmed."""
    recorder = Recorder(path, partitions)
    recorder.read()
    return recorder.table()


def _entries(redis: RedisConnection, partition: int, after: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Last offset and fields of each entry behind an offset."""
    key = f"{{p{partition:02d}}}:events"
    while True:
        found = redis.command("XRANGE", key, f"({after}-0", "+", "COUNT", ENTRIES_PER_READ)
        for entry_id, fields in found:
            after = int(entry_id.partition(b"-")[0])
            yield after, fields
        if len(found) < ENTRIES_PER_READ:
            return


def _columns(gathered: _Gathered, partition: int, partitions: int) -> pa.Table:
    events = np.frombuffer(b"".join(gathered.fixed), dtype=_EVENT)
    n = len(events)
    of_job = events["sequence"] > 0
    of_row = np.isin(events["kind"], _ROW_KINDS)
    of_table = events["number"] >= TABLES_FROM
    namespaces, names = _named(events["number"], gathered.names)
    # Unsigned 64 bits around 2^63 to signed ones around 0.
    rank = (events["rank"].astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    states = [_STATES.get(state & ~_CARRIES_PAYLOAD) if job else None for state, job in _pairs(events["state"], of_job)]
    columns: dict[str, Any] = {
        "partition": np.full(n, partition, np.int32),
        "offset": np.arange(1, n + 1, dtype=np.int64),
        "kind": [_KINDS[kind] for kind in events["kind"].tolist()],
        "at_ms": np.repeat(np.array(gathered.at_ms, np.int64), gathered.counts),
        "namespace": namespaces,
        "queue": pa.array(names, mask=of_table),
        "job_id": pa.array(events["sequence"].astype(np.int64) * partitions + partition, mask=~of_job),
        "rank": pa.array(rank, mask=~of_job),
        "attempt": events["attempt"].astype(np.int32),
        "wait_ms": events["wait_ms"].astype(np.int64),
        "service_ms": events["service_ms"].astype(np.int64),
        "payload_bytes": events["payload_bytes"].astype(np.int32),
        "state": [state if state != "unspecified" else None for state in states],
        "detail": _details(gathered.details, of_row, events["state"]),
        "table": pa.array(names, mask=~of_table),
        "key": [detail if row else None for detail, row in zip(gathered.details, of_row.tolist(), strict=True)],
        "expires_at_ms": pa.array(events["rank"].astype(np.int64), mask=~of_row | (events["rank"] == 0)),
        "payload": [gathered.carried.get(index) for index in range(n)],
    }
    arrays = [pa.array(columns[name.name], name.type) for name in RECORD]
    return pa.Table.from_arrays(arrays, schema=RECORD)


def _pairs(*columns: np.ndarray[Any, Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _named(
    numbers: np.ndarray[Any, Any], names: dict[int, tuple[str, str]]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Namespaces and names that the numbers stand for."""
    known, at = np.unique(numbers, return_inverse=True)
    found = [names[number] for number in known.tolist()]
    namespaces = np.array([namespace for namespace, _ in found], dtype=object)
    return namespaces[at], np.array([name for _, name in found], dtype=object)[at]


def _details(details: Sequence[bytes], of_row: np.ndarray[Any, Any], states: np.ndarray[Any, Any]) -> list[str | None]:
    return [
        ("table deleted" if state == _DROPPED else None) if row else (detail.decode() or None)
        for detail, (row, state) in zip(details, _pairs(of_row, states), strict=True)
    ]
