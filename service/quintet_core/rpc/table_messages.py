"""Messages of tables and rows to plain data of the domain, and back. The rest of the API is in `convert`."""

from __future__ import annotations

from typing import Any

from quintet.v1 import table_pb2, table_service_pb2

from quintet_core.domain.errors import broken
from quintet_core.domain.table import Row, RowDelete, RowPage, RowPut, RowStored, Table, TableSettings, TtlChange
from quintet_core.rpc import page_token

_KEEP = TtlChange.KEEP


# --- what requests name


def ttl_change(value: int) -> TtlChange:
    """Raises CallerError for a change there is not."""
    if not value:
        return _KEEP
    try:
        return TtlChange(value)
    except ValueError:
        raise broken("ttl_change is unknown", field="ttl_change") from None


def row_put(message: table_service_pb2.PutRowRequest | table_service_pb2.RowPut) -> RowPut:
    """A row as a caller puts it. Raises CallerError."""
    expected = message.expected_version if message.HasField("expected_version") else None
    return RowPut(message.key, message.value, ttl_change(message.ttl_change), message.ttl_ms, expected)


def expected_version(message: Any) -> int | None:
    """The version that a delete asks for; None for whichever."""
    return message.expected_version if message.HasField("expected_version") else None


def row_writes(request: table_service_pb2.WriteRowsRequest) -> list[RowPut | RowDelete]:
    """Raises CallerError for a write that is none."""
    return [_row_write(message) for message in request.writes]


def _row_write(message: table_service_pb2.RowWrite) -> RowPut | RowDelete:
    kind = message.WhichOneof("write")
    if kind == "put":
        return row_put(message.put)
    if kind == "delete":
        return RowDelete(message.delete.key, expected_version(message.delete))
    raise broken("a write must be a put or a delete", field="writes")


def settings_of(message: table_pb2.TableSettings) -> TableSettings:
    """Table settings as a caller sends them."""
    return TableSettings(
        message.rows_max if message.HasField("rows_max") else None,
        message.value_bytes_max if message.HasField("value_bytes_max") else None,
        message.events_carry_values,
    )


def rows_cursor(token: str) -> bytes | None:
    """The key behind which a page of rows begins. Raises CallerError for a token this core did not give."""
    return page_token.decode(token, 1)[0] if token else None


# --- what replies hold


def settings(told: TableSettings) -> table_pb2.TableSettings:
    """Table settings as they stand; absent limits stay absent."""
    return table_pb2.TableSettings(
        rows_max=told.rows_max, value_bytes_max=told.value_bytes_max, events_carry_values=told.events_carry_values
    )


def table(told: Table) -> table_pb2.Table:
    """A table as it stands."""
    return table_pb2.Table(
        namespace=told.namespace,
        name=told.name,
        settings=settings(told.settings),
        rows=told.rows,
        created_at_ms=told.created_at_ms,
        partition=told.partition,
    )


def row(told: Row) -> table_pb2.Row:
    """A row as it stands."""
    return table_pb2.Row(key=told.key, value=told.value, version=told.version, expires_at_ms=told.expires_at_ms)


def table_created(outcome: Table) -> table_service_pb2.CreateTableResponse:
    """The table."""
    return table_service_pb2.CreateTableResponse(table=table(outcome))


def table_updated(outcome: Table) -> table_service_pb2.UpdateTableResponse:
    """The table."""
    return table_service_pb2.UpdateTableResponse(table=table(outcome))


def table_deleted(rows: int) -> table_service_pb2.DeleteTableResponse:
    """How many rows were in it."""
    return table_service_pb2.DeleteTableResponse(rows=rows)


def table_got(outcome: Table) -> table_service_pb2.GetTableResponse:
    """The table."""
    return table_service_pb2.GetTableResponse(table=table(outcome))


def tables_listed(outcome: tuple[list[Table], str | None]) -> table_service_pb2.ListTablesResponse:
    """A page of tables, and the last name when there is more."""
    found, last = outcome
    token = "" if last is None else page_token.encode(last.encode())
    return table_service_pb2.ListTablesResponse(tables=[table(told) for told in found], next_page_token=token)


def row_stored(outcome: RowStored) -> table_service_pb2.PutRowResponse:
    """Its version."""
    return table_service_pb2.PutRowResponse(
        version=outcome.version, created=outcome.created, expires_at_ms=outcome.expires_at_ms
    )


def row_got(outcome: Row) -> table_service_pb2.GetRowResponse:
    """The row."""
    return table_service_pb2.GetRowResponse(row=row(outcome))


def row_deleted(outcome: Row) -> table_service_pb2.DeleteRowResponse:
    """The row as it was."""
    return table_service_pb2.DeleteRowResponse(row=row(outcome))


def rows_scanned(outcome: RowPage) -> table_service_pb2.ScanRowsResponse:
    """A page of rows."""
    token = "" if outcome.cursor is None else page_token.encode(outcome.cursor)
    return table_service_pb2.ScanRowsResponse(rows=[row(told) for told in outcome.rows], next_page_token=token)


def rows_written(versions: list[int]) -> table_service_pb2.WriteRowsResponse:
    """The version of each write."""
    return table_service_pb2.WriteRowsResponse(versions=versions)
