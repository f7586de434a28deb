"""Page tokens come back as they went, or not at all."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_core.domain.errors import CallerError, Reason
from quintet_core.rpc import page_token


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_parts_come_back_as_they_went(parts: list[bytes]) -> None:
    token = page_token.encode(*parts)
    assert token.isascii()
    assert page_token.decode(token, len(parts)) == parts


@given(st.text(max_size=50), st.integers(1, 3))
def test_any_other_text_is_refused_or_read_and_never_breaks(text: str, count: int) -> None:
    with suppress(CallerError):
        assert len(page_token.decode(text, count)) == count


@pytest.mark.parametrize("token", ["!", "x", "AAA=", "a" * 9000, page_token.encode(b"a", b"b") + "AA"])
def test_a_token_that_is_none_of_ours_is_refused(token: str) -> None:
    with pytest.raises(CallerError) as caught:
        page_token.decode(token, 2)
    assert caught.value.refusal.reason is Reason.INVALID_ARGUMENT
