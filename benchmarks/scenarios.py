"""What is measured, in which order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.beanstalkd import FSYNC_ARGUMENTS, beanstalkd
from benchmarks.load import Load, ReconnectingLoad, tongues_of
from benchmarks.measurement import Measurement
from benchmarks.pipelined_load import PipelinedLoad
from benchmarks.processes import CpuMeter
from benchmarks.redis_load import RedisLoad
from benchmarks.resp import RespConnection
from benchmarks.session_load import SessionLoad, fill
from benchmarks.stack import Stack, redis_server
from benchmarks.tongues import PAYLOAD_BYTES, Beanstalk, JobCentre, Text

REDIS = "Redis functions"
SESSION = "Session stream"
JOB_CENTRE = "Job Centre"
TEXT_QUEUE = "text queue"
BEANSTALKD_ALWAYS = "beanstalkd -f 0"
PIPELINED = "Job Centre, 1 pipelining"
PENDING = "Job Centre, {jobs:,} pending"

PENDING_LOOPS = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and on what to measure."""

    directory: Path
    warm_up_seconds: float
    seconds: float
    loops: tuple[int, ...]
    queues: int
    wide_queues: int
    pending_jobs: tuple[int, ...]
    rounds: int = 1
    only: tuple[str, ...] = ()

    def wants(self, scenario: str) -> bool:
        return not self.only or any(word.lower() in scenario.lower() for word in self.only)


@dataclass(slots=True)
class Results:
    """What was measured so far; `announce` is told what is about to be."""

    announce: Callable[[str], None]
    measurements: list[Measurement] = field(default_factory=list)
    pending_job_bytes: dict[int, float] = field(default_factory=dict)
    """Redis memory for each pending job beyond its payload, by the number of jobs."""

    def medians(self) -> list[Measurement]:
        """Of the rounds of each scenario the one in the middle by throughput, in the order measured."""
        rounds: dict[tuple[str, int, int], list[Measurement]] = {}
        for m in self.measurements:
            rounds.setdefault((m.scenario, m.loops, m.queues), []).append(m)
        return [sorted(found, key=lambda m: m.operations_per_s)[len(found) // 2] for found in rounds.values()]

    def find(self, scenario: str, loops: int, queues: int) -> Measurement | None:
        """The median round of a scenario."""
        return next((m for m in self.medians() if (m.scenario, m.loops, m.queues) == (scenario, loops, queues)), None)


class Run:
    """One run of a plan against one stack."""

    def __init__(self, plan: Plan, stack: Stack | None, results: Results) -> None:
        self._plan = plan
        self._stack = stack
        self._results = results
        self._prefixes = (f"bench-{number}" for number in range(1_000_000))

    def everything(self) -> None:
        """Side by side: for each number of loops every contender, so that they meet the same disk and neighbours."""
        for _ in range(self._plan.rounds):
            self._one_round()
        if self._stack:
            self._pending(self._stack)

    def _one_round(self) -> None:
        for loops in self._plan.loops:
            self._contenders(loops, self._plan.queues)
        if self._plan.wide_queues != self._plan.queues:
            self._contenders(max(self._plan.loops), self._plan.wide_queues)
        if self._stack:
            self._pipelined(self._stack)

    def _contenders(self, loops: int, queues: int) -> None:
        queues = min(loops, queues)
        self._redis(loops, queues)
        if self._stack:
            self._session(self._stack, loops, queues)
            self._job_centre(self._stack, loops, queues)
            self._text_queue(self._stack, loops, queues)
        for variant in FSYNC_ARGUMENTS:
            self._beanstalkd(variant, loops, queues)

    def _redis(self, loops: int, queues: int) -> None:
        if self._begins(REDIS, loops, queues):
            with redis_server(self._plan.directory) as (path, pid):
                load = RedisLoad(path, next(self._prefixes), loops, queues)
                self._take_down(REDIS, loops, queues, load, CpuMeter({"redis": pid}))

    def _session(self, stack: Stack, loops: int, queues: int) -> None:
        if self._begins(SESSION, loops, queues):
            load = SessionLoad(stack.core_target, next(self._prefixes), loops, queues)
            self._take_down(SESSION, loops, queues, load, CpuMeter(stack.processes("core", "redis")))

    def _job_centre(self, stack: Stack, loops: int, queues: int) -> None:
        if self._begins(JOB_CENTRE, loops, queues):
            load = Load(stack.address("job-centre"), tongues_of(JobCentre, next(self._prefixes), loops, queues))
            meter = CpuMeter(stack.processes("job-centre", "core", "redis"))
            self._take_down(JOB_CENTRE, loops, queues, load, meter)

    def _text_queue(self, stack: Stack, loops: int, queues: int) -> None:
        if self._begins(TEXT_QUEUE, loops, queues):
            load = ReconnectingLoad(stack.address("text-queue"), tongues_of(Text, next(self._prefixes), loops, queues))
            meter = CpuMeter(stack.processes("text-queue", "core", "redis"))
            self._take_down(TEXT_QUEUE, loops, queues, load, meter)

    def _beanstalkd(self, variant: str, loops: int, queues: int) -> None:
        if shutil.which("beanstalkd") and self._begins(variant, loops, queues):
            with beanstalkd(variant, self._plan.directory) as (address, child):
                load = Load(address, tongues_of(Beanstalk, next(self._prefixes), loops, queues))
                self._take_down(variant, loops, queues, load, CpuMeter({"beanstalkd": child.pid}))

    def _pipelined(self, stack: Stack) -> None:
        if self._begins(PIPELINED, 1, 1):
            load = PipelinedLoad(stack.address("job-centre"), next(self._prefixes))
            meter = CpuMeter(stack.processes("job-centre", "core", "redis"))
            self._take_down(PIPELINED, 1, 1, load, meter)

    def _pending(self, stack: Stack) -> None:
        for jobs in self._plan.pending_jobs:
            scenario = PENDING.format(jobs=jobs)
            if not self._begins(scenario, PENDING_LOOPS, 1):
                continue
            prefix = next(self._prefixes)
            self._results.pending_job_bytes[jobs] = _filled(stack, f"{prefix}-0", jobs)
            stack.wait_until_quiet()
            load = Load(stack.address("job-centre"), tongues_of(JobCentre, prefix, PENDING_LOOPS, 1))
            meter = CpuMeter(stack.processes("job-centre", "core", "redis"))
            self._take_down(scenario, PENDING_LOOPS, 1, load, meter)

    def _begins(self, scenario: str, loops: int, queues: int) -> bool:
        if not self._plan.wants(scenario):
            return False
        self._results.announce(f"{scenario}, {loops} loops, {queues} queues")
        if self._stack:
            self._stack.wait_until_quiet()
        return True

    def _take_down(self, scenario: str, loops: int, queues: int, load: AnyLoad, meter: CpuMeter) -> None:
        samples = load.run(self._plan.warm_up_seconds, self._plan.seconds, meter)
        self._results.measurements.append(Measurement.of(scenario, loops, queues, samples, meter.others_seconds))


AnyLoad = Load | RedisLoad | SessionLoad | PipelinedLoad


def _filled(stack: Stack, queue: str, jobs: int) -> float:
    """Fill `queue`; returns the bytes of Redis memory that each job takes beyond its payload."""
    with RespConnection(stack.redis_socket) as redis:
        before = int(redis.info("memory")["used_memory"])
        fill(stack.core_target, queue, jobs)
        after = int(redis.info("memory")["used_memory"])
    return (after - before) / jobs - PAYLOAD_BYTES
