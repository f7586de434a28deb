"""How a Session stream behaves at its edges: misuse, slow and killed clients, stopping and killed cores."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1.job_pb2 import NewJob

from tests.support.api import Api, open_api
from tests.support.session_stream import SessionStream, open_session, reason_of
from tests.support.stack import CorePart, RedisPart, until

MIB = 1 << 20
RESPONSE_BYTES_MAX = 4 * MIB


@pytest.fixture
async def stream(api: Api) -> AsyncIterator[SessionStream]:
    async with open_session(api) as stream:
        yield stream


async def ready(api: Api, queue: str) -> int:
    counts = (await api.queues.Count(q.CountRequest(queue=queue))).counts
    return int(counts.ready)


def waiting(queue: str, wait_ms: int = -1, **fields: Any) -> q.DequeueRequest:
    return q.DequeueRequest(queues=[queue], wait_ms=wait_ms, allow_missing=True, **fields)


class Cores:
    """A Redis and two cores on it, whose sessions lapse soon and may have little in flight."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis = RedisPart(folder)
        self.first = CorePart(folder, self.redis, "first")
        self.second = CorePart(folder, self.redis, "second")
        for core in (self.first, self.second):
            core.environment = {"QUINTET_SESSION_TTL_MS": "1500", "QUINTET_SESSION_IN_FLIGHT_MAX": "20"}

    def start(self) -> None:
        self.redis.start()
        self.first.start(wait=False)
        self.second.start()
        self.first.wait_ready()

    def close(self) -> None:
        for part in (self.first, self.second, self.redis):
            part.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def cores() -> Iterator[Cores]:
    # Short-named: the path of a unix socket may have 107 bytes.
    cores = Cores(Path(tempfile.mkdtemp(prefix="quintet-")))
    try:
        cores.start()
        yield cores
    finally:
        cores.close()


class TestMisuse:
    async def test_the_number_of_a_dequeue_that_waits_cannot_be_used_again(
        self, stream: SessionStream, queue: str
    ) -> None:
        await stream.write(s.SessionOperation(sequence=500, owner=1, dequeue=waiting(queue)))
        await stream.write(s.SessionOperation(sequence=500, owner=1, dequeue=waiting(queue)))
        assert reason_of(await stream.result(500)) == "INVALID_ARGUMENT"
        await stream.do(cancel_wait=s.CancelWait(sequence=500))
        await stream.half_close()
        assert stream.order.count(500) == 2

    async def test_a_second_opening_changes_nothing(self, stream: SessionStream, queue: str) -> None:
        await stream._call.write(s.SessionRequest(open=s.SessionOpen(client="again")))
        assert await stream.put(queue)

    @pytest.mark.parametrize("seed", range(3))
    async def test_every_operation_gets_one_answer_whatever_is_in_it(
        self, stream: SessionStream, queue: str, seed: int
    ) -> None:
        random_ = random.Random(seed)
        kinds = s.SessionOperation.DESCRIPTOR.oneofs_by_name["operation"].fields
        operations = []
        for _ in range(400):
            operation = stream.number(owner=random_.choice([0, 1, 2**64 - 1]))
            field = random_.choice(list(kinds))
            body = getattr(operation, field.name)
            body.SetInParent()
            fill(body, random_, queue)
            operations.append(operation)
        for at in range(0, len(operations), 50):
            await stream.write(*operations[at : at + 50])
        await stream.half_close()
        assert stream.refused is None
        assert sorted(stream.order) == [operation.sequence for operation in operations]
        assert "INTERNAL" not in {reason_of(await stream.result(sequence)) for sequence in stream.order}


