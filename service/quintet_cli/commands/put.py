"""`quintet put`."""

from __future__ import annotations

import io
import itertools
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click
from quintet_client import Client, NewJob

from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.output import Output

_JOBS_AT_A_TIME = 800


@click.command()
@click.argument("queue")
@click.argument("payload", required=False)
@click.option("--file", "source", type=click.File("rb"), help="Read the payload from a file (-: standard input).")
@click.option("--lines", is_flag=True, help="One job for each line that is read; empty lines are left out.")
@click.option("--rank", type=int, default=0, show_default=True, help="Lowest is taken first.")
@click.option("--delay", type=Duration(), default=0, help="How long until it can be taken.")
@click.option("--time-to-live", type=Duration(), default=0, help="How long an untaken job is kept.")
@click.option("--deduplication-key", default="", help="A job whose key was seen lately is not put again.")
@click.option("--attempts-max", type=click.IntRange(min=0), default=0, help="Deliveries before it is dead.")
@click.option("--content-type", default="")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="May be given many times.")
@click.option("--create/--no-create", default=True, show_default=True, help="Make the queue when it is missing.")
@connected
async def put(
    client: Client,
    output: Output,
    queue: str,
    payload: str | None,
    source: BinaryIO | None,
    lines: bool,
    rank: int,
    delay: int,
    time_to_live: int,
    deduplication_key: str,
    attempts_max: int,
    content_type: str,
    attributes: tuple[str, ...],
    create: bool,
) -> None:
    """Put a job into QUEUE, and print its id once it is on disk.

    PAYLOAD is taken as it stands; "-" (or nothing) reads standard input. With --lines every line is a job.
    """
    payloads = _payloads(payload, source, lines)
    jobs = (
        NewJob(
            payload=each,
            content_type=content_type,
            rank=rank,
            delay_ms=delay,
            time_to_live_ms=time_to_live,
            deduplication_key=deduplication_key,
            attempts_max=attempts_max,
            attributes=_attributes(attributes),
        )
        for each in payloads
    )
    if lines:
        await _put_many(client, output, queue, jobs, create)
        return
    [job_id] = await client.enqueue_many(queue, jobs, create_if_missing=create)
    output.say(str(job_id), {"id": job_id, "queue": queue})


async def _put_many(client: Client, output: Output, queue: str, jobs: Iterator[NewJob], create: bool) -> None:
    done = 0
    with output.progress(f"put into {queue}", None) as progress:
        while window := list(itertools.islice(jobs, _JOBS_AT_A_TIME)):
            ids = await client.enqueue_many(queue, window, create_if_missing=create)
            done += len(ids)
            progress.update(progress.task_ids[0], completed=done)
            for job_id in ids if output.json else ():
                output.record({"id": job_id, "queue": queue})
    if not output.json:
        output.say(f"{done} jobs put into {queue}", {})


def _payloads(payload: str | None, source: BinaryIO | None, lines: bool) -> Iterator[bytes]:
    stream: BinaryIO = source if source is not None else sys.stdin.buffer
    if payload is not None and payload != "-":
        if source is not None:
            raise click.UsageError("give a payload or --file, not both")
        stream = io.BytesIO(os.fsencode(payload))
    if not lines:
        return iter([stream.read()])
    return (stripped for line in stream if (stripped := line.rstrip(b"\r\n")))


def _attributes(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.UsageError(f"--attribute {pair}: must be KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)
