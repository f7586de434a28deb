"""The client's verbs of tables against a scripted core: what is sent, what is repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from quintet.v1.reason_pb2 import REASON_ROW_NOT_FOUND, REASON_UNAVAILABLE
from quintet.v1.session_service_pb2 import Failure, SessionOperation, SessionResult
from quintet.v1.table_pb2 import Row as RowMessage
from quintet.v1.table_service_pb2 import (
    TTL_CHANGE_CLEAR,
    TTL_CHANGE_KEEP,
    TTL_CHANGE_SET,
    GetRowResponse,
    PutRowResponse,
    ScanRowsResponse,
    WriteRowsResponse,
)
from quintet_client import (
    Client,
    Row,
    RowDelete,
    RowNotFoundError,
    RowPut,
    RowWrite,
    TableSettings,
    TimeToLive,
    UnavailableError,
    WrittenRow,
)

from tests.unit.client.scripted_core import ScriptedCore


@pytest.fixture
async def client(core: ScriptedCore) -> AsyncIterator[Client]:
    async with Client(core.target) as client:
        yield client


def failed(operation: SessionOperation, reason: int) -> SessionResult:
    return SessionResult(sequence=operation.sequence, failure=Failure(reason=reason))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ttl_ms", "change", "milliseconds"),
    [
        (TimeToLive.KEEP, TTL_CHANGE_KEEP, 0),
        (TimeToLive.CLEAR, TTL_CHANGE_CLEAR, 0),
        (5000, TTL_CHANGE_SET, 5000),
        # The core's to refuse; it must not become something else on its way.
        (0, TTL_CHANGE_SET, 0),
    ],
    ids=str,
)
async def test_a_time_to_live_is_kept_cleared_or_set(
    core: ScriptedCore, client: Client, ttl_ms: int | TimeToLive, change: int, milliseconds: int
) -> None:
    core.answers["put_row"] = lambda operation: SessionResult(
        sequence=operation.sequence, put_row=PutRowResponse(version=9, created=True, expires_at_ms=7)
    )
    assert await client.put_row("t", b"\x00", b"\xff", ttl_ms=ttl_ms) == WrittenRow(9, True, 7)
    [put] = [operation.put_row for operation in core.received("put_row")]
    assert (put.ttl_change, put.ttl_ms, put.key, put.value) == (change, milliseconds, b"\x00", b"\xff")
    assert not put.HasField("expected_version")


async def test_an_expected_version_of_zero_is_said(core: ScriptedCore, client: Client) -> None:
    core.answers["write_rows"] = lambda operation: SessionResult(
        sequence=operation.sequence, write_rows=WriteRowsResponse(versions=[3, 0])
    )
    writes: list[RowWrite] = [RowPut(b"a", b"1", ttl_ms=10, expected_version=0), RowDelete(b"b", expected_version=0)]
    assert await client.write_rows("t", writes, create_if_missing=False) == [3, 0]
    [request] = [operation.write_rows for operation in core.received("write_rows")]
    put, delete = request.writes[0].put, request.writes[1].delete
    assert (put.HasField("expected_version"), put.ttl_change, put.ttl_ms) == (True, TTL_CHANGE_SET, 10)
    assert delete.HasField("expected_version")
    assert not request.create_if_missing


async def test_pages_are_followed_to_their_end(core: ScriptedCore, client: Client) -> None:
    pages = {"": ("next", b"a"), "next": ("", b"b")}

    def page(operation: SessionOperation) -> SessionResult:
        token, key = pages[operation.scan_rows.page_token]
        rows = ScanRowsResponse(rows=[RowMessage(key=key, version=1)], next_page_token=token)
        return SessionResult(sequence=operation.sequence, scan_rows=rows)

    core.answers["scan_rows"] = page
    assert [row async for row in client.scan_rows("t")] == [Row(b"a", b"", 1, 0), Row(b"b", b"", 1, 0)]


async def test_a_row_that_is_not_there_is_an_error(core: ScriptedCore, client: Client) -> None:
    core.answers["get_row"] = lambda operation: failed(operation, REASON_ROW_NOT_FOUND)
    with pytest.raises(RowNotFoundError):
        await client.get_row("t", b"k")


async def test_a_read_is_repeated_and_a_write_is_not(core: ScriptedCore, client: Client) -> None:
    refusals = iter([REASON_UNAVAILABLE, REASON_UNAVAILABLE])

    def answer(operation: SessionOperation) -> SessionResult:
        if (reason := next(refusals, None)) is not None:
            return failed(operation, reason)
        return SessionResult(sequence=operation.sequence, get_row=GetRowResponse(row=RowMessage(key=b"k")))

    core.answers["get_row"] = answer
    assert (await client.get_row("t", b"k")).key == b"k"
    assert len(core.received("get_row")) == 3
    core.answers["put_row"] = lambda operation: failed(operation, REASON_UNAVAILABLE)
    with pytest.raises(UnavailableError):
        await client.put_row("t", b"k", b"v")
    assert len(core.received("put_row")) == 1


def test_settings_survive_the_wire() -> None:
    for settings in (TableSettings(), TableSettings(rows_max=0, value_bytes_max=5, events_carry_values=True)):
        assert TableSettings.of_wire(settings.to_wire()) == settings