_NUMBERS: dict[int, list[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: [0, 1, -1, 2**31 - 1, -(2**31)],
    FieldDescriptor.CPPTYPE_INT64: [0, 1, -1, 2**31, 2**53, 2**63 - 1, -(2**63)],
    FieldDescriptor.CPPTYPE_UINT32: [0, 1, 2**32 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [0, 1, 2**53, 2**64 - 1],
    FieldDescriptor.CPPTYPE_ENUM: [0, 1, 2, 3, 99],
    FieldDescriptor.CPPTYPE_BOOL: [False, True],
}


def fill(message: Any, random_: random.Random, queue: str) -> None:
    """Some fields of a message with whatever is at the edge of their types."""
    for field in message.DESCRIPTOR.fields:
        if random_.random() < 0.4:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["key"] = "value"
        elif field.message_type is not None and field.is_repeated:
            for _ in range(random_.choice([1, 2])):
                fill(getattr(message, field.name).add(), random_, queue)
        elif field.message_type is not None:
            fill(getattr(message, field.name), random_, queue)
        elif field.is_repeated:
            getattr(message, field.name).extend(_edge(field, random_, queue) for _ in range(random_.choice([1, 3])))
        else:
            setattr(message, field.name, _edge(field, random_, queue))


def _edge(field: Any, random_: random.Random, queue: str) -> Any:
    if field.name in ("queue", "queues", "name"):
        return random_.choice([queue, f"{queue}-2", "", "\0", "é" * 2100])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return random_.choice([b"", b"\xff\x00", bytes(1000)])
        return random_.choice(["", "", "x", "é" * 128, "\U0010ffff" * 1100])
    return random_.choice(_NUMBERS[field.cpp_type])


class TestLargeAnswers:
    async def test_are_told_in_several_responses(self, stream: SessionStream, queue: str) -> None:
        payload = bytes(900_000)
        for _ in range(12):
            await stream.put(queue, payload)
        operations = [
            stream.number(owner=owner, dequeue=q.DequeueRequest(queues=[queue], owner_lease=True))
            for owner in range(12)
        ]
        await stream.write(*operations)
        for operation in operations:
            (job,) = (await stream.result(operation.sequence)).dequeue.jobs
            assert job.payload == payload
        assert max(stream.response_bytes) <= RESPONSE_BYTES_MAX

    async def test_that_nobody_takes_stop_the_core_from_reading_more(
        self, core: CorePart, api: Api, queue: str
    ) -> None:
        """Far fewer than may be in flight: what piles up are the answers."""
        (job_id,) = await api.put(queue, bytes(MIB))
        slow, asked, before = SessionStream(api), 120, answered(core)
        await slow._call.write(s.SessionRequest(open=s.SessionOpen()))
        polls = 0
        for number in range(asked // 5):
            operations = [slow.number(get_job=q.GetJobRequest(id=job_id)) for _ in range(5)]
            await slow._call.write(s.SessionRequest(operations=operations))
            # Each is answered before the next is sent, until they are not read any more.
            while polls < 40 and answered(core) - before < 5 * (number + 1):
                await ready(api, queue)
                polls += 1
        assert answered(core) - before < asked / 2
        results = 0
        while results < asked:
            results += len((await slow._call.read()).results)
        assert answered(core) - before == asked
        await slow.cancel()


def answered(core: CorePart) -> float:
    return core.metrics()['quintet_core_operations_total{outcome="ok",verb="get_job"}']


class TestAKilledClient:
    SESSIONS = 12

    @pytest.mark.parametrize("resumable", [True, False])
    async def test_keeps_its_leases_only_when_it_may_resume(
        self, core: CorePart, api: Api, queue: str, resumable: bool
    ) -> None:
        """kill -9 looks like the orderly end of what a client has to say: it must not be taken for one."""
        held = kill_a_holder(core, self.SESSIONS, resumable, queue)
        until(lambda: core.metrics()["quintet_core_sessions"] == 0, "the core knows that the client is gone")
        assert await ready(api, queue) == (0 if resumable else self.SESSIONS)
        assert core.metrics()["quintet_core_parked_dequeues"] == 0
        if resumable:
            for number, secret, job_id in held:
                async with open_session(api, resume_session=number, resume_secret=secret, resumable=True) as again:
                    assert again.opened.resumed
                    assert (await again.do(close_owner=s.CloseOwner())).close_owner.released == 1
                    assert (await again.do(delete=q.DeleteRequest(id=job_id))).HasField("delete")


def kill_a_holder(core: CorePart, sessions: int, resumable: bool, queue: str) -> list[tuple[int, bytes, int]]:
    """Start it, wait until it holds its leases, and kill it; its sessions, their secrets and jobs."""
    arguments = [core.target, str(sessions), str(int(resumable)), queue]
    command = [sys.executable, "-m", "tests.support.session_holder", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        try:
            lines = [line.split() for line in iter(holder.stdout.readline, "held\n") if line]
        finally:
            holder.kill()
    return [(int(number), bytes.fromhex(secret), int(job_id)) for number, secret, job_id in lines]


class TestSeveralCores:
    async def test_a_wait_at_one_is_ended_by_a_job_put_at_the_other(self, cores: Cores, queue: str) -> None:
        async with (
            open_api(cores.first.target) as here,
            open_api(cores.second.target) as there,
            open_session(here) as one,
            open_session(there) as other,
        ):
            waits = [await one.send(dequeue=waiting(queue)) for _ in range(3)]
            await one.do(count=q.CountRequest(queue=queue))
            await other.put(queue, b"1", b"2", b"3")
            payloads = [(await one.result(wait)).dequeue.jobs[0].payload for wait in waits]
            assert payloads == [b"1", b"2", b"3"]

    async def test_what_sessions_of_a_killed_core_held_is_released_by_the_other(self, cores: Cores, queue: str) -> None:
        async with (
            open_api(cores.first.target) as here,
            open_api(cores.second.target) as there,
            open_session(here) as plain,
            open_session(here, resumable=True) as resumable,
        ):
            for session in (plain, resumable):
                await session.put(queue)
                await session.take(queue)
            cores.first.kill9()
            for _ in range(2):
                assert (await there.take(queue, wait_ms=-1)).failure_reason == "owner closed"
            assert not await _is_resumed(there, resumable)

    async def test_a_broken_session_is_resumed_at_the_other_or_lapses(self, cores: Cores, queue: str) -> None:
        async with (
            open_api(cores.first.target) as here,
            open_api(cores.second.target) as there,
            open_session(here, resumable=True) as goes_on,
            open_session(here, resumable=True) as lapses,
        ):
            for session in (goes_on, lapses):
                await session.put(queue, session.opened.secret)
                await session.take(queue)
                await session.cancel()
            opened = goes_on.opened
            fields = {"resume_session": opened.session, "resume_secret": opened.secret}
            async with open_session(there, resumable=True, **fields) as again:
                beating = asyncio.ensure_future(_beat(again))
                job = await there.take(queue, wait_ms=-1)
                beating.cancel()
                assert (job.payload, job.failure_reason) == (lapses.opened.secret, "owner closed")
                assert await ready(there, queue) == 0


async def _is_resumed(api: Api, session: SessionStream) -> bool:
    again = SessionStream(api)
    try:
        await again.open(resume_session=session.opened.session, resume_secret=session.opened.secret)
    except Exception:
        return False
    return True


async def _beat(session: SessionStream) -> None:
    while True:
        await session.do(heartbeat=s.Heartbeat())
        await asyncio.sleep(0.3)


class TestACoreThatStops:
    async def test_ends_waits_answers_what_is_in_flight_and_leaves_leases_to_the_next(
        self, cores: Cores, queue: str
    ) -> None:
        async with (
            open_api(cores.first.target) as here,
            open_api(cores.second.target) as there,
            open_session(here, resumable=True) as stream,
        ):
            await stream.put(queue)
            job = await stream.take(queue)
            wait = await stream.send(owner=2, dequeue=waiting(f"{queue}-empty"))
            await stream.do(count=q.CountRequest(queue=queue))
            cores.redis.freeze()
            in_flight = [
                await stream.send(enqueue=q.EnqueueRequest(queue=queue, jobs=[NewJob(payload=b"late")]))
                for _ in range(10)
            ]
            stopping = asyncio.ensure_future(asyncio.to_thread(cores.first.terminate))
            assert reason_of(await stream.result(wait)) == "DRAINING"
            assert not any(map(stream.has, in_flight))
            cores.redis.thaw()
            await stream.ended.wait()
            assert stream.closing is not None
            assert stream.closing.reason == 42  # DRAINING
            assert {reason_of(await stream.result(sequence)) for sequence in in_flight} == {"enqueue"}
            assert await stopping == 0
            opened = stream.opened
            fields = {"resume_session": opened.session, "resume_secret": opened.secret}
            async with open_session(there, resumable=True, **fields) as again:
                result = await again.do(acknowledge=q.AcknowledgeRequest(id=job.id, token=job.lease.token))
                assert reason_of(result) == "acknowledge"


async def test_a_session_without_heartbeats_of_its_own_lives_while_it_is_attached_however_short_its_time(
    cores: Cores, queue: str
) -> None:
    cores.first.kill9()
    cores.first.environment["QUINTET_SESSION_TTL_MS"] = "500"
    cores.first.start()
    async with open_api(cores.first.target) as api, open_session(api) as stream:
        await stream.put(queue)
        await stream.take(queue)
        response = await api.queues.Dequeue(waiting(queue, wait_ms=1800))
        assert not response.jobs
        assert stream.closing is None
