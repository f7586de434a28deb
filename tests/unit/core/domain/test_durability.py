"""The rule of durability, over what Redis may say."""

from __future__ import annotations

import pytest
from quintet_core.domain.durability import WANTED, Durability


def found(settings: dict[str, str] | None = None, enabled: bool = True, status: str = "ok") -> Durability:
    return Durability({**WANTED, **(settings or {})}, enabled, status, 1)


def test_all_as_wanted_is_durable() -> None:
    assert found().durable
    assert found().weaknesses == ()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appendfsync", "no"),
        ("maxmemory-policy", "volatile-ttl"),
        ("no-appendfsync-on-rewrite", "yes"),
    ],
)
def test_each_weak_setting_is_named_with_what_it_must_be(setting: str, value: str) -> None:
    assert found({setting: value}).weaknesses == (f"{setting} is {value}, must be {WANTED[setting]}",)


def test_what_cannot_be_read_is_weak() -> None:
    nothing = Durability({}, True, "ok", 1)
    assert len(nothing.weaknesses) == len(WANTED)
    assert all("is unknown" in weakness for weakness in nothing.weaknesses)


def test_a_file_that_is_not_written_is_weak_whatever_the_settings_say() -> None:
    assert found(enabled=False).weaknesses == ("the append-only file is not being written",)


@pytest.mark.parametrize(("status", "said"), [("err", "err"), ("", "unknown")])
def test_a_failed_last_write_is_weak(status: str, said: str) -> None:
    assert found(status=status).weaknesses == (f"the last write to the append-only file is {said}, not ok",)
