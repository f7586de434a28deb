"""TableService and the row operations of a session by real gRPC clients, against a real core and a real Redis."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import table_service_pb2 as t
from quintet.v1.event_pb2 import Event, EventKind
from quintet.v1.session_service_pb2 import SessionOperation
from quintet.v1.table_pb2 import Row, TableSettings

from tests.support.api import Api, Refused, refused
from tests.support.session_stream import SessionStream, open_session, reason_of

CODE = grpc.StatusCode
KEEP, SET, CLEAR = t.TTL_CHANGE_KEEP, t.TTL_CHANGE_SET, t.TTL_CHANGE_CLEAR


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
    request = t.CreateTableRequest(table=table, settings=TableSettings(**settings))
    response: t.CreateTableResponse = await api.tables.CreateTable(request)
    return response


async def put(api: Api, table: str, key: bytes, value: bytes = b"v", **fields: Any) -> t.PutRowResponse:
    """A row, and its table when there is none."""
    request = t.PutRowRequest(table=table, key=key, value=value, **{"create_if_missing": True, **fields})
    response: t.PutRowResponse = await api.tables.PutRow(request)
    return response


async def get(api: Api, table: str, key: bytes) -> Row:
    """A row that must be there."""
    row: Row = (await api.tables.GetRow(t.GetRowRequest(table=table, key=key))).row
    return row


async def delete(api: Api, table: str, key: bytes, **fields: Any) -> Row:
    """A row that must be there, and goes."""
    row: Row = (await api.tables.DeleteRow(t.DeleteRowRequest(table=table, key=key, **fields))).row
    return row


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

    async def test_are_changed_and_deleted(self, api: Api, table: str) -> None:
        await create(api, table, rows_max=5)
        await put(api, table, b"k")
        changed = await api.tables.UpdateTable(t.UpdateTableRequest(table=table, settings=TableSettings()))
        assert not changed.table.settings.HasField("rows_max")
        assert changed.table.rows == 1
        assert (await api.tables.DeleteTable(t.DeleteTableRequest(table=table))).rows == 1
        answer = await refused(api.tables.GetTable(t.GetTableRequest(table=table)))
        assert (answer.code, answer.reason) == (CODE.NOT_FOUND, "TABLE_NOT_FOUND")

    async def test_are_listed_by_prefix_page_by_page(self, api: Api, table: str) -> None:
        names = sorted(f"{table}-{number:02d}" for number in range(25))
        await asyncio.gather(*(create(api, name) for name in names))
        seen: list[str] = []
        token = ""
        while True:
            request = t.ListTablesRequest(prefix=f"{table}-", page_size=10, page_token=token)
            page = await api.tables.ListTables(request)
            seen += [told.name for told in page.tables]
            token = page.next_page_token
            if not token:
                break
        assert seen == names

    async def test_of_namespaces_are_apart(self, api: Api, table: str) -> None:
        await put(api, table, b"k", b"default")
        await put(api, table, b"k", b"other", namespace="other")
        assert (await get(api, table, b"k")).value == b"default"
        listed = await api.tables.ListTables(t.ListTablesRequest(namespace="other", prefix=table))
        assert [(told.namespace, told.name) for told in listed.tables] == [("other", table)]


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

    async def test_have_a_time_to_live(self, api: Api, table: str) -> None:
        stored = await put(api, table, b"k", ttl_change=SET, ttl_ms=3_600_000)
        assert (await get(api, table, b"k")).expires_at_ms == stored.expires_at_ms > 0
        assert (await put(api, table, b"k", ttl_change=KEEP)).expires_at_ms == stored.expires_at_ms
        assert (await put(api, table, b"k", ttl_change=CLEAR)).expires_at_ms == 0
        assert (await get(api, table, b"k")).expires_at_ms == 0

    async def test_are_written_together(self, api: Api, table: str) -> None:
        stored = await put(api, table, b"a")
        writes = [
            t.RowWrite(put=t.RowPut(key=b"b", value=b"2", expected_version=0)),
            t.RowWrite(delete=t.RowDelete(key=b"a", expected_version=stored.version)),
            t.RowWrite(delete=t.RowDelete(key=b"missing")),
        ]
        response = await api.tables.WriteRows(t.WriteRowsRequest(table=table, writes=writes))
        assert list(response.versions) == [stored.version + 1, stored.version + 2, 0]
        assert [row.key for row in await scan(api, table)] == [b"b"]

    async def test_are_scanned_by_prefix_page_by_page(self, api: Api, table: str) -> None:
        keys = [b"%s%d" % (kind, number) for kind in (b"a\xff", b"b") for number in range(10)]
        await asyncio.gather(*(put(api, table, key, key) for key in keys))
        assert [row.key for row in await scan(api, table, page_size=3)] == sorted(keys)
        found = await scan(api, table, key_prefix=b"a\xff", page_size=4, keys_only=True)
        assert [(row.key, row.value) for row in found] == [(b"a\xff%d" % number, b"") for number in range(10)]

    async def test_tell_their_events(self, api: Api, table: str) -> None:
        await create(api, table, events_carry_values=True)
        stored = await put(api, table, b"k", b"value", ttl_change=SET, ttl_ms=3_600_000)
        await delete(api, table, b"k")
        await put(api, table, b"k")
        await api.tables.DeleteTable(t.DeleteTableRequest(table=table))
        events = await events_of(api, table)
        assert [event.kind for event in events[:5]] == [
            EventKind.EVENT_KIND_TABLE_CREATED,
            EventKind.EVENT_KIND_ROW_PUT,
            EventKind.EVENT_KIND_ROW_DELETED,
            EventKind.EVENT_KIND_ROW_PUT,
            EventKind.EVENT_KIND_TABLE_DELETED,
        ]
        assert (events[1].offset, events[1].key, events[1].value, events[1].expires_at_ms) == (
            stored.version,
            b"k",
            b"value",
            stored.expires_at_ms,
        )
        assert (events[2].HasField("value"), events[2].payload_bytes, events[2].detail) == (False, 5, "")
        # The row of the deleted table goes behind it, in its own time.
        while len(events) < 6:
            await asyncio.sleep(0.02)
            events = await events_of(api, table)
        assert (events[5].kind, events[5].detail) == (EventKind.EVENT_KIND_ROW_DELETED, "table deleted")


class TestRefusals:
    async def expect(self, call: Awaitable[Any], code: grpc.StatusCode, reason: str) -> Refused:
        """The refusal, which must be this."""
        answer = await refused(call)
        assert (answer.code, answer.reason) == (code, reason)
        return answer

    async def test_tell_what_is_not_there(self, api: Api, table: str) -> None:
        await self.expect(get(api, table, b"k"), CODE.NOT_FOUND, "TABLE_NOT_FOUND")
        await self.expect(put(api, table, b"k", create_if_missing=False), CODE.NOT_FOUND, "TABLE_NOT_FOUND")
        await self.expect(scan(api, table), CODE.NOT_FOUND, "TABLE_NOT_FOUND")
        await create(api, table)
        await self.expect(get(api, table, b"k"), CODE.NOT_FOUND, "ROW_NOT_FOUND")
        await self.expect(delete(api, table, b"k"), CODE.NOT_FOUND, "ROW_NOT_FOUND")
        await self.expect(create(api, table), CODE.ALREADY_EXISTS, "TABLE_EXISTS")

    async def test_tell_the_version_that_is_there(self, api: Api, table: str) -> None:
        stored = await put(api, table, b"k")
        mismatch = (CODE.ABORTED, "VERSION_MISMATCH")
        answer = await self.expect(put(api, table, b"k", expected_version=0), *mismatch)
        assert answer.metadata == {"version": str(stored.version)}
        await self.expect(delete(api, table, b"k", expected_version=stored.version + 1), *mismatch)
        writes = [t.RowWrite(put=t.RowPut(key=b"new")), t.RowWrite(put=t.RowPut(key=b"k", expected_version=0))]
        call = api.tables.WriteRows(t.WriteRowsRequest(table=table, writes=writes))
        answer = await self.expect(call, *mismatch)
        assert answer.metadata == {"version": str(stored.version), "index": "1"}

    async def test_keep_a_table_to_its_limits(self, api: Api, table: str) -> None:
        await create(api, table, rows_max=1, value_bytes_max=2)
        answer = await self.expect(put(api, table, b"k", b"123"), CODE.INVALID_ARGUMENT, "PAYLOAD_TOO_LARGE")
        assert answer.metadata == {"max": "2"}
        await put(api, table, b"k", b"12")
        answer = await self.expect(put(api, table, b"l", b"12"), CODE.RESOURCE_EXHAUSTED, "TABLE_FULL")
        assert answer.metadata == {"max": "1"}

    @pytest.mark.parametrize(
        ("request_", "reason", "told"),
        [
            (t.PutRowRequest(key=bytes(4097)), "LIMIT_EXCEEDED", {"limit": "key", "max": "4096", "value": "4097"}),
            (t.PutRowRequest(value=bytes(4 * 1024 * 1024 + 1)), "PAYLOAD_TOO_LARGE", {"max": "4194304"}),
            (t.PutRowRequest(ttl_change=SET), "INVALID_ARGUMENT", {"field": "ttl_ms"}),
            (t.PutRowRequest(ttl_change=SET, ttl_ms=-1), "INVALID_ARGUMENT", {"field": "ttl_ms"}),
            (t.PutRowRequest(ttl_change=SET, ttl_ms=36_525 * 86_400_000 + 1), "INVALID_ARGUMENT", {"field": "ttl_ms"}),
            (t.PutRowRequest(ttl_ms=1), "INVALID_ARGUMENT", {"field": "ttl_ms"}),
            (t.PutRowRequest(ttl_change=7), "INVALID_ARGUMENT", {"field": "ttl_change"}),  # type: ignore[arg-type]
            (t.PutRowRequest(expected_version=-1), "INVALID_ARGUMENT", {"field": "expected_version"}),
            (t.PutRowRequest(table="x" * 4097), "LIMIT_EXCEEDED", {"limit": "table", "max": "4096", "value": "4097"}),
            (
                t.PutRowRequest(namespace="x" * 256),
                "LIMIT_EXCEEDED",
                {"limit": "namespace", "max": "255", "value": "256"},
            ),
            (t.GetRowRequest(key=bytes(4097)), "LIMIT_EXCEEDED", {"limit": "key", "max": "4096", "value": "4097"}),
            (t.DeleteRowRequest(key=bytes(4097)), "LIMIT_EXCEEDED", {"limit": "key", "max": "4096", "value": "4097"}),
            (t.DeleteRowRequest(expected_version=-1), "INVALID_ARGUMENT", {"field": "expected_version"}),
            (t.ScanRowsRequest(page_size=1001), "INVALID_ARGUMENT", {"field": "page_size"}),
            (t.ScanRowsRequest(page_token="!"), "INVALID_ARGUMENT", {"field": "page_token"}),
            (t.ScanRowsRequest(page_token="AAFi", key_prefix=b"a"), "INVALID_ARGUMENT", {"field": "page_token"}),
            (
                t.ScanRowsRequest(key_prefix=bytes(4097)),
                "LIMIT_EXCEEDED",
                {"limit": "key_prefix", "max": "4096", "value": "4097"},
            ),
            (t.WriteRowsRequest(), "INVALID_ARGUMENT", {"field": "writes"}),
            (t.WriteRowsRequest(writes=[t.RowWrite()]), "INVALID_ARGUMENT", {"field": "writes"}),
            (
                t.WriteRowsRequest(writes=[t.RowWrite(put=t.RowPut()), t.RowWrite(delete=t.RowDelete())]),
                "INVALID_ARGUMENT",
                {"field": "writes"},
            ),
            (
                t.WriteRowsRequest(writes=[t.RowWrite(put=t.RowPut(key=b"%d" % n)) for n in range(101)]),
                "LIMIT_EXCEEDED",
                {"limit": "writes", "max": "100", "value": "101"},
            ),
            (
                t.WriteRowsRequest(
                    writes=[t.RowWrite(put=t.RowPut(key=b"%d" % n, value=bytes(3_000_000))) for n in range(3)]
                ),
                "LIMIT_EXCEEDED",
                {"limit": "value bytes of a batch", "max": "8388608", "value": "9000000"},
            ),
            (t.CreateTableRequest(settings=TableSettings(rows_max=-1)), "INVALID_ARGUMENT", {"field": "rows_max"}),
            (
                t.UpdateTableRequest(settings=TableSettings(value_bytes_max=2**53 + 1)),
                "INVALID_ARGUMENT",
                {"field": "value_bytes_max"},
            ),
            (t.ListTablesRequest(page_size=1001), "INVALID_ARGUMENT", {"field": "page_size"}),
            (t.ListTablesRequest(page_token="!"), "INVALID_ARGUMENT", {"field": "page_token"}),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
    )
    async def test_name_the_rule_that_is_broken(
        self, api: Api, session: SessionStream, request_: Message, reason: str, told: dict[str, str]
    ) -> None:
        verb = type(request_).__name__.removesuffix("Request")
        answer = await refused(getattr(api.tables, verb)(request_))
        code = CODE.INVALID_ARGUMENT
        assert (answer.code, answer.reason, answer.metadata) == (code, reason, told)
        kind = "".join("_" + letter.lower() if letter.isupper() else letter for letter in verb)[1:]
        if kind in SessionOperation.DESCRIPTOR.fields_by_name:
            result = await session.do(**{kind: request_})
            assert reason_of(result) == reason
            assert dict(result.failure.metadata) == told


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

    async def test_have_the_other_verbs_too(self, session: SessionStream, table: str) -> None:
        made = await session.do(create_table=t.CreateTableRequest(table=table))
        assert made.create_table.table.name == table
        listed = await session.do(list_tables=t.ListTablesRequest(prefix=table))
        assert list(listed.list_tables.tables) == [made.create_table.table]
        writes = [t.RowWrite(put=t.RowPut(key=b"%d" % number)) for number in range(3)]
        written = await session.do(write_rows=t.WriteRowsRequest(table=table, writes=writes))
        page = (await session.do(scan_rows=t.ScanRowsRequest(table=table, page_size=2))).scan_rows
        assert [row.version for row in page.rows] == list(written.write_rows.versions)[:2]
        assert page.next_page_token
        deleted = await session.do(delete_table=t.DeleteTableRequest(table=table))
        assert deleted.delete_table.rows == 3
        assert reason_of(await session.do(delete_table=t.DeleteTableRequest(table=table))) == "TABLE_NOT_FOUND"

    async def test_keep_the_order_of_an_owner(self, session: SessionStream, table: str) -> None:
        operations = []
        for number in range(100):
            put = t.PutRowRequest(table=table, key=b"k", value=b"%d" % number, create_if_missing=True)
            operations += [session.number(put_row=put), session.number(get_row=t.GetRowRequest(table=table, key=b"k"))]
        await session.write(*operations)
        results = [await session.result(operation.sequence) for operation in operations]
        assert [result.get_row.row.value for result in results[1::2]] == [b"%d" % number for number in range(100)]
        versions = [result.put_row.version for result in results[::2]]
        assert versions == sorted(set(versions))
        assert [result.get_row.row.version for result in results[1::2]] == versions


async def test_a_row_whose_time_is_over_is_told_within_a_second(api: Api, table: str) -> None:
    rows = [await put(api, table, b"%d" % number, ttl_change=SET, ttl_ms=50 + 20 * number) for number in range(15)]
    expired: list[Event] = []
    while len(expired) < len(rows):
        await asyncio.sleep(0.05)
        events = await events_of(api, table)
        expired = [event for event in events if event.kind == EventKind.EVENT_KIND_ROW_EXPIRED]
    late_ms = [event.at_ms - row.expires_at_ms for event, row in zip(expired, rows, strict=True)]
    assert min(late_ms) >= 0
    assert statistics.median(late_ms) <= 1000
