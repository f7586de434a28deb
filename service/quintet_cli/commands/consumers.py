"""`quintet consumers list` and `quintet consumers delete`."""

from __future__ import annotations

import dataclasses

import click
from quintet_client import Client, Log

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output

HEADINGS = ("consumer", "epoch", "records behind", "of them in one partition")

_log = click.option(
    "--log", "of", type=click.Choice([log.value for log in Log]), default=Log.EVENTS.value, show_default=True
)


@click.group()
def consumers() -> None:
    """Who reads the logs by name, and for whom they are kept."""


@consumers.command("list")
@_log
@connected
async def list_consumers(client: Client, output: Output, of: str) -> int:
    """Say how far each consumer has come."""
    found = await client.list_consumers(log=Log(of))
    if output.json:
        for consumer in found:
            output.record(dataclasses.asdict(consumer))
    elif found:
        output.table(HEADINGS, ((each.name, each.epoch, each.lag, each.lag_max) for each in found))
    else:
        output.say("no consumers", {})
    return exit_codes.DONE


@consumers.command()
@click.argument("consumer")
@_log
@connected
async def delete(client: Client, output: Output, consumer: str, of: str) -> int:
    """Forget CONSUMER: the log is kept for it no longer."""
    await client.delete_consumer(consumer, log=Log(of))
    output.say(f"{consumer} is forgotten", {"consumer": consumer})
    return exit_codes.DONE
