"""TableService and the row operations of a session by real gRPC clients, against a real core and a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import table_service_pb2 as t
from quintet.v1.event_pb2 import Event, EventKind
from quintet.v1.table_pb2 import Row, TableSettings

from tests.support.api import Api, Refused, open_api, refused
from tests.support.session_stream import SessionStream, open_session, reason_of
from tests.support.stack import CorePart

CODE = grpc.StatusCode
KEEP, SET, CLEAR = t.TTL_CHANGE_KEEP, t.TTL_CHANGE_SET, t.TTL_CHANGE_CLEAR


@pytest.fixture
async def api(core: CorePart) -> AsyncIterator[Api]:
    async with open_api(core.target) as api:
        yield api


@pytest.fixture
async def session(api: Api) -> AsyncIterator[SessionStream]:
    async with open_session(api) as session:
        yield session


@pytest.fixture
def table(queue: str) -> str:
    """A name of its own; queues and tables do not share names, but tests do not share either."""
    return queue


async def create(api: Api, table: str, **settings: Any) -> t.CreateTableResponse:
    """A table with settings."""
    return await api.tables.CreateTable(t.CreateTableRequest(table=table, settings=TableSettings(**settings)))


async def put(api: Api, table: str, key: bytes, value: bytes = b"v", **fields: Any) -> t.PutRowResponse:
    """A row, and its table when there is none."""
    request = t.PutRowRequest(table=table, key=key, value=value, **{"create_if_missing": True, **fields})
    return await api.tables.PutRow(request)


async def get(api: Api, table: str, key: bytes) -> Row:
    """A row that must be there."""
    response = await api.tables.GetRow(t.GetRowRequest(table=table, key=key))
    return response.row


async def delete(api: Api, table: str, key: bytes, **fields: Any) -> Row:
    """A row that must be there, and goes."""
    response = await api.tables.DeleteRow(t.DeleteRowRequest(table=table, key=key, **fields))
    return response.row


async def scan(api: Api, table: str, **fields: Any) -> list[Row]:
    """Every row, page by page."""
    rows: list[Row] = []
    token = ""
    while True:
        page = await api.tables.ScanRows(t.ScanRowsRequest(table=table, page_token=token, **fields))
        rows += page.rows
        token = page.next_page_token
        if not token:
            return rows


async def events_of(api: Api, table: str) -> list[Event]:
    """What the log tells of a table."""
    partitions = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions
    found: list[Event] = []
    for partition in partitions:
        after = partition.first_offset - 1
        while after < partition.last_offset:
            request = e.ReadEventsRequest(partition=partition.partition, after_offset=after, events_max=10_000)
            page = (await api.events.ReadEvents(request)).events
            found += [event for event in page if event.table == table]
            after = page[-1].offset
    return found


class TestTables:
    async def test_are_told_as_they_were_made(self, api: Api, table: str) -> None:
        made = (await create(api, table, rows_max=5, value_bytes_max=0, events_carry_values=True)).table
        assert (made.name, made.namespace, made.rows) == (table, "default", 0)
        assert made.settings == TableSettings(rows_max=5, value_bytes_max=0, events_carry_values=True)
        assert (await api.tables.GetTable(t.GetTableRequest(table=table))).table == made
        assert (await refused(create(api, table))).reason == "TABLE_EXISTS"


class TestRows:
    async def test_are_put_and_got(self, api: Api, table: str) -> None:
        stored = await put(api, table, b"k", b"one")
        assert stored.created
        assert await get(api, table, b"k") == Row(key=b"k", value=b"one", version=stored.version)
        again = await put(api, table, b"k", b"two")
        assert not again.created
        assert again.version > stored.version
        assert await delete(api, table, b"k") == Row(key=b"k", value=b"two", version=again.version)
        assert (await refused(get(api, table, b"k"))).reason == "ROW_NOT_FOUND"
        assert await scan(api, table) == []


class TestSessions:
    async def test_put_get_and_delete_rows(self, session: SessionStream, table: str) -> None:
        request = t.PutRowRequest(table=table, key=b"k", value=b"v", create_if_missing=True)
        stored = (await session.do(put_row=request)).put_row
        got = (await session.do(get_row=t.GetRowRequest(table=table, key=b"k"))).get_row
        assert got.row == Row(key=b"k", value=b"v", version=stored.version)
        gone = (await session.do(delete_row=t.DeleteRowRequest(table=table, key=b"k"))).delete_row
        assert gone.row == got.row
        again = await session.do(get_row=t.GetRowRequest(table=table, key=b"k"))
        assert reason_of(again) == "ROW_NOT_FOUND"
