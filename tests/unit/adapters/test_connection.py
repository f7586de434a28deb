"""Connections on real sockets, in front of a scripted core: owners, doubt, back-pressure, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from quintet.v1.job_pb2 import Job, Lease
from quintet.v1.queue_service_pb2 import (
    CountResponse,
    DeleteResponse,
    DequeueResponse,
    EnqueueResponse,
    ReleaseResponse,
)
from quintet.v1.reason_pb2 import REASON_UNAVAILABLE
from quintet.v1.session_service_pb2 import Failure, KeepLeasesResponse, SessionOperation, SessionResult
from quintet_adapters.adapter import Adapter
from quintet_adapters.metrics import AdapterMetrics
from quintet_adapters.protocols.conversation import Conversation
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_adapters.protocols.job_centre_requests import JobCentreLimits, JobCentreReader
from quintet_adapters.protocols.taskflux import TaskFlux
from quintet_adapters.protocols.taskflux_requests import TaskFluxLimits, TaskFluxService
from quintet_adapters.protocols.text_queue import TextQueue, TextQueueLimits
from quintet_adapters.transports import tcp
from quintet_client.session import Session

from tests.support import taskflux as tf
from tests.unit.client.scripted_core import ScriptedCore

PUT = b'{"request":"put","queue":"q","job":{},"pri":1}\n'
GET = b'{"request":"get","queues":["q"]}\n'
WAIT = b'{"request":"get","queues":["q"],"wait":true}\n'
CONNECTIONS_MAX = 4
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """An adapter that listens, and the scripted core behind it."""

    def __init__(self, core: ScriptedCore, adapter: Adapter, server: asyncio.Server) -> None:
        self.core = core
        self.adapter = adapter
        self._server = server

    async def connect(self) -> Streams:
        return await asyncio.open_connection(*self._server.sockets[0].getsockname())

    def metric(self, name: str) -> float:
        lines = generate_latest(self.adapter.metrics.registry).decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))

    def verbs(self) -> list[str]:
        return [str(operation.WhichOneof("operation")) for operation in self.core.operations]

    def operations(self, verb: str) -> list[SessionOperation]:
        return [operation for operation in self.core.operations if operation.WhichOneof("operation") == verb]

    async def until_asked(self, verb: str, times: int = 1) -> list[SessionOperation]:
        await self.core.until(lambda: len(self.operations(verb)) >= times)
        return self.operations(verb)


Answer = Callable[[SessionOperation], SessionResult | None]


def script(core: ScriptedCore, verb: str, answer: Answer) -> None:
    """From now on the core answers `verb` so; None: not at all."""

    def numbered(operation: SessionOperation) -> SessionResult | None:
        result = answer(operation)
        if result is not None:
            result.sequence = operation.sequence
        return result

    core.answers[verb] = numbered


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: the other side knows that nobody reads any more."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def silent(_: SessionOperation) -> None:
    return None


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[ScriptedCore]:
    core = ScriptedCore(tmp_path / "core.sock")
    script(core, "enqueue", lambda operation: SessionResult(enqueue=EnqueueResponse(ids=[operation.sequence])))
    script(core, "delete", lambda _: SessionResult(delete=DeleteResponse()))
    script(core, "release", lambda _: SessionResult(release=ReleaseResponse()))
    await core.start()
    yield core
    await core.stop()


async def serve(
    core: ScriptedCore,
    converse: Callable[[AdapterMetrics], Conversation],
    commands: tuple[str, ...],
) -> AsyncIterator[Served]:
    session = await Session.connect(core.target)
    metrics = AdapterMetrics(CollectorRegistry(), commands)
    adapter = Adapter(session, metrics, CONNECTIONS_MAX)
    limits = tcp.TcpLimits(linger_ms=200, close_ms=200)
    server = await tcp.listen(adapter, lambda: converse(metrics), limits, "127.0.0.1", 0)
    yield Served(core, adapter, server)
    server.close()
    await adapter.close()


@pytest.fixture
async def job_centre(core: ScriptedCore) -> AsyncIterator[Served]:
    reader = JobCentreReader(JobCentreLimits(requests_max=8))
    async for served in serve(core, lambda metrics: JobCentre(reader, metrics.requests), JobCentre.commands):
        yield served


@pytest.fixture
async def text_queue(core: ScriptedCore) -> AsyncIterator[Served]:
    limits = TextQueueLimits(quiet_ms=5)
    async for served in serve(core, lambda metrics: TextQueue(limits, metrics.requests), TextQueue.commands):
        yield served


@pytest.fixture
async def taskflux(core: ScriptedCore) -> AsyncIterator[Served]:
    service = TaskFluxService(TaskFluxLimits(idle_ms=300))
    async for served in serve(core, lambda metrics: TaskFlux(service, metrics.requests), TaskFlux.commands):
        yield served


def a_job(job_id: int, payload: bytes = b"{}") -> DequeueResponse:
    return DequeueResponse(
        jobs=[Job(id=job_id, payload=payload, queue="q", content_type="application/json", lease=Lease(token=1))]
    )


def answer_dequeues(core: ScriptedCore, *answers: SessionResult) -> None:
    left = list(answers)
    script(core, "dequeue", lambda _: left.pop(0) if left else None)


def gives(job_id: int) -> SessionResult:
    return SessionResult(dequeue=a_job(job_id))


def unavailable() -> SessionResult:
    return SessionResult(failure=Failure(reason=REASON_UNAVAILABLE, message="Redis is away"))


def kept() -> SessionResult:
    return SessionResult(keep_leases=KeepLeasesResponse(released=1))


async def answer(streams: Streams) -> dict[str, object]:
    line = await streams[0].readline()
    return dict(json.loads(line))


class TestOwners:
    async def test_one_per_client_closed_with_it(self, job_centre: Served) -> None:
        first, second = await job_centre.connect(), await job_centre.connect()
        for reader, writer in (first, second, first):
            writer.write(PUT)
            await reader.readline()
        owners = [operation.owner for operation in job_centre.operations("enqueue")]
        assert (len(set(owners)), owners[0]) == (2, owners[2])
        first[1].close()
        closed = await job_centre.until_asked("close_owner")
        assert [operation.owner for operation in closed] == [owners[0]]

    async def test_of_a_parked_wait_is_closed_when_the_client_goes(self, job_centre: Served) -> None:
        _, writer = await job_centre.connect()
        writer.write(WAIT)
        (dequeue,) = await job_centre.until_asked("dequeue")
        writer.transport.abort()
        (closed,) = await job_centre.until_asked("close_owner")
        assert closed.owner == dequeue.owner

    async def test_that_hold_nothing_serve_the_next_client(self, text_queue: Served) -> None:
        for _ in range(3):
            reader, writer = await text_queue.connect()
            writer.write(b"ADD q 2 hi")
            assert len(await reader.read()) == 16
            writer.close()
            await writer.wait_closed()
        assert len({operation.owner for operation in text_queue.operations("enqueue")}) <= 2
        assert text_queue.operations("close_owner") == []


class TestDoubt:
    """A dequeue whose outcome is unknown may have taken a job that only its owner's end gives back."""

    async def test_of_a_client_without_jobs_gives_it_a_new_owner(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, unavailable(), gives(7))
        streams = await job_centre.connect()
        streams[1].write(GET + PUT)
        assert [(await answer(streams))["status"] for _ in range(2)] == ["error", "ok"]
        (closed,) = await job_centre.until_asked("close_owner")
        owners = [operation.owner for operation in job_centre.operations("dequeue")]
        assert closed.owner == owners[0]

    async def test_after_which_nothing_goes_on_under_the_old_owner(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, unavailable(), gives(7))
        streams = await job_centre.connect()
        streams[1].write(GET)
        await answer(streams)
        streams[1].write(GET)
        assert (await answer(streams))["id"] == 7
        owners = [operation.owner for operation in job_centre.operations("dequeue")]
        assert len(set(owners)) == 2

    async def test_of_a_client_with_jobs_leaves_it_these_and_gives_back_the_rest(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7), unavailable(), gives(8))
        script(job_centre.core, "keep_leases", lambda _: kept())
        streams = await job_centre.connect()
        streams[1].write(GET + GET + GET)
        assert [(await answer(streams))["status"] for _ in range(3)] == ["ok", "error", "ok"]
        (keep,) = await job_centre.until_asked("keep_leases")
        assert list(keep.keep_leases.ids) in ([7], [7, 8])
        streams[1].write(b'{"request":"delete","id":7}\n')
        assert (await answer(streams))["status"] == "ok"
        assert len({operation.owner for operation in job_centre.core.operations if operation.owner}) == 1

    async def test_is_settled_with_the_core_before_the_client_goes_on(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7), unavailable(), gives(8))
        keeps = [unavailable(), kept()]
        script(job_centre.core, "keep_leases", lambda _: keeps.pop(0))
        streams = await job_centre.connect()
        for status in ("ok", "error", "ok"):
            streams[1].write(GET)
            assert (await answer(streams))["status"] == status
        verbs = [verb for verb in job_centre.verbs() if verb != "heartbeat"]
        assert verbs == ["dequeue", "dequeue", "keep_leases", "keep_leases", "dequeue"]

    async def test_from_a_broken_stream_is_settled_after_the_resume(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7))
        script(job_centre.core, "keep_leases", lambda _: kept())
        streams = await job_centre.connect()
        streams[1].write(GET)
        assert (await answer(streams))["id"] == 7
        streams[1].write(WAIT)
        await job_centre.until_asked("dequeue", 2)
        await job_centre.core.break_streams()
        assert (await answer(streams))["status"] == "error"
        streams[1].write(PUT)
        assert (await answer(streams))["status"] == "ok"
        (keep,) = job_centre.operations("keep_leases")
        assert (list(keep.keep_leases.ids), job_centre.core.opens[-1].resume_session) == ([7], 1)

    async def test_ends_with_the_session_which_closes_the_client(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7))
        streams = await job_centre.connect()
        streams[1].write(GET)
        assert (await answer(streams))["id"] == 7
        streams[1].write(WAIT)
        await job_centre.until_asked("dequeue", 2)
        job_centre.core.sessions.clear()
        await job_centre.core.break_streams()
        assert (await answer(streams))["status"] == "error"
        assert await streams[0].read() == b""

    async def test_does_not_arise_while_the_core_is_away(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7))
        streams = await job_centre.connect()
        streams[1].write(GET)
        assert (await answer(streams))["id"] == 7
        await job_centre.core.stop()
        while job_centre.adapter.session.connected:
            await asyncio.sleep(0)
        streams[1].write(GET + GET)
        assert [(await answer(streams))["status"] for _ in range(2)] == ["error", "error"]


