"""`quintet put`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import click
from quintet_client import Client, NewJob

from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.line_input import batches_of_lines
from quintet_cli.commands.output import Output

_JOBS_AT_A_TIME = 800


def _read(payload: str | None, source: BinaryIO | None, lines: bool, attributes: tuple[str, ...]) -> dict[str, Any]:
    """Before there is a connection: what is wrong with the command line, and a payload that somebody may be typing."""
    for pair in attributes:
        if "=" not in pair:
            raise click.UsageError(f"--attribute {pair}: must be KEY=VALUE")
    given = payload is not None and payload != "-"
    if given and source is not None:
        raise click.UsageError("give a payload or --file, not both")
    read = {"attributes": dict(pair.split("=", 1) for pair in attributes)}
    if given:
        return read | {"payload": os.fsencode(payload or "")}
    source = source or sys.stdin.buffer
    return read | ({"source": source} if lines else {"payload": source.read()})


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
@connected(prepare=_read)
async def put(
    client: Client,
    output: Output,
    queue: str,
    payload: bytes | None,
    source: BinaryIO | None,
    lines: bool,
    rank: int,
    delay: int,
    time_to_live: int,
    deduplication_key: str,
    attempts_max: int,
    content_type: str,
    attributes: dict[str, str],
    create: bool,
) -> None:
    """Put a job into QUEUE, and print its id once it is on disk.

    PAYLOAD is taken as it stands; "-" (or nothing) reads standard input. With --lines every line is a job, put as it
    comes.
    """
    job = NewJob(
        payload=payload or b"",
        content_type=content_type,
        rank=rank,
        delay_ms=delay,
        time_to_live_ms=time_to_live,
        deduplication_key=deduplication_key,
        attempts_max=attempts_max,
        attributes=attributes,
    )
    putter = Putter(client, output, queue, job, create)
    if not lines:
        await putter.put_one()
    elif source is None:
        await putter.put_lines(_given((payload or b"").splitlines()))
    else:
        await putter.put_lines(batches_of_lines(source.fileno()))


async def _given(lines: list[bytes]) -> AsyncIterator[list[bytes]]:
    yield [line for line in lines if line]


@dataclass(frozen=True)
class Putter:
    """Puts jobs like `model`, and says their ids."""

    client: Client
    output: Output
    queue: str
    model: NewJob
    create: bool

    async def put_one(self) -> None:
        """One job, the model itself."""
        [job_id] = await self._put([self.model])
        self.output.say(str(job_id), {"id": job_id, "queue": self.queue})

    async def put_lines(self, batches: AsyncIterator[list[bytes]]) -> None:
        """A job for each line."""
        done = 0
        with self.output.progress(f"put into {self.queue}", None) as progress:
            async for batch in batches:
                for start in range(0, len(batch), _JOBS_AT_A_TIME):
                    ids = await self._put(
                        [replace(self.model, payload=line) for line in batch[start:][:_JOBS_AT_A_TIME]]
                    )
                    done += len(ids)
                    progress.update(progress.task_ids[0], completed=done)
                    for job_id in ids if self.output.json else ():
                        self.output.record({"id": job_id, "queue": self.queue})
        if not self.output.json:
            self.output.say(f"{done} jobs put into {self.queue}", {})

    async def _put(self, jobs: list[NewJob]) -> list[int]:
        return await self.client.enqueue_many(self.queue, jobs, create_if_missing=self.create)
