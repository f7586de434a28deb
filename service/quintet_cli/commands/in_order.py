"""A group of commands in the order of their makers."""

from __future__ import annotations

import click


class InOrder(click.Group):
    """Lists commands in the order they were added: what one does first comes first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added, not by the alphabet."""
        return list(self.commands)
