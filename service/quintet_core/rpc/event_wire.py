"""Events as bytes of a response.

Thousands of changes of rows a second are told to watches. To build a message for each and serialize it costs twice what
it costs to write down the encoding; so these are put together from the field numbers of event.proto, and what repeats
itself is kept. Proved against the generated class by tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from quintet_core.domain.event import Event, EventKind
from quintet_core.rpc import convert
from quintet_core.rpc.wire import length, varint

# Both WatchRowsResponse.changes and SubscribeResponse.events are field 1; WatchRowsResponse.offsets is 2, in it
# partition = 1 and after_offset = 2, left out when they are 0.
_EVENT, _OFFSETS, _PARTITION, _AFTER = b"\x0a", b"\x12", b"\x08", b"\x10"
# Of an Event.
_OFFSET, _KIND, _AT, _NAMESPACE, _SIZE = b"\x10", b"\x18", b"\x20", b"\x2a", b"\x60"
_DETAIL, _TABLE, _KEY, _EXPIRES_AT, _VALUE = b"\x72", b"\x7a", b"\x82\x01", b"\x88\x01", b"\x92\x01"
_KINDS: dict[int, bytes] = {kind: _KIND + varint(kind) for kind in EventKind}


def encode_event(event: Event) -> bytes:
    """An event as a field of a response; responses are concatenations of these."""
    kind = _KINDS.get(event.kind)
    encoded = convert.event(event).SerializeToString() if kind is None else _row(event, kind)
    return _EVENT + length(len(encoded)) + encoded


def _row(event: Event, kind: bytes) -> bytes:
    parts = [
        _place(event.partition, event.namespace, event.table),
        _OFFSET,
        varint(event.offset),
        kind,
        _moment(event.at_ms),
    ]
    if event.payload_bytes:
        parts += _SIZE, length(event.payload_bytes)
    if event.detail:
        detail = event.detail.encode()
        parts += _DETAIL, length(len(detail)), detail
    if event.key:
        parts += _KEY, length(len(event.key)), event.key
    if event.expires_at_ms:
        parts += _EXPIRES_AT, varint(event.expires_at_ms)
    if event.value is not None:
        parts += _VALUE, length(len(event.value)), event.value
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _place(partition: int, namespace: str, table: str) -> bytes:
    fields = _PARTITION + varint(partition) if partition else b""
    for tag, text in ((_NAMESPACE, namespace.encode()), (_TABLE, table.encode())):
        if text:
            fields += tag + length(len(text)) + text
    return fields


@lru_cache(maxsize=64)
def _moment(at_ms: int) -> bytes:
    """The same for all events of a call."""
    return _AT + varint(at_ms)


def encode_offsets(offsets: Iterable[tuple[int, int]]) -> bytes:
    """Partitions and offsets as WatchRowsResponse holds them."""
    fields = []
    for partition, after in offsets:
        encoded = (_PARTITION + varint(partition) if partition else b"") + (_AFTER + varint(after) if after else b"")
        fields.append(_OFFSETS + length(len(encoded)) + encoded)
    return b"".join(fields)
