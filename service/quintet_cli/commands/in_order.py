"""A group of commands in the order of their makers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class InOrder(click.Group):
    """Lists commands in the order they were added: what one does first comes first.

    `modules` has commands that are imported when they are wanted, by name; each is called so in its module.
    """

    def __init__(self, *arguments: Any, modules: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._modules = dict(modules or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added, not by the alphabet."""
        return list(dict.fromkeys((*self._modules, *self.commands)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name. When there is none all are imported: click tells what may have been meant."""
        wanted = (cmd_name,) if cmd_name in self._modules else tuple(self._modules)
        for name in wanted:
            if name not in self.commands:
                self.add_command(getattr(import_module(self._modules[name]), name))
        return super().get_command(ctx, cmd_name)
