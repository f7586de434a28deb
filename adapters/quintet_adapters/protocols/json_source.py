"""JSON objects whose values keep their source bytes: number spelling, key order, duplicates, escapes.

msgspec reads the fields, and accepts nothing that RFC 8259 does not, bytes that are not UTF-8 apart, which are checked
here. It refuses more than it should (escapes of lone surrogates), so what it refuses is read again by the standard
library's decoder, whose word is final.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from json import decoder
from typing import Any, Final, Generic, TypeVar

import msgspec

ABSENT: Final = msgspec.Raw(b"")
"""The default of a field."""

_INTEGER = re.compile(rb"-?\d+\Z")
_INTEGER_DIGITS_MAX = 40
_NUMBER_STARTS = tuple(b"%c" % character for character in b"-0123456789")
_SMALL_TEXT_MAX = 256
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")


class JsonFaultError(Exception):
    """The peer's JSON, or a value in it, is not what it must be; the text says what, in one line."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# Part of the standard library's pure Python interface to its decoder, if not of its documentation.
_scan_string: Final[Callable[[str, int, bool], tuple[str, int]]] = decoder.scanstring  # type: ignore[attr-defined]

# Values are only checked, never used: numbers need no conversion (and have no limit of digits then).
_CHECKER: Final = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_refuse_constant)

_decode_strings: Final = msgspec.json.Decoder(list[str]).decode

T = TypeVar("T", bound=msgspec.Struct)


class SourceDecoder(Generic[T]):
    """Decodes objects into `struct_type`, all of whose fields are `Raw` with the default `ABSENT`.

    Unknown fields are ignored; of a field given twice the last counts.
    """

    def __init__(self, struct_type: type[T]) -> None:
        self._struct_type = struct_type
        self._decode = msgspec.json.Decoder(struct_type).decode

    def decode(self, source: bytes) -> T:
        """The fields of one JSON object. Raises JsonFaultError."""
        try:
            fields = self._decode(source)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return self._decode_slowly(source)
        if not source.isascii():
            _text_of(source)
        return fields

    def _decode_slowly(self, source: bytes) -> T:
        values = split_object(source)
        known = {name: values[name] for name in self._struct_type.__struct_fields__ if name in values}
        return self._struct_type(**{name: msgspec.Raw(value) for name, value in known.items()})


def split_object(source: bytes) -> dict[str, bytes]:
    """Every field of a JSON object with the source bytes of its value. Raises JsonFaultError."""
    text = _text_of(source)
    try:
        return _split_members(text)
    except RecursionError:
        raise JsonFaultError("nested too deeply") from None
    except (ValueError, StopIteration, IndexError):
        raise JsonFaultError("not JSON") from None


def _split_members(text: str) -> dict[str, bytes]:
    position = _skip_space(text, 0)
    if text[position] != "{":
        _, position = _CHECKER.raw_decode(text, position)
        _require_end(text, position)
        raise JsonFaultError("not a JSON object")
    members: dict[str, bytes] = {}
    position = _skip_space(text, position + 1)
    if text[position] == "}":
        _require_end(text, position + 1)
        return members
    while True:
        name, value, position = _split_member(text, position)
        members[name] = value
        position = _skip_space(text, position)
        if text[position] == "}":
            _require_end(text, position + 1)
            return members
        position = _skip_space(text, _skip(text, position, ","))


def _split_member(text: str, position: int) -> tuple[str, bytes, int]:
    name, position = _scan_string(text, _skip(text, position, '"'), True)
    start = _skip_space(text, _skip(text, _skip_space(text, position), ":"))
    _, end = _CHECKER.raw_decode(text, start)
    return name, text[start:end].encode(), end


def _skip(text: str, position: int, expected: str) -> int:
    if text[position] != expected:
        raise ValueError(f"expected {expected}")
    return position + 1


def _skip_space(text: str, position: int) -> int:
    found = _WHITE_SPACE.match(text, position)
    return found.end() if found else position


def _require_end(text: str, position: int) -> None:
    if _skip_space(text, position) != len(text):
        raise ValueError("something follows the value")


def _text_of(source: bytes) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError:
        raise JsonFaultError("not UTF-8") from None


def read_integer(source: bytes, name: str) -> int:
    """An integer without fraction or exponent; what is beyond 64 bits stays beyond, not necessarily exact."""
    try:
        return int(source)
    except ValueError:
        if len(source) > _INTEGER_DIGITS_MAX and _INTEGER.match(source):
            return int(source[:_INTEGER_DIGITS_MAX])
        raise JsonFaultError(f"{name} must be an integer") from None


def read_boolean(source: bytes, name: str) -> bool:
    """true or false."""
    if source == b"true":
        return True
    if source == b"false":
        return False
    raise JsonFaultError(f"{name} must be a boolean")


def read_string(source: bytes, name: str) -> str:
    """A string that UTF-8 can hold."""
    if not source.startswith(b'"'):
        raise JsonFaultError(f"{name} must be a string")
    if b"\\" not in source:
        return source[1:-1].decode()
    return _require_utf8(json.loads(source), name)


def read_number(source: bytes, name: str) -> float:
    """A number, integer or with a fraction or exponent, as near as a double comes; it must be a finite one."""
    if not source.startswith(_NUMBER_STARTS):
        raise JsonFaultError(f"{name} must be a number")
    number = float(source)
    if not math.isfinite(number):
        raise JsonFaultError(f"{name} is too large")
    return number


def read_strings(source: bytes, name: str) -> list[str]:
    """A list of strings that UTF-8 can hold."""
    if not source.startswith(b"["):
        raise JsonFaultError(f"{name} must be a list of strings")
    try:
        return _decode_strings(source)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        values: list[Any] = _CHECKER.decode(source.decode())
    if not all(isinstance(value, str) for value in values):
        raise JsonFaultError(f"{name} must be a list of strings")
    return [_require_utf8(value, name) for value in values]


def _require_utf8(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonFaultError(f"{name} has a lone surrogate, which UTF-8 cannot hold") from None
    return text


def json_string(text: str) -> bytes:
    """The text as JSON: for the names that come again and again."""
    return _short_json_string(text) if len(text) <= _SMALL_TEXT_MAX else msgspec.json.encode(text)


@lru_cache(maxsize=4096)
def _short_json_string(text: str) -> bytes:
    return msgspec.json.encode(text)
