"""How long after its durable reply an update reaches gRPC watchers of its table, at a given rate of updates."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import grpc
import uvloop
from quintet.v1.session_service_pb2 import SessionResult
from quintet.v1.table_service_pb2 import (
    CreateTableRequest,
    PutRowRequest,
    WatchRowsRequest,
    WatchRowsResponse,
)
from quintet.v1.table_service_pb2_grpc import TableServiceStub
from quintet_client import Client, RowPut
from quintet_client.session import Session

from benchmarks.key_value_tongues import KEYS, key
from benchmarks.load import STALL_SECONDS
from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.tongues import UnexpectedAnswerError

_VALUE = b"x" * 50
_TICK_SECONDS = 0.002
_ROWS_PER_WRITE = 100
# A connection for each watcher, as if each were a process of its own.
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class WatchLoad:
    """`watchers` streams of one table that is updated `updates_per_s` times a second.

    A sample is a response at a watcher: the latency of the newest change in it. Each watcher must be told each change
    once.
    """

    def __init__(self, target: str, table: str, watchers: int, updates_per_s: float) -> None:
        self._target = target
        self._table = table
        self._watchers = watchers
        self._updates_per_s = updates_per_s
        self._replied_at: dict[int, float] = {}
        self._latencies: list[float] = []
        self._sent = 0
        self._replied = 0
        self._told = [0] * watchers

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run; what happens in the first `warm_up_seconds` is not counted."""
        gc.collect()
        gc.freeze()
        try:
            return uvloop.run(self._run(warm_up_seconds, seconds, meter))
        finally:
            gc.unfreeze()

    async def _run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        async with await Session.connect(self._target, client="bench") as session:
            await self._create(session)
            started = [asyncio.Event() for _ in range(self._watchers)]
            watching = [asyncio.ensure_future(self._watch(index, event)) for index, event in enumerate(started)]
            try:
                await asyncio.wait_for(asyncio.gather(*(event.wait() for event in started)), STALL_SECONDS)
                await self._update_for(session, warm_up_seconds)
                self._latencies = []
                replied = self._replied
                samples = Samples()
                meter.start()
                began = time.perf_counter()
                await self._update_for(session, seconds)
                samples.seconds = time.perf_counter() - began
                samples.cpu_seconds = meter.stop()
                samples.operation_latencies = self._latencies
                samples.operations = self._replied - replied
                await self._until_told(watching)
                return samples
            finally:
                for each in watching:
                    each.cancel()
                await asyncio.gather(*watching, return_exceptions=True)

    async def _create(self, session: Session) -> None:
        made: asyncio.Future[SessionResult] = asyncio.get_running_loop().create_future()
        session.submit_create_table(session.new_owner(), CreateTableRequest(table=self._table), made.set_result)
        if not (result := await made).HasField("create_table"):
            raise UnexpectedAnswerError(result)

    async def _watch(self, index: int, started: asyncio.Event) -> None:
        told = self._told
        async with grpc.aio.insecure_channel(self._target, options=_OWN_CONNECTION) as channel:
            stub: Any = TableServiceStub(channel)
            response: WatchRowsResponse
            async for response in stub.WatchRows(WatchRowsRequest(tables=[self._table])):
                started.set()
                if changes := response.changes:
                    told[index] += len(changes)
                    # A change that is told before its reply took no time.
                    replied_at = self._replied_at.get(changes[-1].offset)
                    self._latencies.append(time.perf_counter() - replied_at if replied_at else 0.0)

    async def _update_for(self, session: Session, seconds: float) -> None:
        owner = session.new_owner()
        started = now = time.perf_counter()
        before = self._sent
        while now < started + seconds:
            for _ in range(before + int((now - started) * self._updates_per_s) - self._sent):
                session.submit_put_row(
                    owner,
                    PutRowRequest(table=self._table, key=key(self._sent % KEYS), value=_VALUE),
                    self._on_put,
                )
                self._sent += 1
            await asyncio.sleep(_TICK_SECONDS)
            now = time.perf_counter()

    def _on_put(self, result: SessionResult) -> None:
        # A refused one is never told, and so found at the end.
        self._replied += 1
        self._replied_at[result.put_row.version] = time.perf_counter()

    async def _until_told(self, watching: list[asyncio.Task[None]]) -> None:
        deadline = time.perf_counter() + STALL_SECONDS
        while self._replied < self._sent or min(self._told) < self._sent:
            if ended := next((each for each in watching if each.done()), None):
                ended.result()
            if time.perf_counter() > deadline:
                raise TimeoutError(f"of {self._sent} changes {self._replied} were answered, {min(self._told)} told")
            await asyncio.sleep(0.01)
        if max(self._told) > self._sent:
            raise UnexpectedAnswerError(f"{max(self._told)} changes told of {self._sent}")


def fill_rows(target: str, table: str, value: bytes) -> None:
    """Make `table` and put KEYS rows of `value` into it."""
    uvloop.run(_fill_rows(target, table, value))


async def _fill_rows(target: str, table: str, value: bytes) -> None:
    async with Client(target, name="bench") as client:
        await client.create_table(table)
        for start in range(0, KEYS, _ROWS_PER_WRITE):
            numbers = range(start, start + _ROWS_PER_WRITE)
            await client.write_rows(table, [RowPut(key(number), value) for number in numbers])
