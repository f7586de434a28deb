"""Instants as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class Instant(click.ParamType[int]):
    """`2026-03-01T12:00:00Z`, or with an offset; without either, UTC. As epoch milliseconds."""

    name = "instant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Epoch milliseconds."""
        if isinstance(value, int):
            return value
        try:
            instant = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no instant like 2026-03-01T12:00:00Z", param, ctx)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return round(instant.timestamp() * 1000)
