"""Closed loops of lifecycles over one Session stream, by the callbacks of `quintet_client.Session`."""

from __future__ import annotations

import asyncio
import gc
import time

import uvloop
from quintet.v1.queue_service_pb2 import AcknowledgeRequest, DequeueRequest, EnqueueRequest
from quintet.v1.session_service_pb2 import SessionResult
from quintet_client.session import Session

from benchmarks.load import STALL_SECONDS
from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.tongues import PAYLOAD_BYTES, UnexpectedAnswerError

JOBS_PER_ENQUEUE = 100
ENQUEUES_IN_FLIGHT = 16


class _Loop:
    """One closed loop: an owner of its own, its requests made once."""

    __slots__ = ("_enqueue", "_lifecycle_started", "_load", "_namespace", "_owner", "_sent", "_session", "_take")

    def __init__(self, load: SessionLoad, session: Session, namespace: str, queue: str) -> None:
        self._load = load
        self._session = session
        self._owner = session.new_owner()
        self._namespace = namespace
        self._enqueue = EnqueueRequest(namespace=namespace, queue=queue, create_if_missing=True)
        self._enqueue.jobs.add(payload=b"x" * PAYLOAD_BYTES)
        self._take = DequeueRequest(namespace=namespace, queues=[queue], jobs_max=1, owner_lease=True)
        self._sent = self._lifecycle_started = time.perf_counter()

    def start(self) -> None:
        self._sent = self._lifecycle_started = time.perf_counter()
        self._session.submit_enqueue(self._owner, self._enqueue, self._on_enqueued)

    def _on_enqueued(self, result: SessionResult) -> None:
        if not result.enqueue.ids:
            self._load.fail(result)
            return
        self._record()
        self._session.submit_dequeue(self._owner, self._take, self._on_dequeued)

    def _on_dequeued(self, result: SessionResult) -> None:
        if not result.dequeue.jobs:
            self._load.fail(result)
            return
        job = result.dequeue.jobs[0]
        self._record()
        request = AcknowledgeRequest(namespace=self._namespace, id=job.id, token=job.lease.token)
        self._session.submit_acknowledge(self._owner, request, self._on_acknowledged)

    def _on_acknowledged(self, result: SessionResult) -> None:
        if not result.HasField("acknowledge"):
            self._load.fail(result)
            return
        now = self._record()
        load = self._load
        load.samples.lifecycle_latencies.append(now - self._lifecycle_started)
        if load.stopping:
            load.loop_ended()
            return
        self._lifecycle_started = now
        self._session.submit_enqueue(self._owner, self._enqueue, self._on_enqueued)

    def _record(self) -> float:
        now = time.perf_counter()
        self._load.samples.operation_latencies.append(now - self._sent)
        self._sent = now
        return now


class SessionLoad:
    """`loops` lifecycles at once on `queues` queues of the core at `target`, over one Session stream."""

    def __init__(self, target: str, queue_prefix: str, loops: int, queues: int, namespace: str = "") -> None:
        self._target = target
        self._namespace = namespace
        self._names = [f"{queue_prefix}-{index % queues}" for index in range(loops)]
        self._running = loops
        self._failed: asyncio.Future[None]
        self._ended: asyncio.Event
        self.samples = Samples()
        self.stopping = False

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run the loops; what happens in the first `warm_up_seconds` is not counted."""
        gc.collect()
        gc.freeze()
        try:
            return uvloop.run(self._run(warm_up_seconds, seconds, meter))
        finally:
            gc.unfreeze()

    def fail(self, result: SessionResult) -> None:
        if not self._failed.done():
            self._failed.set_exception(UnexpectedAnswerError(str(result).encode()))

    def loop_ended(self) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()

    async def _run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        self._failed = asyncio.get_running_loop().create_future()
        # What fails while the run is being ended by something else is no news.
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._ended = asyncio.Event()
        async with await Session.connect(self._target, client="bench") as session:
            for name in self._names:
                _Loop(self, session, self._namespace, name).start()
            await self._pass(warm_up_seconds)
            self.samples = samples = Samples()
            meter.start()
            started = time.perf_counter()
            await self._pass(seconds)
            samples.seconds = time.perf_counter() - started
            samples.cpu_seconds = meter.stop()
            samples.operations = len(samples.operation_latencies)
            samples.lifecycles = len(samples.lifecycle_latencies)
            self.stopping = True
            # What the loops still do until they end is counted apart.
            self.samples = Samples()
            await self._wind_up()
        return samples

    async def _wind_up(self) -> None:
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait((ended, self._failed), timeout=STALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            ended.cancel()
            if not self._failed.done():
                raise TimeoutError(f"no answer from {self._target} for {STALL_SECONDS:.0f} s")
            self._failed.result()

    async def _pass(self, seconds: float) -> None:
        """Let `seconds` go by, or raise what a loop failed with."""
        await asyncio.wait((self._failed,), timeout=seconds)
        if self._failed.done():
            self._failed.result()


def fill(target: str, queue: str, jobs: int) -> None:
    """Put `jobs` jobs (a multiple of JOBS_PER_ENQUEUE) into `queue`."""
    uvloop.run(_fill(target, queue, jobs))


async def _fill(target: str, queue: str, jobs: int) -> None:
    request = EnqueueRequest(queue=queue, create_if_missing=True)
    for _ in range(JOBS_PER_ENQUEUE):
        request.jobs.add(payload=b"x" * PAYLOAD_BYTES)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    to_send = to_come = jobs // JOBS_PER_ENQUEUE

    async with await Session.connect(target, client="bench") as session:
        owner = session.new_owner()

        def send() -> None:
            nonlocal to_send
            if to_send:
                to_send -= 1
                session.submit_enqueue(owner, request, on_result)

        def on_result(result: SessionResult) -> None:
            nonlocal to_come
            to_come -= 1
            if not result.enqueue.ids and not done.done():
                done.set_exception(UnexpectedAnswerError(str(result).encode()))
            elif not to_come:
                done.set_result(None)
            send()

        for _ in range(ENQUEUES_IN_FLIGHT):
            send()
        await done
