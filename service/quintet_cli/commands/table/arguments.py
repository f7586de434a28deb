"""What the commands of rows take from the command line."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import Any

import click


def from_base64(text: str) -> bytes:
    """The bytes that standard base64 stands for; a click usage error when it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise click.UsageError(f"{text!r} is not base64: {error}") from None


def row_key(key: str, key_base64: bool) -> dict[str, Any]:
    """The bytes of a KEY argument, in its place among the options."""
    return {"key": from_base64(key) if key_base64 else os.fsencode(key)}


def takes_key(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds KEY and --key-base64; `row_key` turns them into bytes."""
    option = click.option("--key-base64", is_flag=True, help="KEY is in base64, as --json shows keys that are no text.")
    return click.argument("key")(option(command))


def takes_expected_version(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --expect-version."""
    return click.option(
        "--expect-version",
        "expected_version",
        type=click.IntRange(min=0),
        help="Only when the row is of this version; 0: only when there is none.",
    )(command)
