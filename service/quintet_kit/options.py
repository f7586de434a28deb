"""Settings as options of a command: `redis_url` is --redis-url, and QUINTET_REDIS_URL in the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from quintet_kit.settings import Settings, load_or_exit, variable_of

Command = Callable[..., Any]
S = TypeVar("S", bound=Settings)


def setting_options(settings_class: type[S], *, without_prefix: str = "") -> Callable[[Command], Command]:
    """One option per setting; the command gets those given as keywords, for `settings_of`.

    `without_prefix`: with which names of settings begin, and names of options do not.
    """

    def decorate(command: Command) -> Command:
        for name, setting in reversed(settings_class.model_fields.items()):
            flag = "--" + name.removeprefix(without_prefix).replace("_", "-")
            default = "off" if setting.default is False else setting.default
            shown = "" if default in (None, "", ()) else f"; default: {default}"
            help_text = f"{setting.description} [{variable_of(name)}{shown}]"
            if setting.annotation is bool:
                option = click.option(flag, name, is_flag=True, default=None, help=help_text)
            else:
                option = click.option(flag, name, default=None, metavar="VALUE", help=help_text)
            command = option(command)
        return command

    return decorate


def settings_of(settings_class: type[S], given: dict[str, Any]) -> S:
    """What was given wins over the environment. Every fault is told at once; they end the process with 78."""
    return load_or_exit(settings_class, **{name: value for name, value in given.items() if value is not None})
