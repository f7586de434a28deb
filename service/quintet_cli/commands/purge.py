"""`quintet purge`."""

from __future__ import annotations

import click
from quintet_client import Client, JobState

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import STATES, Output


@click.command()
@click.argument("queue")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only jobs in this state; may be given many times.  [default: ready, delayed and dead]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
async def purge(client: Client, output: Output, queue: str, states: tuple[str, ...], yes: bool) -> None:
    """Delete the jobs of QUEUE. They do not come back."""
    if not yes:
        counts = await client.count(queue)
        what = " and ".join(states) or "ready, delayed and dead"
        there = f"{counts.ready} ready, {counts.delayed} delayed, {counts.leased} leased, {counts.dead} dead"
        click.confirm(f"Delete the {what} jobs of {queue} ({there})?", abort=True, err=True)
    deleted = await client.purge(queue, states=[JobState(state) for state in states])
    output.say(f"{deleted} jobs of {queue} deleted", {"queue": queue, "deleted": deleted})
