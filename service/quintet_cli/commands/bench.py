"""`quintet bench`: lifecycles (put, take, acknowledge, each durable) against a running core."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click
from quintet.v1 import queue_service_pb2 as wire
from quintet.v1.job_pb2 import NewJob
from quintet.v1.session_service_pb2 import SessionResult
from quintet_client import Client, InternalError, NotFoundError, Session
from quintet_client.errors import QuintetError, error_of_failure

from quintet_cli.commands.connected import connected
from quintet_cli.commands.duration import Duration
from quintet_cli.commands.output import Output

_OPERATIONS_PER_LIFECYCLE = 3


@click.command()
@click.option("--loops", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Lifecycles at a time.")
@click.option("--duration", type=Duration(), default="5s", show_default=True)
@click.option("--payload-bytes", type=click.IntRange(min=0), default=50, show_default=True)
@click.option("--queue", help="Queue to use.  [default: a new one, deleted at the end]")
@connected
async def bench(
    client: Client, output: Output, loops: int, duration: int, payload_bytes: int, queue: str | None
) -> None:
    """Measure how many lifecycles a second the core does now, and how long one takes.

    A lifecycle is three requests, each answered once it is on disk: put, take, acknowledge.
    """
    name = queue or f"bench-{secrets.token_hex(4)}"
    run = Run(client.session, client.namespace, name, bytes(payload_bytes), duration / 1000)
    try:
        with output.progress(f"{loops} loops", None) as progress:
            lifecycles = await run.measure(loops, lambda done: progress.update(progress.task_ids[0], completed=done))
    finally:
        if queue is None:
            await _delete(client, name)
    _show(output, Figures.of(lifecycles, run.elapsed_s, loops, payload_bytes))


async def _delete(client: Client, name: str) -> None:
    with contextlib.suppress(NotFoundError):
        await client.delete_queue(name)


@dataclass(frozen=True)
class Figures:
    """What was measured; latencies in milliseconds, of a whole lifecycle."""

    loops: int
    payload_bytes: int
    seconds: float
    lifecycles: int
    lifecycles_per_s: float
    operations_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, latencies_s: list[float], elapsed_s: float, loops: int, payload_bytes: int) -> Figures:
        """The figures of lifecycles that took `latencies_s`."""
        if not latencies_s:
            raise InternalError("no lifecycle was finished in time")
        ordered = sorted(latencies_s)
        rate = len(ordered) / elapsed_s

        def percentile_ms(share: float) -> float:
            return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3)

        return cls(
            loops=loops,
            payload_bytes=payload_bytes,
            seconds=round(elapsed_s, 3),
            lifecycles=len(ordered),
            lifecycles_per_s=round(rate, 1),
            operations_per_s=round(rate * _OPERATIONS_PER_LIFECYCLE, 1),
            p50_ms=percentile_ms(0.50),
            p99_ms=percentile_ms(0.99),
            max_ms=percentile_ms(1),
        )


@dataclass
class Run:
    """Loops of lifecycles on one session, until the time is up."""

    session: Session
    namespace: str
    queue: str
    payload: bytes
    duration_s: float
    latencies_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    _ends_at: float = 0.0
    _running: int = 0

    async def measure(self, loops: int, report: Callable[[int], None]) -> list[float]:
        """Runs `loops` loops and returns the latency of each lifecycle, in seconds. Raises the first error."""
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        started = time.perf_counter()
        self._ends_at = started + self.duration_s
        self._running = loops
        for _ in range(loops):
            Loop(self).put()
        while not self._finished.done():
            await asyncio.wait({self._finished}, timeout=0.2)
            report(len(self.latencies_s))
        self.elapsed_s = time.perf_counter() - started
        self._finished.result()
        return self.latencies_s

    def failed(self, result: SessionResult) -> bool:
        """Whether the result is a failure, which ends the run."""
        if result.HasField("failure"):
            self.end(error_of_failure(result.failure))
            return True
        return False

    def end(self, error: QuintetError) -> None:
        """Ends the run with an error."""
        if not self._finished.done():
            self._finished.set_exception(error)

    def lifecycle_done(self, latency_s: float) -> bool:
        """Notes one lifecycle; returns whether its loop goes on."""
        self.latencies_s.append(latency_s)
        if time.perf_counter() < self._ends_at and not self._finished.done():
            return True
        self._running -= 1
        if not self._running and not self._finished.done():
            self._finished.set_result(None)
        return False


class Loop:
    """One lifecycle after another, by callbacks: what is measured is the core, not coroutines."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._session = run.session
        self._owner = run.session.new_owner()
        self._enqueue = wire.EnqueueRequest(
            namespace=run.namespace, queue=run.queue, jobs=[NewJob(payload=run.payload)], create_if_missing=True
        )
        self._dequeue = wire.DequeueRequest(namespace=run.namespace, queues=[run.queue], lease_ms=60_000)
        self._started = 0.0

    def put(self) -> None:
        """Starts a lifecycle."""
        self._started = time.perf_counter()
        self._session.submit_enqueue(self._owner, self._enqueue, self._take)

    def _take(self, result: SessionResult) -> None:
        if not self._run.failed(result):
            self._session.submit_dequeue(self._owner, self._dequeue, self._acknowledge)

    def _acknowledge(self, result: SessionResult) -> None:
        if self._run.failed(result):
            return
        if not result.dequeue.jobs:
            # Each loop puts before it takes, so only a stranger can have taken the job: wait for another.
            waiting = wire.DequeueRequest(namespace=self._run.namespace, queues=[self._run.queue], wait_ms=1000)
            self._session.submit_dequeue(self._owner, waiting, self._acknowledge)
        else:
            job = result.dequeue.jobs[0]
            request = wire.AcknowledgeRequest(namespace=self._run.namespace, id=job.id, token=job.lease.token)
            self._session.submit_acknowledge(self._owner, request, self._done)

    def _done(self, result: SessionResult) -> None:
        if not self._run.failed(result) and self._run.lifecycle_done(time.perf_counter() - self._started):
            self.put()


def _show(output: Output, figures: Figures) -> None:
    if output.json:
        output.record(dataclasses.asdict(figures))
        return
    rows = [
        ("lifecycles/s", f"{figures.lifecycles_per_s:,.0f}"),
        ("operations/s", f"{figures.operations_per_s:,.0f}"),
        ("p50 of a lifecycle", f"{figures.p50_ms:.3f} ms"),
        ("p99 of a lifecycle", f"{figures.p99_ms:.3f} ms"),
        ("longest", f"{figures.max_ms:.3f} ms"),
        ("lifecycles", f"{figures.lifecycles:,} in {figures.seconds:.1f} s"),
    ]
    output.table((f"{figures.loops} loops", f"{figures.payload_bytes}-byte jobs"), rows)