class TestSettling:
    @pytest.mark.parametrize(("verb", "packet"), [("acknowledge", tf.ACK), ("release", tf.NACK)])
    async def test_that_fails_gives_the_job_back_with_its_owner(
        self, taskflux: Served, verb: str, packet: bytes
    ) -> None:
        answer_dequeues(taskflux.core, gives(7), gives(8))
        script(taskflux.core, verb, lambda _: unavailable())
        reader, writer = await taskflux.connect()
        writer.write(tf.HAND_SHAKE + tf.dequeue("q") + packet + tf.dequeue("q"))
        assert await reader.readexactly(4 + 15 + 2) == tf.HAND_SHAKEN + b"cd\1" + bytes(8 + 3) + b"\2{}"
        assert await reader.readexactly(6) == b"cx" + bytes(4)
        (closed,) = await taskflux.until_asked("close_owner")
        first, second = await taskflux.until_asked("dequeue", 2)
        assert closed.owner == first.owner != second.owner
        assert taskflux.verbs().index("close_owner") < taskflux.verbs().index("dequeue", 2)


class TestIdleness:
    async def test_ends_a_connection_that_says_nothing_and_closes_its_owner(self, taskflux: Served) -> None:
        answer_dequeues(taskflux.core, gives(7))
        reader, writer = await taskflux.connect()
        writer.write(tf.HAND_SHAKE + tf.dequeue("q"))
        assert (await reader.read()).endswith(b"{}")
        await taskflux.until_asked("close_owner")

    async def test_is_not_what_waits_for_the_core(self, taskflux: Served) -> None:
        script(taskflux.core, "count", silent)
        idle, busy = await taskflux.connect(), await taskflux.connect()
        busy[1].write(tf.HAND_SHAKE + tf.count("q"))
        (count,) = await taskflux.until_asked("count")
        for _ in range(2):
            # Each lives for the idle limit, after which the busy one is still there.
            assert await idle[0].read() == b""
            idle = await taskflux.connect()
        taskflux.core.respond(SessionResult(sequence=count.sequence, count=CountResponse()))
        assert await busy[0].readexactly(10) == tf.HAND_SHAKEN + b"cc" + bytes(4)
        assert await busy[0].read() == b""


