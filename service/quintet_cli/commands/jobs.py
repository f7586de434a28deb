"""`quintet jobs`."""

from __future__ import annotations

from typing import Any

import click
from quintet_client import Client, Job, JobState

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import STATES, Output, job_record

_PAGE_JOBS_MAX = 1000


def _check(queue: str | None, ids: tuple[int, ...]) -> dict[str, Any]:
    if queue is None and not ids:
        raise click.UsageError("name a QUEUE, or give --id")
    return {}


@click.command()
@click.argument("queue", required=False)
@click.option("--id", "ids", type=int, multiple=True, help="Show these jobs instead, wherever they are.")
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True)
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="0: all of them.")
@click.option("--payloads/--no-payloads", default=True, help="Without them the last failure is shown.")
@connected(prepare=_check)
async def jobs(
    client: Client, output: Output, queue: str | None, ids: tuple[int, ...], state: str, limit: int, payloads: bool
) -> None:
    """List the jobs of QUEUE in one state, ready ones in the order in which they will be taken."""
    if ids:
        output.jobs([await client.get_job(job_id, without_payload=not payloads) for job_id in ids], payloads=payloads)
        return
    assert queue is not None, "checked before"
    listed: list[Job] = []
    seen = 0
    page_size = min(limit or _PAGE_JOBS_MAX, _PAGE_JOBS_MAX)
    found = client.list_jobs(queue, state=JobState(state), without_payload=not payloads, page_size=page_size)
    async for job in found:
        # As they come: all jobs of a long queue need not fit into memory.
        output.record(job_record(job, payloads=payloads)) if output.json else listed.append(job)
        seen += 1
        if seen == limit:
            break
    if not output.json:
        output.jobs(listed, payloads=payloads)
