"""Results of row operations that are encoded by hand mean what the generated classes say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quintet.v1 import session_service_pb2 as s
from quintet.v1 import table_service_pb2 as t
from quintet.v1.table_pb2 import Row as RowMessage
from quintet_core.domain.table import Row, RowStored
from quintet_core.rpc import table_wire

sequences = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1])
versions = st.integers(1, 2**53) | st.sampled_from([1, 127, 128, 2**53])
instants = st.integers(0, 2**53) | st.just(0)
values = st.binary(max_size=300) | st.sampled_from([127, 128, 4095, 4096, 16_383, 16_384, 2_097_152]).map(bytes)
rows = st.builds(
    Row, st.binary(max_size=200) | st.sampled_from([b"", bytes(4096)]), values, version=versions, expires_at_ms=instants
)


def result(encoded: bytes) -> s.SessionResult:
    """What a client reads."""
    (found,) = s.SessionResponse.FromString(encoded).results
    return found


def message(row: Row) -> RowMessage:
    """The same by the generated class."""
    return RowMessage(key=row.key, value=row.value, version=row.version, expires_at_ms=row.expires_at_ms)


@given(sequences, versions, st.booleans(), instants)
def test_a_put_row_response(sequence: int, version: int, created: bool, expires_at_ms: int) -> None:
    expected = t.PutRowResponse(version=version, created=created, expires_at_ms=expires_at_ms)
    encoded = table_wire.row_stored(sequence, RowStored(version, created, expires_at_ms))
    assert result(encoded) == s.SessionResult(sequence=sequence, put_row=expected)


@given(sequences, rows)
def test_a_get_row_response(sequence: int, row: Row) -> None:
    expected = s.SessionResult(sequence=sequence, get_row=t.GetRowResponse(row=message(row)))
    assert result(table_wire.row_got(sequence, row)) == expected


@given(sequences, rows)
def test_a_delete_row_response(sequence: int, row: Row) -> None:
    expected = s.SessionResult(sequence=sequence, delete_row=t.DeleteRowResponse(row=message(row)))
    assert result(table_wire.row_deleted(sequence, row)) == expected
