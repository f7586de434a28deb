"""The tables of a partition as their keys are, read raw: what must hold among them."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from tests.support.partition_state import contents
from tests.support.redis_server import RedisConnection

_TABLE = struct.Struct(">QH")
_SETTINGS_BYTES = 17
_ROW = struct.Struct(">QQ")
_FIRST_TABLE = 2**31
_SETS = ("rows", "keys", "expiring")


class RawRow(NamedTuple):
    """A row record."""

    version: int
    expires_at_ms: int
    value: bytes


class TableState:
    """All keys of tables of one partition, decoded. `tables` and `dropping`: rows by name key of the table."""

    def __init__(self, redis: RedisConnection, partition: int) -> None:
        self.raw = {name: value for name, (_, value) in contents(redis, partition).items()}
        self.numbers = {name: int(number) for name, number in self._of("table_names").items()}
        self.tables = {name: self._rows(number) for name, number in self.numbers.items()}
        self.dropping = {name: self._rows(int(number)) for name, number in self._of("dropping").items()}

    def _of(self, name: str) -> dict[bytes, Any]:
        found: dict[bytes, Any] = self.raw.get(name, {})
        return found

    def _rows(self, number: int) -> dict[bytes, RawRow]:
        return {key: _row(raw) for key, raw in self._of(f"t{number}:rows").items()}

    def check(self) -> None:
        """What must hold among the keys at any time. Raises AssertionError."""
        self._check_names()
        self._check_due()
        dropping = {name: int(number) for name, number in self._of("dropping").items()}
        known = {*self.numbers.values(), *dropping.values()}
        assert len(known) == len(self.numbers) + len(dropping)
        for key in self.raw:
            table, _, of = key.partition(":")
            assert of not in _SETS or int(table[1:]) in known or table[0] != "t", f"{key} is of no table"
        for name, number in self.numbers.items():
            self._check_rows(number, self.tables[name])
        for name, number in dropping.items():
            assert self.dropping[name], f"nothing is left of {name!r}, but it is dropping"
            self._check_rows(number, self.dropping[name])

    def _check_names(self) -> None:
        assert set(self._of("table_index")) == set(self.numbers)
        assert {int(number) for number in self._of("tables")} == set(self.numbers.values())
        for number, record in self._of("tables").items():
            size = _TABLE.unpack_from(record)[1]
            assert len(record) == _TABLE.size + size + _SETTINGS_BYTES
            assert self.numbers[record[_TABLE.size : _TABLE.size + size]] == int(number)

    def _check_rows(self, number: int, rows: dict[bytes, RawRow]) -> None:
        assert set(self._of(f"t{number}:keys")) == set(rows)
        assert not any(self._of(f"t{number}:keys").values()), "a key with a score"
        timed = {key: row.expires_at_ms for key, row in rows.items() if row.expires_at_ms}
        assert self._of(f"t{number}:expiring") == timed
        versions = [row.version for row in rows.values()]
        assert len(set(versions)) == len(versions)

    def _check_due(self) -> None:
        timed = {int(number) for number in self._of("due") if int(number) >= _FIRST_TABLE}
        assert timed <= set(self.numbers.values()), "a table that is not there is due"
        for number in self.numbers.values():
            self._check_due_of(number)

    def _check_due_of(self, number: int) -> None:
        times = self._of(f"t{number}:expiring").values()
        if times:
            due = self._of("due").get(str(number).encode())
            assert due is not None, f"table {number} is never due, but something in it is at {min(times)}"
            assert due <= min(times), f"table {number} is due at {due}, something in it at {min(times)}"


def _row(raw: bytes) -> RawRow:
    version, expires_at_ms = _ROW.unpack_from(raw)
    return RawRow(version, expires_at_ms, raw[_ROW.size :])
