"""The core as a process: when it is ready, what it does while Redis is weak, full or away, and how it stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1.job_pb2 import NewJob
from quintet.v1.reason_pb2 import Reason

from tests.support.api import open_api, refused
from tests.support.cores import Cores
from tests.support.redis_server import RedisConnection
from tests.support.stack import CorePart, until

CODE = grpc.StatusCode
EX_CONFIG = 78


class World(Cores):
    """A Redis and cores on it, none of them started."""

    def core(self, **settings: str) -> CorePart:
        """One more; its settings by their names in lower case."""
        return super().core(**{f"QUINTET_{name.upper()}": value for name, value in settings.items()})

    def ask(self, *parts: bytes | str | int) -> Any:
        with RedisConnection(str(self.redis.path)) as connection:
            return connection.command(*parts)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def running(world: World) -> CorePart:
    """A core that is ready."""
    world.redis.start()
    core = world.core()
    core.start()
    return core


def says(core: CorePart, event: str) -> None:
    """Wait for a line of the core's log."""
    until(lambda: f'"event":"{event}"' in core.log.read_text(), event)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ends(call: Callable[[], Any]) -> Any:
    """Repeat a call until it is not refused any more; its answer."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in (CODE.UNAVAILABLE, CODE.FAILED_PRECONDITION):
                raise
            await asyncio.sleep(0.02)


class TestDurability:
    async def test_without_an_append_only_file_nothing_is_served_until_there_is_one(self, world: World) -> None:
        world.redis.start()
        world.ask("CONFIG", "SET", "appendonly", "no")
        core = world.core()
        core.start(wait=False)
        says(core, "redis_not_durable")
        async with open_api(core.target) as api:
            answer = await refused(api.put("q"))
            assert (answer.code, answer.reason) == (CODE.FAILED_PRECONDITION, "NOT_DURABLE")
            told = await api.admin.GetDurability(a.GetDurabilityRequest())
            assert not told.durable
            assert "appendonly is no, must be yes" in told.weaknesses
            health = await api.health.Check(HealthCheckRequest())
            assert health.status == HealthCheckResponse.NOT_SERVING
            assert not core.is_ready()
            world.ask("CONFIG", "SET", "appendonly", "yes")
            core.wait_ready()
            await api.put("q")
            assert core.readiness() == (200, "ready")

    @pytest.mark.parametrize(
        ("setting", "weak", "weakness"),
        [
            ("appendfsync", "everysec", "appendfsync is everysec, must be always"),
            ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru, must be noeviction"),
            ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite is yes, must be no"),
        ],
    )
    async def test_is_checked_again_while_the_core_runs(
        self, world: World, running: CorePart, setting: str, weak: str, weakness: str
    ) -> None:
        world.ask("CONFIG", "SET", setting, weak)
        says(running, "redis_not_durable")
        status, words = running.readiness()
        assert status == 503
        assert weakness in words
        async with open_api(running.target) as api:
            assert (await refused(api.put("q"))).reason == "NOT_DURABLE"
            assert weakness in (await api.admin.GetDurability(a.GetDurabilityRequest())).weaknesses

    async def test_may_be_weak_where_that_was_allowed_and_is_said(self, world: World) -> None:
        world.redis.start()
        world.ask("CONFIG", "SET", "appendfsync", "everysec")
        core = world.core(allow_weak_durability="1")
        core.start()
        says(core, "weak_durability_allowed")
        async with open_api(core.target) as api:
            await api.put("q")
            told = await api.admin.GetDurability(a.GetDurabilityRequest())
            assert (told.durable, told.weak_allowed, told.append_fsync) == (False, True, "everysec")

    async def test_that_cannot_be_read_is_weak(self, world: World) -> None:
        world.redis.start()
        world.ask("ACL", "SETUSER", "core", "on", ">secret", "~*", "&*", "+@all", "-config")
        core = world.core(redis_username="core", redis_password="secret")
        core.start(wait=False)
        says(core, "redis_not_durable")
        async with open_api(core.target) as api:
            told = await api.admin.GetDurability(a.GetDurabilityRequest())
        assert "appendfsync is unknown (Redis does not tell), must be always" in told.weaknesses


class TestRedis:
    async def test_that_is_away_is_waited_for(self, world: World) -> None:
        core = world.core()
        core.start(wait=False)
        says(core, "redis_unreachable")
        async with open_api(core.target) as api:
            answer = await refused(api.put("q"))
            assert (answer.code, answer.reason) == (CODE.UNAVAILABLE, "UNAVAILABLE")
            world.redis.start()
            core.wait_ready()
            await api.put("q")

    async def test_that_was_killed_comes_back_with_everything(self, world: World, running: CorePart) -> None:
        async with open_api(running.target) as api:
            ids = await api.put("q", b"1", b"2")
            world.redis.kill9()
            says(running, "redis_detached")
            assert (await refused(api.put("q"))).reason == "UNAVAILABLE"
            assert (await api.health.Check(HealthCheckRequest())).status == HealthCheckResponse.NOT_SERVING
            world.redis.start()
            job = await ends(lambda: api.take("q"))
            assert job.id == ids[0]
            assert (await api.health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING

    async def test_that_lost_our_functions_gets_them_again(self, world: World, running: CorePart) -> None:
        world.ask("FUNCTION", "FLUSH")
        async with open_api(running.target) as api:
            assert (await refused(api.put("q"))).reason == "UNAVAILABLE"
            await ends(lambda: api.put("q"))

    async def test_with_a_newer_library_keeps_it(self, world: World) -> None:
        world.redis.start()
        first = world.core()
        first.start()
        source: bytes = world.ask("FUNCTION", "LIST", "WITHCODE")[0][-1]
        world.ask("FUNCTION", "LOAD", "REPLACE", source.replace(b"local VERSION = ", b"local VERSION = 99"))
        second = world.core()
        second.start()
        async with open_api(second.target) as api:
            assert (await api.admin.GetInfo(a.GetInfoRequest())).library_version >= 990
            await api.put("q")

    async def test_with_an_older_library_gets_ours(self, world: World) -> None:
        world.redis.start()
        first = world.core()
        first.start()
        source: bytes = world.ask("FUNCTION", "LIST", "WITHCODE")[0][-1]
        world.ask("FUNCTION", "LOAD", "REPLACE", source.replace(b"local VERSION = ", b"local VERSION = 0 * "))
        second = world.core()
        second.start()
        async with open_api(second.target) as api:
            assert (await api.admin.GetInfo(a.GetInfoRequest())).library_version >= 1

    def test_of_another_number_of_partitions_is_refused(self, world: World, running: CorePart) -> None:
        other = world.core(partitions="8")
        other.start(wait=False)
        until(lambda: not other.is_running, "the core ends")
        assert "first started with 16 partitions, QUINTET_PARTITIONS is 8" in other.log.read_text()
        assert other.terminate() == EX_CONFIG

    async def test_with_a_password_is_opened_with_it(self, world: World) -> None:
        world.redis.start()
        world.ask("CONFIG", "SET", "requirepass", "open sesame")
        password = world.folder / "password"
        password.write_text("open sesame\n")
        core = world.core(redis_password_file=str(password))
        core.start()
        wrong = world.core(redis_password="wrong")
        wrong.start(wait=False)
        says(wrong, "redis_unreachable")
        assert "open sesame" not in core.log.read_text()

    async def test_is_reached_by_tls_and_known_by_its_certificate(self, world: World) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost")
        certificate.private_key_pem.write_to_path(world.folder / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(world.folder / "cert.pem")
        authority.cert_pem.write_to_path(world.folder / "ca.pem")
        world.redis.start()
        port = free_port()
        names = (("tls-cert-file", "cert.pem"), ("tls-key-file", "key.pem"), ("tls-ca-cert-file", "ca.pem"))
        settings = [word for name, file in names for word in (name, str(world.folder / file))]
        world.ask("CONFIG", "SET", *settings, "tls-port", port)
        shown = {f"redis_{name}_file": str(world.folder / f"{name}.pem") for name in ("ca", "cert", "key")}
        core = world.core(**shown)
        url = f"rediss://localhost:{port}/0"
        core.variables = lambda: {**CorePart.variables(core), "QUINTET_REDIS_URL": url}  # type: ignore[method-assign]
        core.start()
        stranger = world.core(redis_cert_file=shown["redis_cert_file"], redis_key_file=shown["redis_key_file"])
        stranger.variables = lambda: {**CorePart.variables(stranger), "QUINTET_REDIS_URL": url}  # type: ignore[method-assign]
        stranger.start(wait=False)
        says(stranger, "redis_unreachable")
        assert "CERTIFICATE_VERIFY_FAILED" in stranger.log.read_text()

    async def test_that_is_frozen_is_given_up_and_found_again(self, world: World) -> None:
        world.redis.start()
        core = world.core(redis_timeout_ms="200")
        core.start()
        async with open_api(core.target) as api:
            await api.put("q", b"1")
            world.redis.freeze()
            assert (await refused(api.put("q", b"2"))).reason == "UNAVAILABLE"
            world.redis.thaw()
            job = await ends(lambda: api.take("q"))
            assert job.payload == b"1"

    async def test_without_memory_refuses_what_grows_and_nothing_else(self, world: World, running: CorePart) -> None:
        async with open_api(running.target) as api:
            await api.put("q", b"1", b"2")
            world.ask("CONFIG", "SET", "maxmemory", "1")
            answer = await refused(api.put("q"))
            assert (answer.code, answer.reason) == (CODE.RESOURCE_EXHAUSTED, "MEMORY_FULL")
            assert (await refused(api.queues.CreateQueue(q.CreateQueueRequest(queue="r")))).reason == "MEMORY_FULL"
            job = await api.take("q")
            await api.queues.Acknowledge(q.AcknowledgeRequest(id=job.id, token=job.lease.token))
            assert (await api.queues.Count(q.CountRequest(queue="q"))).counts.ready == 1
            # A core that starts now is of use as well.
            second = world.core()
            second.start()
            world.ask("CONFIG", "SET", "maxmemory", "0")
            await api.put("q")

    async def test_that_holds_something_else_than_we_wrote_is_damaged(self, world: World, running: CorePart) -> None:
        async with open_api(running.target) as api:
            await api.put("q")
            partition = (await api.queues.GetQueue(q.GetQueueRequest(queue="q"))).queue.partition
            world.ask("HSET", f"{{p{partition:02d}}}:queues", "1", "rubbish")
            answer = await refused(api.put("q"))
            assert (answer.code, answer.reason) == (CODE.DATA_LOSS, "DAMAGED")


class TestEvents:
    async def test_that_nobody_needs_are_dropped_and_asking_for_them_is_refused(self, world: World) -> None:
        world.redis.start()
        core = world.core(events_tail="0", events_keep_ms="0")
        core.start()
        async with open_api(core.target) as api:
            await api.put("q")
            await api.put("q")
            partition = (await api.queues.GetQueue(q.GetQueueRequest(queue="q"))).queue.partition

            async def first_offset() -> int:
                listed = await api.events.ListPartitions(e.ListPartitionsRequest())
                first: int = listed.partitions[partition].first_offset
                return first

            while await first_offset() == 1:
                await asyncio.sleep(0.02)
            answer = await refused(api.events.ReadEvents(e.ReadEventsRequest(partition=partition)))
            assert (answer.code, answer.reason) == (CODE.OUT_OF_RANGE, "OFFSET_TRIMMED")
            assert answer.metadata["first_offset"] == str(await first_offset())


class TestTheEnd:
    async def test_answers_what_is_in_flight_and_ends_in_order(self, world: World, running: CorePart) -> None:
        async with open_api(running.target) as api:
            waiting = asyncio.ensure_future(refused(api.take("q", wait_ms=-1, allow_missing=True)))
            while running.metrics()["quintet_core_parked_dequeues"] == 0:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(running.terminate) == 0
            answer = await waiting
            assert (answer.code, answer.reason) == (CODE.UNAVAILABLE, "DRAINING")

    async def test_tells_sessions_to_go_elsewhere_and_releases_their_leases(
        self, world: World, running: CorePart
    ) -> None:
        other = world.core()
        other.start()
        async with open_api(running.target) as api, open_api(other.target) as elsewhere:
            await api.put("q")
            stream = api.sessions.Session()
            dequeue = q.DequeueRequest(queues=["q"], owner_lease=True)
            operation = s.SessionOperation(sequence=1, owner=1, dequeue=dequeue)
            await stream.write(s.SessionRequest(open=s.SessionOpen(), operations=[operation]))
            while not (await stream.read()).results:
                pass
            again = asyncio.ensure_future(elsewhere.take("q", wait_ms=-1))
            running.is_ready()
            stopping = asyncio.ensure_future(asyncio.to_thread(running.terminate))
            closing = await stream.read()
            assert closing.closing.reason == Reason.REASON_DRAINING
            assert (await again).failure_reason == "owner closed"
            assert await stopping == 0

    async def test_says_not_ready_for_a_while_before_it_refuses(self, world: World) -> None:
        world.redis.start()
        core = world.core(drain_delay_ms="60000")
        core.start()
        assert core._process is not None
        core._process.terminate()
        until(lambda: core.readiness() == (503, "draining"), "not ready")
        async with open_api(core.target) as api:
            await api.put("q")
            assert (await api.health.Check(HealthCheckRequest())).status == HealthCheckResponse.NOT_SERVING
            assert (await api.admin.GetInfo(a.GetInfoRequest())).draining
        # The second signal ends it at once.
        assert core.terminate() == 128 + 15


class TestItsListeners:
    def test_that_another_core_has_are_not_taken_from_it(self, world: World, running: CorePart) -> None:
        other = world.core(core_socket=str(running.socket))
        other.variables = lambda: {**CorePart.variables(other), "QUINTET_CORE_SOCKET": str(running.socket)}  # type: ignore[method-assign]
        other.start(wait=False)
        until(lambda: not other.is_running, "the core ends")
        assert "another process listens on" in other.log.read_text()

    def test_of_a_core_that_was_killed_are_taken_over(self, running: CorePart) -> None:
        running.restart()
        assert running.readiness() == (200, "ready")

    def test_that_are_taken_end_the_core_with_a_sentence(self, world: World) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            core = world.core(core_port=str(taken.getsockname()[1]))
            core.start(wait=False)
            until(lambda: not core.is_running, "the core ends")
        assert "cannot_listen" in core.log.read_text()


def test_settings_that_are_wrong_are_told_all_at_once(world: World) -> None:
    core = world.core(
        partitions="0", redis_url="http://x", session_ttl_ms="soon", tokens_file="/nowhere", core_socket_mode="0777"
    )
    core.start(wait=False)
    until(lambda: not core.is_running, "the core ends")
    log = core.log.read_text()
    for name in ("PARTITIONS", "REDIS_URL", "SESSION_TTL_MS", "TOKENS_FILE", "CORE_SOCKET_MODE"):
        assert f"QUINTET_{name}: value " in log
    assert core.terminate() == EX_CONFIG


async def test_a_session_with_more_in_flight_than_allowed_is_read_later_and_answered_whole(world: World) -> None:
    world.redis.start()
    core = world.core(session_in_flight_max="5")
    core.start()
    async with open_api(core.target) as api:
        stream = api.sessions.Session()
        request = q.EnqueueRequest(queue="q", jobs=[NewJob()], create_if_missing=True)
        operations = [s.SessionOperation(sequence=number, owner=number, enqueue=request) for number in range(200)]
        await stream.write(s.SessionRequest(open=s.SessionOpen()))
        for operation in operations:
            await stream.write(s.SessionRequest(operations=[operation]))
        seen: set[int] = set()
        while len(seen) < len(operations):
            seen |= {result.sequence for result in (await stream.read()).results}
        await stream.done_writing()


async def test_two_cores_share_one_redis(world: World, running: CorePart) -> None:
    other = world.core()
    other.start()
    async with open_api(running.target) as api, open_api(other.target) as elsewhere:
        waiting = asyncio.ensure_future(api.take("q", wait_ms=-1, allow_missing=True))
        while running.metrics()["quintet_core_parked_dequeues"] == 0:
            await asyncio.sleep(0.01)
        response = await elsewhere.queues.Enqueue(
            q.EnqueueRequest(queue="q", jobs=[NewJob(payload=b"x")], create_if_missing=True)
        )
        assert (await waiting).id == response.ids[0]
