"""Blocks of the logs, written and read record by record: slow, plain, and by the words of event_service.proto alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from quintet.v1.event_pb2 import EventKind
from quintet.v1.event_service_pb2 import ReadBlocksResponse
from quintet.v1.job_pb2 import JobState

FIRST_TABLE = 1 << 31
_EVENT = struct.Struct(">BIQQIQQIBH")
_SNAPSHOT = struct.Struct(">BI21QH")
_TOTALS = (
    *("enqueued", "dequeued", "acknowledged", "released", "lease_expired", "owner_closed", "extended", "deleted"),
    *("became_ready", "expired", "redriven", "dead_lettered", "died"),
)
_NUMBERS = (
    *("interval_ms", "ready", "delayed", "leased", "dead", "oldest_ready_age_ms"),
    *(f"{each}_total" for each in _TOTALS),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class PlainEvent:
    """One event's fields as they are laid out; `carried` is None when nothing is."""

    kind: int
    number: int
    sequence: int = 0
    rank: int = 0
    attempt: int = 0
    wait_ms: int = 0
    service_ms: int = 0
    payload_bytes: int = 0
    state: int = 0
    detail: bytes = b""
    carried: bytes | None = None


@dataclass(frozen=True)
class PlainSnapshot:
    """One snapshot's fields as they are laid out."""

    kind: int
    number: int
    numbers: Sequence[int] = field(default=(0,) * 21)
    detail: bytes = b""


Entry = tuple[int, Sequence[PlainEvent | PlainSnapshot]]
"""When it was written, and what at once."""


def block_of(
    first_offset: int, entries: Sequence[Entry], names: Mapping[int, tuple[str, str]], *, with_carried: bool = True
) -> ReadBlocksResponse:
    """The block that holds `entries`."""
    block = ReadBlocksResponse(first_offset=first_offset)
    for number, (namespace, name) in names.items():
        block.numbers.append(number)
        block.namespaces.append(namespace)
        block.names.append(name)
    for at_ms, records in entries:
        packed = b"".join(map(_packed, records))
        block.entry_at_ms.append(at_ms)
        block.entry_bytes.append(len(packed))
        block.records += packed
        if with_carried:
            block.carried += b"".join(getattr(each, "carried", None) or b"" for each in records)
    return block


def _packed(record: PlainEvent | PlainSnapshot) -> bytes:
    if isinstance(record, PlainSnapshot):
        return _SNAPSHOT.pack(record.kind, record.number, *record.numbers, len(record.detail)) + record.detail
    fields = (record.kind, record.number, record.sequence, record.rank, record.attempt, record.wait_ms)
    size = record.payload_bytes if record.carried is None else len(record.carried)
    return _EVENT.pack(*fields, record.service_ms, size, record.state, len(record.detail)) + record.detail


def event_rows(
    block: ReadBlocksResponse, partition: int, partitions: int, *, with_carried: bool
) -> list[dict[str, Any]]:
    """The rows of quintet_spark.schemas.EVENTS that a block stands for."""
    names = _names(block)
    rows, carried_at = [], 0
    for offset, at_ms, fields, detail in _records(block, _EVENT):
        kind, number, sequence, rank, attempt, wait_ms, service_ms, size, state, _ = fields
        if kind == 0:
            continue
        namespace, name = names[number]
        row: dict[str, Any] = {
            "partition": partition,
            "offset": offset,
            "kind": _kind(kind),
            "at": _instant(at_ms),
            "namespace": namespace,
            "queue": name if number < FIRST_TABLE else None,
            "table": name if number >= FIRST_TABLE else None,
            "job_id": sequence * partitions + partition if sequence else None,
            "rank": rank - (1 << 63) if sequence else None,
            "attempt": attempt,
            "wait_ms": wait_ms,
            "service_ms": service_ms,
            "payload_bytes": size,
            "state": None,
            "detail": detail.decode(errors="replace") or None,
            "key": None,
            "expires_at": None,
            "payload": None,
        }
        if number >= FIRST_TABLE:
            if 30 <= kind < 40:
                row["key"], row["detail"] = detail, "table deleted" if state & 2 else None
                row["expires_at"] = _instant(rank) if rank else None
        elif state & 63:
            row["state"] = JobState.Name(state & 63).removeprefix("JOB_STATE_").lower()  # type: ignore[arg-type]
        if with_carried and state & (1 if number >= FIRST_TABLE else 64):
            row["payload"] = block.carried[carried_at : carried_at + size]
            carried_at += size
        rows.append(row)
    assert carried_at == len(block.carried)
    return rows


def snapshot_rows(block: ReadBlocksResponse, partition: int) -> list[dict[str, Any]]:
    """The rows of quintet_spark.schemas.METRICS that a block stands for."""
    names = _names(block)
    rows = []
    for offset, at_ms, fields, detail in _records(block, _SNAPSHOT):
        kind, number, *numbers, _ = fields
        if kind == 0:
            continue
        row: dict[str, Any] = {"partition": partition, "offset": offset, "at": _instant(at_ms)}
        row |= {"kind": {1: "queue", 2: "table", 3: "process"}[kind], "interval_ms": numbers[0]}
        row |= dict.fromkeys(("namespace", "name", "process", "replica", "values", *_NUMBERS[1:]))
        if kind == 3:
            told = json.loads(detail)
            row |= {"process": told["process"], "replica": told["replica"], "values": list(told["values"].items())}
        else:
            row["namespace"], row["name"] = names[number]
            row |= dict(zip(_NUMBERS, numbers[: len(_NUMBERS)], strict=True))
        rows.append(row)
    return rows


def _names(block: ReadBlocksResponse) -> dict[int, tuple[str, str]]:
    return {
        number: (namespace, name)
        for number, namespace, name in zip(block.numbers, block.namespaces, block.names, strict=True)
    }


def _records(block: ReadBlocksResponse, layout: struct.Struct) -> Iterator[tuple[int, int, tuple[int, ...], bytes]]:
    """Offset, time, fields and detail of each."""
    at, offset = 0, block.first_offset
    for size, at_ms in zip(block.entry_bytes, block.entry_at_ms, strict=True):
        end = at + size
        while at < end:
            fields = layout.unpack_from(block.records, at)
            at += layout.size + fields[-1]
            yield offset, at_ms, fields, block.records[at - fields[-1] : at]
            offset += 1


def _kind(number: int) -> str:
    if number not in EventKind.values():
        return f"kind_{number}"
    return EventKind.Name(number).removeprefix("EVENT_KIND_").lower()  # type: ignore[arg-type]


def _instant(at_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at_ms)
