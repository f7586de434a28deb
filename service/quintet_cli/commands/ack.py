"""`quintet ack`."""

from __future__ import annotations

from typing import Any

import click
from quintet_client import Client

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output


def _check(token: int | None, any_lease: bool) -> dict[str, Any]:
    if token is None and not any_lease:
        raise click.UsageError("give the lease's TOKEN, or --any-lease")
    return {}


@click.command()
@click.argument("job_id", type=int)
@click.argument("token", type=int, required=False)
@click.option("--any-lease", is_flag=True, help="Whoever holds it: no token needed.")
@connected(prepare=_check)
async def ack(client: Client, output: Output, job_id: int, token: int | None, any_lease: bool) -> None:
    """Acknowledge the leased job JOB_ID: it is done, and gone.

    TOKEN is what `quintet take` printed. Exit code 3: no such job, or its lease is another's by now.
    """
    await client.acknowledge(job_id, token, any_lease=any_lease)
    output.say(f"job {job_id} is done", {"id": job_id, "acknowledged": True})
