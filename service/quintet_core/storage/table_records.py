"""The records of tables and rows, and their verbs' arguments. Formats: storage/lua/56_tables.lua, 57_rows.lua."""

from __future__ import annotations

import struct

from quintet_core.domain.table import Row, RowDelete, RowPut, RowStored, Table, TableSettings
from quintet_core.storage import keys
from quintet_core.storage.packing import bulk, named

_SETTINGS = struct.Struct(">BQQ")
_OPTIONS = struct.Struct(">BQBQ")
_ROW = struct.Struct(">QQ")
ROW_HEAD_BYTES = _ROW.size
# In the place of a TtlChange: the write is a delete.
_DELETE = 9


def pack_settings(settings: TableSettings) -> bytes:
    """Table settings as the table record holds them."""
    flags = (
        (settings.rows_max is not None)
        | (settings.value_bytes_max is not None) << 1
        | settings.events_carry_values << 2
    )
    return _SETTINGS.pack(flags, settings.rows_max or 0, settings.value_bytes_max or 0)


def unpack_settings(raw: bytes) -> TableSettings:
    """The settings at the end of a table record."""
    flags, rows, value_bytes = _SETTINGS.unpack(raw)
    return TableSettings(rows if flags & 1 else None, value_bytes if flags & 2 else None, bool(flags & 4))


def unpack_table(reply: list[bytes | int], partition: int) -> Table:
    """A table as the library tells it."""
    name, created, settings, rows = reply
    assert isinstance(name, bytes)
    assert isinstance(settings, bytes)
    namespace, table = keys.split_name_key(name)
    return Table(namespace, table, unpack_settings(settings), int(rows), int(created), partition)


def unpack_row(key: bytes, raw: bytes) -> Row:
    """A row from its record. Raises struct.error for what is none."""
    version, expires_at_ms = _ROW.unpack_from(raw)
    return Row(key, raw[ROW_HEAD_BYTES:], version, expires_at_ms)


def unpack_stored(answer: int | list[bytes | int]) -> RowStored:
    """What put_row answers: the version, negative when there was no such row; in front of a deadline if any."""
    expires_at_ms = 0
    if isinstance(answer, list):
        version, expires_at_ms = int(answer[0]), int(answer[1])
    else:
        version = answer
    return RowStored(-version, True, expires_at_ms) if version < 0 else RowStored(version, False, expires_at_ms)


def pack_write(write: RowPut | RowDelete) -> tuple[bytes, bytes, bytes]:
    """Options, key and value; options are empty when nothing is asked for but a put."""
    expected = write.expected_version
    if isinstance(write, RowDelete):
        return _OPTIONS.pack(_DELETE, 0, expected is not None, expected or 0), write.key, b""
    if not write.ttl_change and expected is None:
        return b"", write.key, write.value
    options = _OPTIONS.pack(write.ttl_change, write.ttl_ms, expected is not None, expected or 0)
    return options, write.key, write.value


_PUT_ROW = b"$7\r\nput_row\r\n$1\r\n5\r\n"
_PUT_ROW_KEY = b"%b$%d\r\n%b\r\n$%d\r\n"
_PUT_ROW_ARGUMENTS = 7
_NO_OPTIONS, _END = bulk(b""), b"\r\n"


def pack_put_row(name: bytes, settings: bytes, put: RowPut) -> tuple[int, bytes]:
    """put_row, by hand: it is hot. `settings` is packed already."""
    key, value = put.key, put.value
    options = bulk(pack_write(put)[0]) if put.ttl_change or put.expected_version is not None else _NO_OPTIONS
    middle = _PUT_ROW_KEY % (options, len(key), key, len(value))
    return _PUT_ROW_ARGUMENTS, b"".join((_PUT_ROW, named(name), settings, middle, value, _END))


_GET_ROW = b"$7\r\nget_row\r\n$1\r\n2\r\n"
_GET_ROW_ARGUMENTS = 4


def pack_get_row(name: bytes, key: bytes) -> tuple[int, bytes]:
    """get_row, by hand as well."""
    return _GET_ROW_ARGUMENTS, b"".join((_GET_ROW, named(name), bulk(key)))


_DELETE_ROW = b"$10\r\ndelete_row\r\n$1\r\n3\r\n"
_DELETE_ROW_ARGUMENTS = 5


def pack_delete_row(name: bytes, key: bytes, expected_version: int | None) -> tuple[int, bytes]:
    """delete_row, by hand as well."""
    expected = b"" if expected_version is None else b"%d" % expected_version
    return _DELETE_ROW_ARGUMENTS, b"".join((_DELETE_ROW, named(name), bulk(key), bulk(expected)))


def scan_bounds(prefix: bytes, after: bytes | None) -> tuple[bytes, bytes]:
    """Lowest and highest key of a page, as ZRANGEBYLEX takes them."""
    low = b"[" + prefix if after is None else b"(" + after
    # The least key behind all that begin with the prefix; there is none behind bytes of 255 alone.
    stem = prefix.rstrip(b"\xff")
    high = b"(" + stem[:-1] + bytes((stem[-1] + 1,)) if stem else b"+"
    return low, high
