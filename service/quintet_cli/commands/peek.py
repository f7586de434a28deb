"""`quintet peek`."""

from __future__ import annotations

import click
from quintet_client import Client, JobState

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import STATES, Output


@click.command()
@click.argument("queue")
@click.option("-n", "--jobs", "jobs_max", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True)
@connected
async def peek(client: Client, output: Output, queue: str, jobs_max: int, state: str) -> int:
    """Show the next jobs of QUEUE without taking them. Exit code 1: there are none."""
    jobs = await client.peek(queue, state=JobState(state), jobs_max=jobs_max)
    if jobs:
        output.jobs(jobs)
        return exit_codes.DONE
    if not output.json:
        click.echo(f"no {state} jobs", err=True)
    return exit_codes.NOTHING_THERE
