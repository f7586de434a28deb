"""`quintet pause` and `quintet resume`."""

from __future__ import annotations

import click
from quintet_client import Client, PauseDirection

from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.output import Output
from quintet_cli.commands.queues import paused, record


@click.command()
@click.argument("queue")
@click.option("--direction", type=click.Choice(["in", "out", "both"]), default="both", show_default=True)
@click.option("--for", "duration", type=Duration(), default=0, help="How long.  [default: until resumed]")
@connected
async def pause(client: Client, output: Output, queue: str, direction: str, duration: int) -> None:
    """Stop QUEUE from taking jobs in, from handing them out, or both."""
    found = await client.pause(queue, direction=PauseDirection(direction), duration_ms=duration)
    output.say(f"{queue} is paused: {paused(found)}", record(found))


@click.command()
@click.argument("queue")
@connected
async def resume(client: Client, output: Output, queue: str) -> None:
    """End the pause of QUEUE."""
    found = await client.resume(queue)
    output.say(f"{queue} is not paused", record(found))
