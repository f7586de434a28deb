"""The operator's commands. A new one is a module here, and an entry in `ALL`."""

import click

ALL: tuple[click.Command, ...] = ()
"""Every operator command, in the order of `quintet --help`."""
