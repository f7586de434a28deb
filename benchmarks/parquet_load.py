"""How fast the archive job of the pipeline takes a log of millions of events to Parquet, as a process of its own."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import uvloop
from quintet.v1.event_service_pb2 import (
    LOG_EVENTS,
    LOG_METRICS,
    DeleteConsumerRequest,
    ListConsumersRequest,
    ListPartitionsRequest,
    OpenConsumerRequest,
)
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.queue_service_pb2 import AcknowledgeRequest, DequeueRequest, EnqueueRequest
from quintet.v1.session_service_pb2 import SessionResult
from quintet_client.session import Session

from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter, cpu_seconds
from benchmarks.stack import Stack
from benchmarks.tongues import PAYLOAD_BYTES, UnexpectedAnswerError
from tests.support.lake import Archive
from tests.support.spark_driver import SparkDriver

STALL_SECONDS_MAX = 300.0
_POLL_SECONDS = 0.02
_JOBS = 100
_FILLERS = 16
_EVENTS_PER_JOB = 3
_ARCHIVE = "archive"
# One behind the other: what lies between them by default is no work.
_BATCHES = ("--archive-interval-s", "0", "--archive-events-max", "1000000")


class SparkMeter(CpuMeter):
    """As CpuMeter; of a driver too, the JVM and all of its Python processes."""

    def __init__(self, stack: Stack, driver: SparkDriver) -> None:
        super().__init__(stack.processes("core", "redis"))
        self._driver = driver

    def _read(self) -> dict[str, float]:
        used = {"jvm": 0.0, "python": 0.0}
        for pid, command in self._driver.processes().items():
            # One that has ended since is counted with whoever waited for it.
            with suppress(OSError):
                name = "jvm" if "java" in command.split(" ")[0] else "python"
                used[name] += cpu_seconds(pid, with_ended_children=True)
        return super()._read() | used


class ParquetLoad:
    """The whole log of `stack`, at least `events`, in batches as large as the job takes them.

    An operation is an event. What is measured begins with the first batch that is in the lake, and ends with the last.
    """

    def __init__(self, stack: Stack, directory: Path, events: int) -> None:
        self._directory = directory
        self._events = events
        self._lake = directory / "lake"
        self._driver = _archive_job(stack, directory, self._lake, *_BATCHES)
        self.meter = SparkMeter(stack, self._driver)

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run; the seconds of the plan play no part."""
        samples, archive = Samples(), Archive(self._lake / "events")
        self._driver.start()
        try:
            first = _rows_above(archive, self._driver, 0)
            meter.start()
            started = time.perf_counter()
            rows = first
            while rows < self._events:
                rows = _rows_above(archive, self._driver, rows)
            samples.seconds = time.perf_counter() - started
            samples.cpu_seconds = meter.stop()
            samples.operations = rows - first
        finally:
            self._driver.kill9()
            shutil.rmtree(self._lake, ignore_errors=True)
        return samples


@contextmanager
def archiving(stack: Stack, directory: Path) -> Iterator[None]:
    """An archive job that has caught up and follows the log."""
    lake = directory / "lake-beside"
    driver = _archive_job(stack, directory, lake)
    driver.start()
    try:
        _rows_above(Archive(lake / "events"), driver, 0)
        yield
    finally:
        driver.kill9()
        shutil.rmtree(lake, ignore_errors=True)


def _archive_job(stack: Stack, directory: Path, lake: Path, *batches: str) -> SparkDriver:
    """One that begins with the oldest event, not where the one before it ended."""
    with grpc.insecure_channel(stack.core_target) as channel:
        service = EventServiceStub(channel)
        for log in (LOG_EVENTS, LOG_METRICS):
            known = service.ListConsumers(ListConsumersRequest(log=log)).consumers
            if any(each.consumer == _ARCHIVE for each in known):
                service.DeleteConsumer(DeleteConsumerRequest(consumer=_ARCHIVE, log=log))
    place = ("--endpoint", stack.core_target, "--lake", str(lake))
    return SparkDriver(_ARCHIVE, directory, *place, *batches)


def _rows_above(archive: Archive, driver: SparkDriver, rows: int) -> int:
    """The number of archived events as soon as it is above `rows`."""
    deadline = time.monotonic() + STALL_SECONDS_MAX
    while (found := archive.count()) <= rows:
        if not driver.is_running or time.monotonic() > deadline:
            raise RuntimeError(f"the archive does not grow beyond {rows:,} events:\n{driver.log.read_text()[-3000:]}")
        time.sleep(_POLL_SECONDS)
    return found


@contextmanager
def fill_log(target: str, events: int) -> Iterator[int]:
    """Within the block the log holds `events` events of lifecycles of jobs, or more: as many as it says."""
    with grpc.insecure_channel(target) as channel:
        service = EventServiceStub(channel)
        # The log is kept for who has yet to read it.
        service.OpenConsumer(OpenConsumerRequest(consumer="bench-keeper"))
        try:
            uvloop.run(_fill(target, events // _EVENTS_PER_JOB))
            held = service.ListPartitions(ListPartitionsRequest()).partitions
            yield sum(each.last_offset - each.first_offset + 1 for each in held)
        finally:
            service.DeleteConsumer(DeleteConsumerRequest(consumer="bench-keeper"))


async def _fill(target: str, jobs: int) -> None:
    async with await Session.connect(target, client="bench") as session, asyncio.TaskGroup() as tasks:
        for number in range(_FILLERS):
            tasks.create_task(_lifecycles(session, f"archived-{number}", jobs // _FILLERS))


async def _lifecycles(session: Session, queue: str, jobs: int) -> None:
    enqueue = EnqueueRequest(queue=queue, create_if_missing=True)
    for _ in range(_JOBS):
        enqueue.jobs.add(payload=b"x" * PAYLOAD_BYTES)
    dequeue = DequeueRequest(queues=[queue], jobs_max=_JOBS, owner_lease=True)
    owner, done = session.new_owner(), 0
    answered: asyncio.Queue[SessionResult] = asyncio.Queue()
    while done < jobs:
        session.submit_enqueue(owner, enqueue, answered.put_nowait)
        session.submit_dequeue(owner, dequeue, answered.put_nowait)
        results = [_checked(await answered.get()) for _ in range(2)]
        taken = [job for result in results for job in result.dequeue.jobs]
        for job in taken:
            request = AcknowledgeRequest(id=job.id, token=job.lease.token)
            session.submit_acknowledge(owner, request, answered.put_nowait)
        for _ in taken:
            _checked(await answered.get())
        done += len(taken)


def _checked(result: SessionResult) -> SessionResult:
    if result.HasField("failure"):
        raise UnexpectedAnswerError(str(result).encode())
    return result
