"""`quintet redrive`."""

from __future__ import annotations

import click
from quintet_client import Client, JobState

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output

_JOBS_AT_A_TIME = 1000


@click.command()
@click.argument("queue")
@click.option("--state", type=click.Choice(["dead", "delayed"]), default="dead", show_default=True)
@click.option("--id", "ids", type=int, multiple=True, help="Only these jobs.")
@click.option("--failure", "failure_reason_contains", default="", help="Only jobs whose last failure contains this.")
@click.option("--max", "jobs_max", type=click.IntRange(min=1), help="At most so many.")
@click.option("--reset-attempts", is_flag=True, help="Start their count of attempts anew.")
@connected
async def redrive(
    client: Client,
    output: Output,
    queue: str,
    state: str,
    ids: tuple[int, ...],
    failure_reason_contains: str,
    jobs_max: int | None,
    reset_attempts: bool,
) -> None:
    """Make dead (or delayed) jobs of QUEUE ready again."""
    counts = await client.count(queue)
    # Jobs that fail again while this runs are not redriven twice: no more than there are now.
    wanted = counts.dead if state == JobState.DEAD else counts.delayed
    wanted = min(wanted, jobs_max or wanted)
    done = 0
    with output.progress(f"redrive {queue}", wanted) as progress:
        while done < wanted:
            moved = await client.redrive(
                queue,
                state=JobState(state),
                ids=ids,
                failure_reason_contains=failure_reason_contains,
                jobs_max=min(wanted - done, _JOBS_AT_A_TIME),
                reset_attempts=reset_attempts,
            )
            done += moved
            progress.update(progress.task_ids[0], completed=done)
            if not moved:
                break
    output.say(f"{done} jobs of {queue} are ready again", {"queue": queue, "redriven": done})