class TestLostLeases:
    async def test_close_the_clients_that_hold_them_and_no_others(self, job_centre: Served) -> None:
        answer_dequeues(job_centre.core, gives(7))
        worker, other = await job_centre.connect(), await job_centre.connect()
        worker[1].write(GET)
        assert (await answer(worker))["id"] == 7
        other[1].write(PUT)
        assert (await answer(other))["status"] == "ok"
        job_centre.core.sessions.clear()
        await job_centre.core.break_streams()
        assert await worker[0].read() == b""
        other[1].write(PUT)
        assert (await answer(other))["status"] in ("ok", "error")
        assert job_centre.metric("quintet_adapter_connections_closed_for_lost_leases_total") == 1


class TestTextQueueUndo:
    async def test_a_get_whose_client_is_known_to_be_gone_is_undone(self, text_queue: Served) -> None:
        core = text_queue.core
        script(core, "dequeue", silent)
        _, writer = await text_queue.connect()
        writer.write(b"GET q\n")
        (dequeue,) = await text_queue.until_asked("dequeue")
        reset(writer)
        while text_queue.metric("quintet_adapter_connections"):
            await asyncio.sleep(0)
        core.respond(SessionResult(sequence=dequeue.sequence, dequeue=a_job(7)))
        (release,) = await text_queue.until_asked("release")
        assert (release.release.id, release.release.undo_attempt) == (7, True)


