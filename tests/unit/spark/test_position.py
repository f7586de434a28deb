"""Places in a log: what options and checkpoints say, and how the way between two is divided."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_spark.source.position import Position, Stretch, divided, parsed, spread, stored

offsets = st.dictionaries(st.integers(0, 15), st.integers(0, 1 << 53), min_size=1)


class TestAPosition:
    """As an option tells it."""

    @pytest.mark.parametrize(
        ("text", "position"),
        [
            ("earliest", Position(word="earliest")),
            (" Latest ", Position(word="latest")),
            ('{"3": 7, "0": 1}', Position(offsets=((0, 1), (3, 7)))),
            ("1700000000123", Position(at_ms=1_700_000_000_123)),
            ("2026-01-31T12:00:00.25Z", Position(at_ms=1_769_860_800_250)),
            ("2026-01-31T14:00:00+02:00", Position(at_ms=1_769_860_800_000)),
        ],
    )
    def test_is_a_word_offsets_or_a_moment(self, text: str, position: Position) -> None:
        assert Position.of_text(text) == position

    @pytest.mark.parametrize(
        "text",
        ["", "now", "-5", "{", "{}x", '{"a": 1}', '{"0": -1}', '{"0": "1"}', '{"0": true}', "[1]", "2026-13-01T00:00Z"],
    )
    def test_is_nothing_else(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"must be|no JSON"):
            Position.of_text(text)

    def test_names_its_time_zone(self) -> None:
        with pytest.raises(ValueError, match="time zone"):
            Position.of_text("2026-01-31T12:00:00")


@given(offsets)
def test_offsets_come_back_from_a_checkpoint_as_they_were(offsets: dict[int, int]) -> None:
    text = json.dumps(stored(offsets))
    assert parsed(json.loads(text)) == offsets
    assert text == json.dumps(stored(dict(reversed(offsets.items()))))


@given(offsets, st.integers(1, 1 << 54))
def test_a_limit_is_spread_so_that_all_get_the_same_or_all_they_have(available: dict[int, int], most: int) -> None:
    taken = spread(available, most)
    assert sum(taken.values()) == min(most, sum(available.values()))
    waiting = [taken[each] for each in available if taken[each] < available[each]]
    for each in available:
        assert 0 <= taken[each] <= available[each]
        assert all(taken[each] <= other + 1 for other in waiting)


@given(st.dictionaries(st.integers(0, 15), st.tuples(st.integers(0, 900), st.integers(0, 900))), st.integers(1, 99))
def test_a_way_is_divided_without_a_gap(ways: dict[int, tuple[int, int]], longest: int) -> None:
    starts = {each: after for each, (after, _) in ways.items()}
    ends = {each: through for each, (_, through) in ways.items()}
    stretches = divided(starts, ends, 16, longest)
    assert all(0 < each.through - each.after <= longest and each.partitions == 16 for each in stretches)
    for partition, (after, through) in ways.items():
        own = [each for each in stretches if each.partition == partition]
        assert [offset for each in own for offset in range(each.after, each.through)] == list(range(after, through))


def test_pieces_are_nearly_equal() -> None:
    assert divided({0: 0}, {0: 10}, 1, 4) == [Stretch(0, 0, 3, 1), Stretch(0, 3, 6, 1), Stretch(0, 6, 10, 1)]
