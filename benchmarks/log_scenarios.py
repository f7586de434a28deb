"""What writing the event log costs, what reading it costs those who write, and how fast it comes to Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import grpc
from quintet.v1.admin_service_pb2 import NamespaceSettings, UpdateNamespaceRequest
from quintet.v1.admin_service_pb2_grpc import AdminServiceStub

from benchmarks.parquet_load import ParquetLoad, archiving, fill_log
from benchmarks.plan import Bench, scenario
from benchmarks.processes import Child, CpuMeter
from benchmarks.session_load import SessionLoad
from benchmarks.stack import Stack

EVENTS_WRITTEN = "spark: Session, events written"
EVENTS_OFF = "spark: Session, job events off"
NOT_READ = "spark: Session, nobody reads"
FOLLOWED = "spark: Session, followed live"
BACKLOG_READ = "spark: Session, backlog read"
ARCHIVED = "spark: Session, archived by Spark"
PARQUET = "spark: log to Parquet, local[2]"
LOOPS = 500
TURNS = 3
BACKLOG_EVENTS = 6_000_000
_NAMESPACE = "measured"


class LogScenarios:
    """Contenders take turns, so that they meet the same disk and neighbours; the medians count."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self, stack: Stack) -> None:
        """All of them."""
        for _ in range(TURNS):
            self._lifecycles(stack, EVENTS_WRITTEN, lambda: events_off(stack.core_target, False))
            self._lifecycles(stack, EVENTS_OFF, lambda: events_off(stack.core_target, True))
        for _ in range(TURNS):
            self._lifecycles(stack, NOT_READ, nullcontext)
            self._lifecycles(stack, FOLLOWED, lambda: self._reader(stack, "live"))
            self._lifecycles(stack, BACKLOG_READ, lambda: self._reader(stack, "backlog"))
        for _ in range(TURNS):
            self._lifecycles(stack, ARCHIVED, lambda: archiving(stack, self._bench.plan.directory))
        self._parquet(stack)

    @scenario
    def _lifecycles(self, stack: Stack, name: str, beside: Callable[[], AbstractContextManager[object]]) -> None:
        if self._bench.begins(name, LOOPS):
            with beside():
                load = SessionLoad(stack.core_target, next(self._bench.names), LOOPS, 1, _NAMESPACE)
                self._bench.take_down(name, LOOPS, load, CpuMeter(stack.processes("core", "redis")))

    @scenario
    def _parquet(self, stack: Stack) -> None:
        if self._bench.begins(PARQUET, 1):
            with fill_log(stack.core_target, BACKLOG_EVENTS) as events:
                load = ParquetLoad(stack, self._bench.plan.directory, events)
                self._bench.take_down(PARQUET, 1, load, load.meter)

    @contextmanager
    def _reader(self, stack: Stack, way: str) -> Iterator[None]:
        log = self._bench.plan.directory / f"{next(self._bench.names)}-{way}.log"
        reader = Child([sys.executable, "-m", "benchmarks.log_reader", stack.core_target, way], log)
        try:
            yield
            reader.fail_when_gone()
        finally:
            reader.stop()
        figures = json.loads(log.read_text().splitlines()[-1])
        self._bench.results.announce(
            f"  the reader: {figures['events'] / figures['seconds']:,.0f} events/s, "
            f"at most {figures['events_behind_max']:,} left lying after a reading"
        )


@contextmanager
def events_off(target: str, off: bool) -> Iterator[None]:
    """Whether changes of jobs are left out of the log, for the namespace that is measured."""
    with grpc.insecure_channel(target) as channel:
        service = AdminServiceStub(channel)
        settings = NamespaceSettings(job_events_off=off)
        service.UpdateNamespace(UpdateNamespaceRequest(namespace=_NAMESPACE, settings=settings))
        try:
            yield
        finally:
            service.UpdateNamespace(UpdateNamespaceRequest(namespace=_NAMESPACE, settings=NamespaceSettings()))
