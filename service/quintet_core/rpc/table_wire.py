"""Results of row operations as bytes, as `wire` does it for jobs and for its reasons."""

from __future__ import annotations

from quintet_core.domain.table import Row, RowStored
from quintet_core.rpc.wire import TAGS, joined_result, length, varint

_PUT, _GET, _DELETE = TAGS["put_row"], TAGS["get_row"], TAGS["delete_row"]
# PutRowResponse: version = 1, created = 2, expires_at_ms = 3.
_VERSION, _CREATED, _EXPIRES_AT = b"\x08", b"\x10\x01", b"\x18"
# Row: key = 1, value = 2, version = 3, expires_at_ms = 4; it is field 1 of its responses.
_ROW, _KEY, _VALUE, _ROW_VERSION, _ROW_EXPIRES_AT = b"\x0a", b"\x0a", b"\x12", b"\x18", b"\x20"


def row_stored(sequence: int, outcome: RowStored) -> bytes:
    """A PutRowResponse."""
    body = _VERSION + varint(outcome.version)
    if outcome.created:
        body += _CREATED
    if outcome.expires_at_ms:
        body += _EXPIRES_AT + varint(outcome.expires_at_ms)
    return joined_result(sequence, _PUT, len(body), (body,))


def row_got(sequence: int, outcome: Row) -> bytes:
    """A GetRowResponse."""
    return _row_result(sequence, _GET, outcome)


def row_deleted(sequence: int, outcome: Row) -> bytes:
    """A DeleteRowResponse."""
    return _row_result(sequence, _DELETE, outcome)


def _row_result(sequence: int, tag: bytes, row: Row) -> bytes:
    key, value = row.key, row.value
    key_bytes, value_bytes = len(key), len(value)
    key_length, value_length = length(key_bytes), length(value_bytes)
    numbers = _ROW_VERSION + varint(row.version)
    if row.expires_at_ms:
        numbers += _ROW_EXPIRES_AT + varint(row.expires_at_ms)
    size = 2 + len(key_length) + key_bytes + len(value_length) + value_bytes + len(numbers)
    row_length = length(size)
    parts = (_ROW, row_length, _KEY, key_length, key, _VALUE, value_length, value, numbers)
    return joined_result(sequence, tag, 1 + len(row_length) + size, parts)
