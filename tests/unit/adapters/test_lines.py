"""Lines out of bytes that come in any pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quintet_adapters.protocols.lines import TOO_LONG, LineBuffer, TooLong

LIMIT = 5


def lines_of(buffer: LineBuffer) -> list[bytes | TooLong]:
    found: list[bytes | TooLong] = []
    while (line := buffer.next_line()) is not None:
        found.append(line)
    return found


def expected(data: bytes) -> list[bytes | TooLong]:
    *whole, rest = data.split(b"\n")
    lines: list[bytes | TooLong] = [line if len(line) <= LIMIT else TOO_LONG for line in whole]
    return [*lines, TOO_LONG] if len(rest) > LIMIT else lines


@given(pieces=st.lists(st.text("ab\n", max_size=8).map(str.encode), max_size=12), lazy=st.booleans())
def test_every_line_comes_out_once_whatever_the_pieces(pieces: list[bytes], lazy: bool) -> None:
    buffer = LineBuffer(LIMIT)
    found: list[bytes | TooLong] = []
    for piece in pieces:
        if buffer.is_one_line(piece):
            found.append(piece[:-1])
            continue
        buffer.feed(piece)
        if not lazy:
            found += lines_of(buffer)
    found += lines_of(buffer)
    if not lazy:
        assert found == expected(b"".join(pieces))
    assert buffer.is_drained


def test_a_line_of_the_limit_is_a_line_and_one_byte_more_is_not() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.feed(b"12345\n123456\n1\n")
    assert lines_of(buffer) == [b"12345", TOO_LONG, b"1"]


def test_a_line_too_long_is_told_of_before_it_ends_and_only_once() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.feed(b"123456")
    assert lines_of(buffer) == [TOO_LONG]
    buffer.feed(b"7" * 100)
    assert lines_of(buffer) == []
    buffer.feed(b"8\nab\n")
    assert lines_of(buffer) == [b"ab"]


def test_what_nobody_looked_at_yet_is_counted() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.feed(b"ab\ncd\n")
    buffer.next_line()
    assert (buffer.waiting_bytes, buffer.is_drained) == (3, False)
    buffer.feed(b"e")
    assert buffer.waiting_bytes == 4
