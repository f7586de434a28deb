"""Reading JSON with its source bytes: exactly what RFC 8259 allows, by both of the ways there are."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_adapters.protocols.json_source import ABSENT, JsonFaultError, SourceDecoder, split_object


class _Two(msgspec.Struct):
    a: msgspec.Raw = ABSENT
    b: msgspec.Raw = ABSENT


decode = SourceDecoder(_Two).decode


def read(source: bytes) -> dict[str, bytes] | str:
    try:
        fields = decode(source)
    except JsonFaultError:
        return "fault"
    return {name: bytes(getattr(fields, name)) for name in ("a", "b") if getattr(fields, name) is not ABSENT}


def read_slowly(source: bytes) -> dict[str, bytes] | str:
    try:
        members = split_object(source)
    except JsonFaultError:
        return "fault"
    return {name: value for name, value in members.items() if name in ("a", "b")}


def is_json_object(source: bytes) -> bool:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        return isinstance(json.loads(source.decode(), parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda values: st.one_of(st.lists(values, max_size=3), st.dictionaries(st.text(max_size=3), values, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "é"]), VALUES, max_size=4)


@given(fields=OBJECTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_every_value_keeps_its_source(fields: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    source = json.dumps(fields, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    found = read(source)
    if not is_json_object(source):  # a surrogate that no escape hides
        assert found == "fault"
        return
    assert isinstance(found, dict)
    assert {name: json.loads(value) for name, value in found.items()} == {
        name: value for name, value in fields.items() if name in ("a", "b")
    }
    assert all(value in source for value in found.values())


TELLING = [b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b",", b"1", b"e", b"."]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    source = bytearray(json.dumps(draw(OBJECTS), ensure_ascii=draw(st.booleans())).encode("utf-8", "replace"))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(source)))
        replaced = draw(st.integers(0, 2))
        source[place : place + replaced] = draw(
            st.one_of(
                st.binary(max_size=2),
                st.sampled_from([b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b",", b"1", b"e", b"."]),
            )
        )
    return bytes(source)


@given(source=damaged())
def test_what_is_read_is_json_and_what_is_json_is_read_the_same_both_ways(source: bytes) -> None:
    assert read(source) == read_slowly(source)
    assert (read(source) != "fault") == is_json_object(source)


@pytest.mark.parametrize("source", [b'{"a":1,"a":2}', b'{"a":{},"a":2}', b'{"a":"\\ud800","a":2}'])
def test_the_last_of_equal_names_counts(source: bytes) -> None:
    assert read(source) == {"a": b"2"}
