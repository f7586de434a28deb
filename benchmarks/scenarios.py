"""What is measured of queues, in which order."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from benchmarks.beanstalkd import FSYNC_ARGUMENTS, beanstalkd
from benchmarks.etzel_tongues import EtzelLines, EtzelWebSocket
from benchmarks.load import Load, ReconnectingLoad, tongues_of
from benchmarks.pipelined_load import PipelinedLoad
from benchmarks.plan import Bench, scenario
from benchmarks.processes import CpuMeter
from benchmarks.redis_load import RedisLoad
from benchmarks.resp import RespConnection
from benchmarks.session_load import SessionLoad, fill
from benchmarks.stack import Stack, redis_server
from benchmarks.taskflux_tongue import TaskFlux
from benchmarks.tongues import PAYLOAD_BYTES, Beanstalk, JobCentre, Text, Tongue

REDIS = "Redis functions"
SESSION = "Session stream"
JOB_CENTRE = "Job Centre"
TASKFLUX = "TaskFlux"
ETZEL_LINES = "Etzel, TCP lines"
ETZEL_WEBSOCKET = "Etzel, WebSocket"
TEXT_QUEUE = "text queue"
BEANSTALKD_ALWAYS = "beanstalkd -f 0"
PIPELINED = "Job Centre, 1 pipelining"
PENDING = "Job Centre, {jobs:,} pending"

PENDING_LOOPS = 50

# Scenario, adapter, its listener, and what is said there on connections that stay.
_DOORS: tuple[tuple[str, str, str, Callable[[str], Tongue]], ...] = (
    (JOB_CENTRE, "job-centre", "job-centre", JobCentre),
    (TASKFLUX, "taskflux", "taskflux", TaskFlux),
    (ETZEL_LINES, "etzel", "etzel-lines", EtzelLines),
    (ETZEL_WEBSOCKET, "etzel", "etzel", EtzelWebSocket),
)


class QueueScenarios:
    """Lifecycles of jobs through every door, and through beanstalkd."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._plan = bench.plan

    def one_round(self) -> None:
        """Side by side: for each number of loops every contender, so that they meet the same disk and neighbours."""
        for loops in self._plan.loops:
            self._contenders(loops, self._plan.queues)
        if self._plan.wide_queues != self._plan.queues:
            self._contenders(max(self._plan.loops), self._plan.wide_queues)
        if self._bench.stack:
            self._pipelined(self._bench.stack)

    def _contenders(self, loops: int, queues: int) -> None:
        queues = min(loops, queues)
        self._redis(loops, queues)
        if stack := self._bench.stack:
            self._session(stack, loops, queues)
            for door in _DOORS:
                self._door(stack, *door, loops, queues)
            self._text_queue(stack, loops, queues)
        for variant in FSYNC_ARGUMENTS:
            self._beanstalkd(variant, loops, queues)

    @scenario
    def _redis(self, loops: int, queues: int) -> None:
        if self._bench.begins(REDIS, loops, queues):
            with redis_server(self._plan.directory) as (path, pid):
                load = RedisLoad(path, next(self._bench.names), loops, queues)
                self._bench.take_down(REDIS, loops, load, CpuMeter({"redis": pid}), queues)

    @scenario
    def _session(self, stack: Stack, loops: int, queues: int) -> None:
        if self._bench.begins(SESSION, loops, queues):
            load = SessionLoad(stack.core_target, next(self._bench.names), loops, queues)
            self._bench.take_down(SESSION, loops, load, CpuMeter(stack.processes("core", "redis")), queues)

    @scenario
    def _door(
        self,
        stack: Stack,
        name: str,
        part: str,
        listener: str,
        tongue: Callable[[str], Tongue],
        loops: int,
        queues: int,
    ) -> None:
        if self._bench.begins(name, loops, queues):
            tongues = tongues_of(tongue, next(self._bench.names), loops, queues)
            load = Load(stack.address(part, listener), tongues)
            self._bench.take_down(name, loops, load, CpuMeter(stack.processes(part, "core", "redis")), queues)

    @scenario
    def _text_queue(self, stack: Stack, loops: int, queues: int) -> None:
        if self._bench.begins(TEXT_QUEUE, loops, queues):
            tongues = tongues_of(Text, next(self._bench.names), loops, queues)
            load = ReconnectingLoad(stack.address("text-queue"), tongues)
            meter = CpuMeter(stack.processes("text-queue", "core", "redis"))
            self._bench.take_down(TEXT_QUEUE, loops, load, meter, queues)

    @scenario
    def _beanstalkd(self, variant: str, loops: int, queues: int) -> None:
        if shutil.which("beanstalkd") and self._bench.begins(variant, loops, queues):
            with beanstalkd(variant, self._plan.directory) as (address, child):
                load = Load(address, tongues_of(Beanstalk, next(self._bench.names), loops, queues))
                self._bench.take_down(variant, loops, load, CpuMeter({"beanstalkd": child.pid}), queues)

    @scenario
    def _pipelined(self, stack: Stack) -> None:
        if self._bench.begins(PIPELINED, 1):
            load = PipelinedLoad(stack.address("job-centre"), next(self._bench.names))
            self._bench.take_down(PIPELINED, 1, load, CpuMeter(stack.processes("job-centre", "core", "redis")))

    def pending(self, stack: Stack) -> None:
        """What it costs to work at the head of a long queue."""
        for jobs in self._plan.pending_jobs:
            self._among(stack, jobs)

    @scenario
    def _among(self, stack: Stack, jobs: int) -> None:
        if self._bench.begins(PENDING.format(jobs=jobs), PENDING_LOOPS):
            prefix = next(self._bench.names)
            self._bench.results.pending_job_bytes[jobs] = _filled(stack, f"{prefix}-0", jobs)
            stack.wait_until_quiet()
            load = Load(stack.address("job-centre"), tongues_of(JobCentre, prefix, PENDING_LOOPS, 1))
            meter = CpuMeter(stack.processes("job-centre", "core", "redis"))
            self._bench.take_down(PENDING.format(jobs=jobs), PENDING_LOOPS, load, meter)


def _filled(stack: Stack, queue: str, jobs: int) -> float:
    """Fill `queue`; returns the bytes of Redis memory that each job takes beyond its payload."""
    with RespConnection(stack.redis_socket) as redis:
        before = int(redis.info("memory")["used_memory"])
        fill(stack.core_target, queue, jobs)
        after = int(redis.info("memory")["used_memory"])
    return (after - before) / jobs - PAYLOAD_BYTES
