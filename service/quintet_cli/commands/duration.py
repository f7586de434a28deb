"""Durations on the command line: "500ms", "30s", "5m", "2h", "1d"; a bare number is seconds."""

from __future__ import annotations

import re

import click

_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Duration(click.ParamType[int]):
    """Converts to whole milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of `value`; a click usage error when it is no duration."""
        if isinstance(value, int):
            return value
        match = _PATTERN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration such as 500ms, 30s, 5m, 2h or 1d", param, ctx)
        number, unit = match.groups()
        return round(float(number) * _UNIT_MS[unit or "s"])
