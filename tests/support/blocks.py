"""Blocks of the event log turned into events, as the API's text says, one record after another."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from quintet.v1.event_pb2 import Event
from quintet.v1.event_service_pb2 import ReadBlocksRequest, ReadBlocksResponse

from tests.support.api import Api

_EVENT = struct.Struct(">BIQQIQQIBH")
_FIRST_TABLE = 1 << 31
_ROW_KINDS = (30, 31, 32)


def events_of(block: ReadBlocksResponse, partition: int, partitions: int) -> Iterator[Event]:
    """The events in a block; those that are blanked are left out, and count."""
    names = {
        number: (namespace, name)
        for number, namespace, name in zip(block.numbers, block.namespaces, block.names, strict=True)
    }
    offset, at, carried = block.first_offset, 0, 0
    for size, at_ms in zip(block.entry_bytes, block.entry_at_ms, strict=True):
        end = at + size
        while at < end:
            fields = _EVENT.unpack_from(block.records, at)
            at += _EVENT.size + fields[9]
            detail = block.records[at - fields[9] : at]
            if fields[0]:
                event = _event(fields, detail, names[fields[1]], partitions, partition)
                event.partition, event.offset, event.at_ms = partition, offset, at_ms
                if _carries(fields) and block.carried:
                    setattr(event, "value" if fields[1] >= _FIRST_TABLE else "payload",
                            block.carried[carried : carried + fields[7]])  # fmt: skip
                    carried += fields[7]
                yield event
            else:
                assert not any(fields)
            offset += 1
        assert at == end
    assert at == len(block.records)
    assert carried == len(block.carried)


def _carries(fields: tuple[int, ...]) -> bool:
    return fields[8] == 1 if fields[1] >= _FIRST_TABLE else bool(fields[8] & 64)


def _event(fields: tuple[int, ...], detail: bytes, named: tuple[str, str], partitions: int, partition: int) -> Event:
    kind, number, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state, _ = fields
    namespace, name = named
    event = Event(kind=kind, namespace=namespace, payload_bytes=payload_bytes)  # type: ignore[arg-type]
    if number >= _FIRST_TABLE:
        event.table = name
        if kind in _ROW_KINDS:
            event.key, event.expires_at_ms = detail, rank
            event.detail = "table deleted" if state == 2 else ""
        else:
            event.detail = detail.decode()
        return event
    event.queue, event.detail = name, detail.decode()
    if sequence:
        event.job_id, event.rank = sequence * partitions + partition, rank - (1 << 63)
    event.attempt, event.wait_ms, event.service_ms, event.state = attempt, wait_ms, service_ms, state & ~64
    return event


async def read_blocks(api: Api, **fields: object) -> list[ReadBlocksResponse]:
    """All blocks of a range. Checks that they follow on one another."""
    request = ReadBlocksRequest(**fields)  # type: ignore[arg-type]
    return [block async for block in api.events.ReadBlocks(request)]
