"""Snapshots by real cores: told by the API and to Prometheus, each once a slot however many cores there are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from quintet.v1 import metrics_service_pb2 as pb
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import table_service_pb2 as t
from quintet.v1.job_pb2 import NewJob
from quintet_client import Client, JobNotFoundError, Snapshots
from quintet_core.domain.snapshot import QUEUE_TOTALS

from tests.support.api import Api, open_api, refused
from tests.support.cli import Cli
from tests.support.core import running_core
from tests.support.cores import Cores
from tests.support.redis_server import RedisConnection
from tests.support.snapshot_record import PROCESS, QUEUE, Record, read_metrics
from tests.support.stack import CorePart, RedisPart, until

SLOT_MS = 200
PARTITIONS = 16


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    with running_core(QUINTET_SNAPSHOT_INTERVAL_MS=str(SLOT_MS)) as core:
        yield core


async def streamed(api: Api, wanted: Callable[[pb.StreamResponse], bool], namespace: str = "") -> pb.StreamResponse:
    """The first response of a stream that is wanted."""
    call = api.metrics.Stream(pb.StreamRequest(namespace=namespace))
    try:
        while isinstance(response := await call.read(), pb.StreamResponse):
            if wanted(response):
                return response
    finally:
        call.cancel()
    raise AssertionError("the stream ended")


def of_queue(response: Any, queue: str) -> pb.QueueSnapshot | None:
    return next((each for each in response.queues if each.queue == queue), None)


def metrics_of(redis: RedisPart) -> list[list[Record]]:
    """The metrics log of every partition."""
    with RedisConnection(str(redis.path)) as connection:
        return [read_metrics(connection, partition) for partition in range(PARTITIONS)]


def written(redis: RedisPart, wanted: Callable[[Record], bool]) -> int:
    return sum(1 for records in metrics_of(redis) for record in records if wanted(record))


class TestService:
    """Snapshot and Stream."""

    async def test_a_stream_tells_of_a_queue_what_a_snapshot_tells_then(self, api: Api, queue: str) -> None:
        await api.put(queue, b"a", b"b", b"c")
        await api.put(queue, b"d", delay_ms=60_000)
        await api.take(queue, lease_ms=60_000)

        def tells_the_last(response: pb.StreamResponse) -> bool:
            told = of_queue(response, queue)
            return told is not None and told.dequeued_total == 1

        told = of_queue(await streamed(api, tells_the_last), queue)
        assert told is not None
        assert (told.namespace, told.ready, told.delayed, told.leased, told.dead) == ("default", 2, 1, 1, 0)
        assert (told.enqueued_total, told.dequeued_total, told.acknowledged_total) == (4, 1, 0)
        again = of_queue(await api.metrics.Snapshot(pb.SnapshotRequest()), queue)
        assert again is not None
        assert again.at_ms >= told.at_ms
        assert (again.ready, again.enqueued_total) == (2, 4)

    async def test_rates_are_growth_over_the_interval(self, api: Api, queue: str) -> None:
        await api.put(queue)
        await streamed(api, lambda each: of_queue(each, queue) is not None)
        await api.put(queue, *[b"x"] * 99)

        def has_grown(response: pb.StreamResponse) -> bool:
            told = of_queue(response, queue)
            return told is not None and told.enqueued_total == 100 and told.enqueued_rate > 0

        told = of_queue(await streamed(api, has_grown), queue)
        assert told is not None
        assert told.enqueued_rate == pytest.approx(99 / (told.interval_ms / 1000))

    async def test_a_table_tells_its_rows(self, api: Api, queue: str) -> None:
        for key in (b"a", b"b", b"b"):
            await api.tables.PutRow(t.PutRowRequest(table=queue, key=key, value=b"v", create_if_missing=True))
        await api.tables.DeleteRow(t.DeleteRowRequest(table=queue, key=b"a"))

        def tells(response: pb.StreamResponse) -> bool:
            return any(each.table == queue and each.deleted_total for each in response.tables)

        (told,) = [each for each in (await streamed(api, tells)).tables if each.table == queue]
        assert (told.namespace, told.rows, told.put_total, told.deleted_total) == ("default", 1, 3, 1)

    async def test_a_process_tells_its_series_as_they_are_scraped(self, api: Api, core: CorePart) -> None:
        replica = core.log.read_text().split('"replica":"')[1].split('"')[0]
        told = (await streamed(api, lambda each: bool(each.processes))).processes[0]
        assert (told.process, told.replica) == ("core", replica)
        assert told.values["quintet_core_ready"] == 1
        assert 0 not in told.values.values()
        assert set(told.values) <= set(core.metrics())

    async def test_a_namespace_is_told_its_own(self, api: Api, queue: str) -> None:
        await api.queues.Enqueue(
            q.EnqueueRequest(namespace="mine", queue=queue, jobs=[NewJob(payload=b"x")], create_if_missing=True)
        )
        await api.put(f"{queue}-other")
        told = await streamed(api, lambda each: of_queue(each, queue) is not None, "mine")
        assert {each.namespace for each in told.queues} == {"mine"}
        assert not told.processes
        told = await api.metrics.Snapshot(pb.SnapshotRequest(namespace="mine"))
        assert {each.namespace for each in told.queues} == {"mine"}
        assert not told.processes
        assert not (await api.metrics.Snapshot(pb.SnapshotRequest(namespace="nobody's"))).ByteSize()

    async def test_the_client_tells_the_same(self, core: CorePart, queue: str) -> None:
        async with Client(core.target) as client:
            await client.enqueue_many(queue, [b"1", b"2"])
            async for snapshots in client.stream_snapshots():
                assert isinstance(snapshots, Snapshots)
                if any(each.queue == queue for each in snapshots.queues):
                    break
            assert not snapshots.processes
            newest = await client.snapshot(all_namespaces=True)
        (told,) = [each for each in newest.queues if each.queue == queue]
        assert (told.ready, told.held, told.enqueued_total) == (2, 2, 2)
        assert newest.processes[0].values["quintet_core_ready"] == 1

    def test_people_get_a_table_and_programs_records(self, core: CorePart, queue: str) -> None:
        cli = Cli(core.target)
        cli.text("put", queue, "[red]hello")
        until(lambda: queue in cli.text("metrics"), "the queue in `quintet metrics`")
        text = cli.text("metrics", "--all-namespaces")
        assert re.search(rf"default/{queue} +│ +1 +│", text), text
        records = cli.records("metrics", "--all-namespaces")
        assert {"queue", "process"} <= {each["kind"] for each in records}
        (told,) = [each for each in records if each.get("queue") == queue]
        assert (told["ready"], told["enqueued_total"]) == (1, 1)
        cli.text("put", f"{queue}-2", "hello")
        until(lambda: "more (--limit)" in cli.text("metrics", "--limit", "1"), "more than one queue")


class TestPrometheus:
    """The series of queues, as every core serves them."""

    async def test_every_series_of_a_queue_and_a_table(self, api: Api, core: CorePart, queue: str) -> None:
        await api.put(queue, b"a", b"b")
        await api.take(queue, lease_ms=60_000)
        await api.tables.PutRow(t.PutRowRequest(table=f"{queue}-t", key=b"k", value=b"", create_if_missing=True))
        name = f'namespace="default",queue="{queue}"'
        jobs = f'quintet_queue_jobs{{{name},state="leased"}}'
        until(lambda: core.metrics().get(jobs) == 1, jobs)
        rows = f'quintet_table_rows{{namespace="default",table="{queue}-t"}}'
        until(lambda: core.metrics().get(rows) == 1, rows)
        found = core.metrics()
        assert found[f'quintet_queue_jobs{{{name},state="ready"}}'] == 1
        assert found[f'quintet_queue_jobs{{{name},state="delayed"}}'] == 0
        assert found[f'quintet_queue_jobs{{{name},state="dead"}}'] == 0
        assert found[f"quintet_queue_oldest_ready_age_seconds{{{name}}}"] > 0
        for kind in QUEUE_TOTALS:
            series = f'quintet_queue_events_total{{kind="{kind}",{name}}}'
            assert found[series] == {"job_enqueued": 2, "job_dequeued": 1}.get(kind, 0)
        assert found[f'quintet_table_events_total{{kind="row_put",namespace="default",table="{queue}-t"}}'] == 1
        assert found['quintet_core_events_total{kind="job_enqueued"}'] >= 2
        assert found['quintet_core_events_total{kind="row_put"}'] >= 1
        assert found["quintet_core_unlisted_queues"] == 0
        assert found["quintet_core_aof_last_write_ok"] == 1

    async def test_operations_on_sessions_are_timed(self, core: CorePart, queue: str) -> None:
        async with Client(core.target) as client:
            before = core.metrics()
            await client.enqueue(queue, b"x")
            await client.enqueue(queue, b"y")
            with pytest.raises(JobNotFoundError):
                await client.get_job(1 << 40)
            after = core.metrics()

        def grown(series: str) -> float:
            return after[series] - before[series]

        assert grown('quintet_core_session_operation_seconds_count{verb="enqueue"}') == 2
        assert grown('quintet_core_operations_total{outcome="ok",verb="enqueue"}') == 2
        assert grown('quintet_core_session_operation_seconds_sum{verb="enqueue"}') > 0
        assert grown('quintet_core_session_operation_seconds_count{verb="get_job"}') == 1
        assert grown('quintet_core_operations_total{outcome="job_not_found",verb="get_job"}') == 1
        assert grown('quintet_core_operations_total{outcome="ok",verb="get_job"}') == 0


async def test_series_are_bounded_to_the_fullest_and_long_names_are_cut_to_different_ones() -> None:
    settings = {"QUINTET_SNAPSHOT_INTERVAL_MS": str(SLOT_MS), "QUINTET_METRICS_SERIES_QUEUES_MAX": "4"}
    with running_core(**settings) as core:
        async with open_api(core.target) as api:
            long = "n" * 1000
            for number in range(20):
                await api.put(f"queue-{number}")
            await api.put(f"{long}-1", *[b"x"] * 50)
            await api.put(f"{long}-2", *[b"x"] * 60)
            until(lambda: core.metrics()["quintet_core_unlisted_queues"] == 18, "22 queues, 4 of them shown")
            shown = {series for series in core.metrics() if re.match(r"quintet_queue_jobs.*ready", series)}
            assert len(shown) == 4
            assert sum("nnnn" in series for series in shown) == 2
            assert max(map(len, shown)) < 250


async def test_without_an_interval_there_is_nothing() -> None:
    with running_core(QUINTET_SNAPSHOT_INTERVAL_MS="0", QUINTET_SESSION_TTL_MS="500") as core:
        async with open_api(core.target) as api:
            await api.put("q")
            until(lambda: core.metrics()['quintet_core_log_records{log="events"}'] > 0, "a round of the duties")
            assert not (await api.metrics.Snapshot(pb.SnapshotRequest())).ByteSize()
            assert not [series for series in core.metrics() if series.startswith("quintet_queue")]
            with RedisConnection(str(core.redis.path)) as connection:
                assert not [key for key in connection.command("KEYS", "*") if b":metrics" in key or b":snap" in key]


async def test_streams_are_bounded_and_end_with_their_core() -> None:
    with running_core(QUINTET_METRICS_STREAMS_MAX="1") as core:
        async with open_api(core.target) as api:
            call = api.metrics.Stream(pb.StreamRequest())
            assert not (await call.read()).ByteSize()
            second = api.metrics.Stream(pb.StreamRequest())
            told = await refused(second.read())
            assert (told.code, told.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_IN_FLIGHT")
            core.terminate()

            async def to_the_end() -> None:
                while isinstance(await call.read(), pb.StreamResponse):
                    pass

            assert (await refused(to_the_end())).reason == "DRAINING"


async def test_damage_to_one_queue_leaves_the_others_told() -> None:
    # Of a queue that was told before, nothing is counted again until it changes; so it is damaged before it is told.
    with running_core(QUINTET_SNAPSHOT_INTERVAL_MS="0") as core:
        async with open_api(core.target) as api:
            for number in range(20):
                await api.put(f"queue-{number}")
        core.kill9()
        with RedisConnection(str(core.redis.path)) as connection:
            (tag, number) = next(
                (key.split(b":")[0], value)
                for key in connection.command("KEYS", "*:names")
                for value in connection.command("HVALS", key)
            )
            ready = tag + b":q" + number + b":ready"
            connection.commands([("DEL", ready), ("SET", ready, "x")])
        core.environment = {"QUINTET_SNAPSHOT_INTERVAL_MS": str(SLOT_MS)}
        core.start()

        def series() -> int:
            return sum(1 for each in core.metrics() if re.match(r"quintet_queue_jobs.*ready", each))

        until(lambda: '"event":"snapshots_damaged"' in core.log.read_text(), "the damage is said")
        until(lambda: series() >= 19, "the others are told")
        assert core.metrics()['quintet_core_duty_failures_total{duty="snapshot"}'] == 0


class World(Cores):
    """One Redis, and cores on it."""

    def started(self) -> CorePart:
        """One more core, ready."""
        core = self.core()
        core.start()
        return core


@pytest.fixture
def world() -> Iterator[World]:
    world = World(QUINTET_SNAPSHOT_INTERVAL_MS=str(SLOT_MS))
    try:
        world.redis.start()
        yield world
    finally:
        world.close()


def await_more(redis: RedisPart) -> None:
    """Return when snapshots of queues were written from now on."""
    before = written(redis, lambda each: each.kind == QUEUE)
    until(lambda: written(redis, lambda each: each.kind == QUEUE) > before, "snapshots go on")


def told_twice(redis: RedisPart) -> list[tuple[str, int]]:
    """Queues and slots in which they were told more than once."""
    slots: Counter[tuple[str, int]] = Counter()
    for records in metrics_of(redis):
        slots.update((each.name, each.at_ms // SLOT_MS) for each in records if each.kind == QUEUE)
    return [slot for slot, times in slots.items() if times > 1]


class TestCores:
    """Several on one Redis."""

    async def test_each_queue_is_told_once_a_slot_and_each_core_once_by_itself(self, world: World) -> None:
        one, other = world.started(), world.started()
        async with open_api(one.target) as api:
            for number in range(30):
                await api.put(f"queue-{number}")
        until(lambda: written(world.redis, lambda each: each.kind == QUEUE) > 30 * 10, "ten slots of all queues")
        assert told_twice(world.redis) == []
        replicas: dict[str, list[int]] = defaultdict(list)
        for each in metrics_of(world.redis)[0]:
            if each.kind == PROCESS:
                replicas[each.detail["replica"]].append(each.at_ms // SLOT_MS)
        assert len(replicas) == 2
        assert all(len(slots) == len(set(slots)) for slots in replicas.values())

        def durable(core: CorePart) -> dict[str, float]:
            series = core.metrics()
            return {name: value for name, value in series.items() if re.match("quintet_(queue|table)_.*_total", name)}

        until(lambda: len(durable(other)) == 30 * len(QUEUE_TOTALS), "all queues are known to the other")
        assert durable(one) == durable(other)

    async def test_cores_that_are_killed_leave_no_slot_doubled_and_no_queue_untold(self, world: World) -> None:
        first = world.started()
        world.started()
        async with open_api(first.target) as api:
            await api.put("queue-0")
            for number in range(1, 400):
                await api.put(f"queue-{number}")
        for turn in range(6):
            await_more(world.redis)
            world.cores[turn % 2].restart()
        last = max(records[-1].at_ms for records in metrics_of(world.redis) if records)
        until(
            lambda: all(
                any(each.at_ms > last for each in records if each.kind == QUEUE) for records in metrics_of(world.redis)
            ),
            "a slot in every partition",
        )
        assert told_twice(world.redis) == []
        told = {each.name for records in metrics_of(world.redis) for each in records if each.at_ms > last - 2000}
        assert told >= {f"queue-{number}" for number in range(400)}

    async def test_a_core_that_comes_later_knows_what_is_idle(self, world: World) -> None:
        first = world.started()
        async with open_api(first.target) as api:
            await api.put("idle")
            job = await api.take("idle", lease_ms=60_000)
            await api.queues.Delete(q.DeleteRequest(id=job.id))
            at_rest = 'quintet_queue_jobs{namespace="default",queue="idle",state="leased"}'
            until(lambda: first.metrics().get(at_rest) == 0, "the queue is empty")
        later = world.started()
        until(lambda: at_rest in later.metrics(), "the later core knows the queue")