class TestBounds:
    async def test_a_connection_over_the_limit_is_closed_at_once(self, job_centre: Served) -> None:
        streams = [await job_centre.connect() for _ in range(5)]
        assert await streams[4][0].read() == b""
        streams[0][1].write(PUT)
        assert (await answer(streams[0]))["status"] == "ok"
        assert job_centre.metric("quintet_adapter_connections_refused_total") == 1

    async def test_a_client_that_reads_no_answers_is_not_read_either(self, job_centre: Served) -> None:
        reader, writer = await job_centre.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        line = b'{"request":"' + b"x" * 1000 + b'"}\n'
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent * len(line) < 64 * 1024 * 1024:
                writer.write(line * 1000)
                sent += 1000
                await asyncio.wait_for(writer.drain(), 0.5)
        assert sent * len(line) < 64 * 1024 * 1024
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(sent):
            assert (await answer((reader, writer)))["status"] == "error"

    async def test_answers_survive_what_a_client_still_sends(self, text_queue: Served) -> None:
        reader, writer = await text_queue.connect()
        writer.write(b"ADD q 2 hi" + b"x" * 1_000_000)
        assert len(await reader.read()) == 16


class TestTheEnd:
    async def test_answers_what_is_under_way_and_ends_waits(self, job_centre: Served) -> None:
        core = job_centre.core
        busy, waiting, idle = [await job_centre.connect() for _ in range(3)]
        waiting[1].write(WAIT)
        await job_centre.until_asked("dequeue")
        script(core, "delete", silent)
        busy[1].write(b'{"request":"delete","id":1}\n')
        (delete,) = await job_centre.until_asked("delete")
        finished = asyncio.ensure_future(job_centre.adapter.finish())
        assert await idle[0].read() == b""
        assert (await answer(waiting))["status"] == "error"
        assert await waiting[0].read() == b""
        core.respond(SessionResult(sequence=delete.sequence, delete=DeleteResponse()))
        assert (await answer(busy))["status"] == "ok"
        assert await busy[0].read() == b""
        await finished


class TestSockets:
    async def test_find_dead_peers_and_delay_nothing(self, job_centre: Served) -> None:
        accepted: list[socket.socket] = []
        connection_made = tcp.TcpWire.connection_made

        def spy(wire: tcp.TcpWire, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport.get_extra_info("socket"))
            connection_made(wire, transport)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tcp.TcpWire, "connection_made", spy)
            streams = await job_centre.connect()
            streams[1].write(PUT)
            await answer(streams)
        (sock,) = accepted
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
