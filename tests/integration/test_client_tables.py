"""Every verb of tables in the client, against a real core and a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from quintet_client import (
    Client,
    PayloadTooLargeError,
    Row,
    RowDelete,
    RowNotFoundError,
    RowPut,
    TableExistsError,
    TableFullError,
    TableNotFoundError,
    TableSettings,
    TimeToLive,
    VersionMismatchError,
)

from tests.support.stack import CorePart


@pytest.fixture
async def client(core: CorePart) -> AsyncIterator[Client]:
    async with Client(core.target, name="tests") as client:
        yield client


@pytest.fixture
def table(queue: str) -> str:
    """A table name that no other test has."""
    return queue.replace("queue", "table")


async def test_a_table_is_made_changed_listed_and_deleted(client: Client, table: str) -> None:
    settings = TableSettings(rows_max=1, value_bytes_max=3, events_carry_values=True)
    made = await client.create_table(table, settings)
    assert (made.name, made.settings, made.rows) == (table, settings, 0)
    with pytest.raises(TableExistsError):
        await client.create_table(table)
    await client.put_row(table, b"k", b"abc")
    with pytest.raises(TableFullError):
        await client.put_row(table, b"l", b"")
    with pytest.raises(PayloadTooLargeError):
        await client.put_row(table, b"k", b"abcd")
    assert (await client.update_table(table, TableSettings())).settings == TableSettings()
    assert (await client.get_table(table)).rows == 1
    assert [each.name async for each in client.list_tables(prefix=table)] == [table]
    assert await client.delete_table(table) == 1
    with pytest.raises(TableNotFoundError):
        await client.get_table(table)


async def test_a_row_is_put_read_and_deleted(client: Client, table: str) -> None:
    first = await client.put_row(table, b"\x00", b"\xff")
    second = await client.put_row(table, b"\x00", b"", ttl_ms=3_600_000)
    assert (first.created, second.created) == (True, False)
    assert second.version > first.version
    row = await client.get_row(table, b"\x00")
    assert row == Row(b"\x00", b"", second.version, second.expires_at_ms)
    assert await client.delete_row(table, b"\x00") == row
    for verb in (client.get_row, client.delete_row):
        with pytest.raises(RowNotFoundError):
            await verb(table, b"\x00")


async def test_a_time_to_live_is_set_kept_and_cleared(client: Client, table: str) -> None:
    deadline = (await client.put_row(table, b"k", b"1", ttl_ms=3_600_000)).expires_at_ms
    assert deadline > 0
    assert (await client.put_row(table, b"k", b"2")).expires_at_ms == deadline
    assert (await client.put_row(table, b"k", b"3", ttl_ms=TimeToLive.CLEAR)).expires_at_ms == 0


async def test_a_row_of_another_version_is_left_alone(client: Client, table: str) -> None:
    version = (await client.put_row(table, b"k", b"1", expected_version=0)).version
    with pytest.raises(VersionMismatchError):
        await client.put_row(table, b"k", b"2", expected_version=0)
    with pytest.raises(VersionMismatchError):
        await client.delete_row(table, b"k", expected_version=version + 1)
    assert (await client.delete_row(table, b"k", expected_version=version)).value == b"1"


async def test_rows_are_scanned_over_pages_in_the_order_of_their_keys(client: Client, table: str) -> None:
    keys = [b"a%02d" % number for number in range(25)]
    await client.write_rows(table, [RowPut(key, key) for key in reversed(keys)] + [RowPut(b"b", b"")])
    rows = [row async for row in client.scan_rows(table, key_prefix=b"a", page_size=10)]
    assert [(row.key, row.value) for row in rows] == [(key, key) for key in keys]
    without = [row async for row in client.scan_rows(table, key_prefix=b"a2", keys_only=True)]
    assert [(row.key, row.value) for row in without] == [(key, b"") for key in keys[20:]]


async def test_writes_take_effect_together_or_not_at_all(client: Client, table: str) -> None:
    [version] = await client.write_rows(table, [RowPut(b"a", b"1")])
    with pytest.raises(VersionMismatchError):
        await client.write_rows(table, [RowPut(b"b", b"2"), RowDelete(b"a", expected_version=0)])
    with pytest.raises(RowNotFoundError):
        await client.get_row(table, b"b")
    versions = await client.write_rows(table, [RowDelete(b"a", version), RowDelete(b"c"), RowPut(b"b", b"2")])
    assert [bool(each) for each in versions] == [True, False, True]
    assert [row.key async for row in client.scan_rows(table)] == [b"b"]


async def test_an_unknown_table_is_an_error_where_it_may_not_be_made(client: Client, table: str) -> None:
    with pytest.raises(TableNotFoundError):
        await client.put_row(table, b"k", b"v", create_if_missing=False)
    with pytest.raises(TableNotFoundError):
        await client.write_rows(table, [RowPut(b"k", b"v")], create_if_missing=False)
    with pytest.raises(TableNotFoundError):
        await client.get_row(table, b"k")


async def test_namespaces_are_apart(core: CorePart, client: Client, table: str) -> None:
    await client.put_row(table, b"k", b"v")
    async with Client(core.target, namespace="elsewhere") as other:
        with pytest.raises(TableNotFoundError):
            await other.get_row(table, b"k")
