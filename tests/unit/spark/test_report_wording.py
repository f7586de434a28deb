"""Numbers and names as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_spark.report import wording

S = wording.THIN_SPACE


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, wording.UNKNOWN),
        (0, f"0{S}ms"),
        (999, f"999{S}ms"),
        (1_000, f"1{S}s"),
        (1_250, f"1.2{S}s"),
        (59_949, f"59.9{S}s"),
        (59_950, f"1{S}min"),
        (200_000, f"3{S}min 20{S}s"),
        (3_599_600, f"1{S}h"),
        (14_700_000, f"4{S}h 5{S}min"),
        (86_400_000 * 2 + 3_600_000 * 3, f"2{S}d 3{S}h"),
    ],
)
def test_a_duration_has_two_units_at_most(ms: float | None, said: str) -> None:
    assert wording.duration(ms) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, wording.UNKNOWN),
        (1.0, f"100{S}%"),
        (0.999999, f"99.99{S}%"),
        (0.99, f"99{S}%"),
        (0.5, f"50{S}%"),
        (0.1234, f"12.3{S}%"),
        (0.00087, f"0.08{S}%"),
        (0.0001, f"0.01{S}%"),
        (0.00001, f"<{S}0.01{S}%"),
        (0.0, f"0{S}%"),
    ],
)
def test_only_all_of_it_is_a_hundred_percent(share: float | None, said: str) -> None:
    assert wording.percent(share) == said


@pytest.mark.parametrize(
    ("per_second", "said"),
    [(None, wording.UNKNOWN), (0, "0"), (1_234.5, f"1{S}234/s"), (2, "2.0/s"), (0.5, "30.0/min"), (0.001, "3.6/h")],
)
def test_a_rate_comes_in_the_unit_that_suits_it(per_second: float | None, said: str) -> None:
    assert wording.rate(per_second) == said


@pytest.mark.parametrize(
    ("per_hour", "said"),
    [(None, wording.UNKNOWN), (0.0, "+0.00"), (0.031, "+0.03"), (-12.34, "\u221212.3"), (12_345.6, f"+12{S}346")],
)
def test_a_slope_has_its_sign(per_hour: float | None, said: str) -> None:
    assert wording.slope(per_hour) == said


@given(st.text())
def test_no_name_holds_what_cannot_be_seen(text: str) -> None:
    assert all(
        each.isprintable() or each in "\u00a0\u202f\u2003\u3000" or each.isspace() for each in wording.visible(text)
    )
    assert not set(wording.visible(text)) & set("\x00\x1b\n\u202e\u2066\u200b\ufeff")


def test_a_name_that_turns_the_writing_is_shown_as_it_is() -> None:
    assert wording.name("a\u202eb\x00") == r"a\u{202e}b\u{0}"
    assert wording.name("") == wording.name(None) == "(empty name)"


@given(st.text(min_size=1, max_size=300))
def test_a_long_name_is_cut_in_its_middle(text: str) -> None:
    short = wording.shortened(text, 30)
    assert len(short) <= 30
    assert short == text or (text.startswith(short[:20]) and text.endswith(short[21:]))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], "\u201ca\u201d"),
        (["a", "b"], "\u201ca\u201d and \u201cb\u201d"),
        (["a", "b", "c", "d", "e"], "\u201ca\u201d, \u201cb\u201d, \u201cc\u201d and 2 more"),
    ],
)
def test_a_few_names_are_listed_and_the_rest_counted(names: list[str], said: str) -> None:
    assert wording.listed(names) == said
