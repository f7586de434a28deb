"""`quintet table write`."""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import msgspec
from quintet_client import Client, RowDelete, RowPut, RowWrite, TimeToLive

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, bytes_record
from quintet_cli.commands.table.arguments import from_base64


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One write: a put when it has a value, else a delete."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    delete: bool = False
    ttl_ms: int | None = None
    clear_ttl: bool = False
    expect_version: int | None = None


def _read(source: BinaryIO) -> dict[str, Any]:
    lines = [line for line in source.read().splitlines() if line.strip()]
    if not lines:
        raise click.UsageError("there is no line to write")
    return {"writes": [_write_of(line, number) for number, line in enumerate(lines, start=1)]}


def _write_of(line: bytes, number: int) -> RowWrite:
    try:
        read = msgspec.json.decode(line, type=_Line)
        return _delete_of(read) if read.delete else _put_of(read)
    except (msgspec.MsgspecError, UnicodeDecodeError, click.UsageError) as error:
        raise click.UsageError(f"line {number}: {error}") from None


def _delete_of(read: _Line) -> RowDelete:
    if read.value is not None or read.value_base64 is not None or read.ttl_ms is not None or read.clear_ttl:
        raise click.UsageError("a delete has neither value nor time to live")
    return RowDelete(_bytes("key", read.key, read.key_base64), read.expect_version)


def _put_of(read: _Line) -> RowPut:
    if read.ttl_ms is not None and read.clear_ttl:
        raise click.UsageError("give ttl_ms or clear_ttl, not both")
    lives = TimeToLive.CLEAR if read.clear_ttl else TimeToLive.KEEP
    return RowPut(
        _bytes("key", read.key, read.key_base64),
        _bytes("value", read.value, read.value_base64),
        lives if read.ttl_ms is None else read.ttl_ms,
        read.expect_version,
    )


def _bytes(name: str, text: str | None, in_base64: str | None) -> bytes:
    if text is not None and in_base64 is None:
        return text.encode()
    if in_base64 is not None and text is None:
        return from_base64(in_base64)
    raise click.UsageError(f"give {name} or {name}_base64, one of them")


@click.command()
@click.argument("table")
@click.option("--file", "source", type=click.File("rb"), default="-", help="Instead of standard input.")
@click.option("--create/--no-create", default=True, show_default=True, help="Make the table when it is missing.")
@connected(prepare=_read)
async def write(
    client: Client, output: Output, table: str, source: BinaryIO, writes: list[RowWrite], create: bool
) -> None:
    """Put and delete several rows of TABLE at once: all of them, or none.

    Reads one JSON object a line: {"key":"k","value":"v"}, with "ttl_ms":1000 or "clear_ttl":true, or
    {"key":"k","delete":true}; either with "expect_version":7. "key_base64" and "value_base64" hold any bytes.
    """
    versions = await client.write_rows(table, writes, create_if_missing=create)
    if output.json:
        for row, version in zip(writes, versions, strict=True):
            output.record({"table": table} | bytes_record("key", row.key) | {"version": version})
    else:
        output.say(f"{len(versions)} rows of {table} written", {})
