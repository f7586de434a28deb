"""Durations as people write them."""

import click
import pytest
from quintet_cli.commands.duration import Duration


@pytest.mark.parametrize(
    ("written", "duration_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("7", 7000),
        ("1.5s", 1500),
    ],
)
def test_a_duration_is_read_as_milliseconds(written: str, duration_ms: int) -> None:
    assert Duration().convert(written, None, None) == duration_ms


@pytest.mark.parametrize("written", ["", "soon", "-1s", "5 weeks", "1e3s"])
def test_what_is_no_duration_is_a_usage_error(written: str) -> None:
    with pytest.raises(click.BadParameter, match="duration"):
        Duration().convert(written, None, None)
