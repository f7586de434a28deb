"""`quintet take`."""

from __future__ import annotations

import click
from quintet_client import Client

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.output import Output


@click.command()
@click.argument("queues", nargs=-1, required=True)
@click.option("-n", "--jobs", "jobs_max", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--wait", type=Duration(), default=0, help="How long to wait for the first job.  [default: not at all]")
@click.option("--lease", type=Duration(), default=0, help="How long they are yours.  [default: the queue's setting]")
@click.option("--ack", "acknowledge", is_flag=True, help="Acknowledge them once they are printed: they are gone then.")
@click.option("--raw", is_flag=True, help="Write the payloads and nothing else, each followed by a newline.")
@connected
async def take(
    client: Client,
    output: Output,
    queues: tuple[str, ...],
    jobs_max: int,
    wait: int,
    lease: int,
    acknowledge: bool,
    raw: bool,
) -> int:
    """Lease the best ready jobs of QUEUES: lowest rank first, then the oldest.

    Prints each job with the token that `quintet ack` wants. Exit code 1: no job in time.
    """
    jobs = await client.dequeue(*queues, jobs_max=jobs_max, wait_ms=wait, lease_ms=lease)
    if not jobs:
        if not output.json and not raw:
            click.echo("no job is ready", err=True)
        return exit_codes.NOTHING_THERE
    if raw:
        for job in jobs:
            click.echo(job.payload)
    else:
        output.jobs(jobs)
    if acknowledge:
        for job in jobs:
            await client.acknowledge(job)
    return exit_codes.DONE
