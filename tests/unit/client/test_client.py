"""The coroutine client against a scripted core: waiting for a core, cancelled waits, leases of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quintet.v1.job_pb2 import JOB_STATE_LEASED, JOB_STATE_READY, Job, Lease
from quintet.v1.queue_service_pb2 import AwaitJobsResponse, DequeueResponse, ExtendResponse, ReleaseResponse
from quintet.v1.reason_pb2 import REASON_JOB_NOT_FOUND, REASON_STALE_LEASE, REASON_UNAVAILABLE
from quintet.v1.session_service_pb2 import Failure, SessionOperation, SessionResult
from quintet_client import Client, JobNotFoundError, LeasedJob, StaleLeaseError, UnavailableError

from tests.unit.client.scripted_core import ScriptedCore, disconnected

JOB = Job(id=7, queue="q", payload=b"work", state=JOB_STATE_LEASED, attempts=1, lease=Lease(token=3))


def released(operation: SessionOperation) -> SessionResult:
    return SessionResult(sequence=operation.sequence, release=ReleaseResponse(state=JOB_STATE_READY))


def done(operation: SessionOperation) -> SessionResult:
    result = SessionResult(sequence=operation.sequence)
    result.acknowledge.SetInParent()
    return result


def extended(operation: SessionOperation) -> SessionResult:
    return SessionResult(sequence=operation.sequence, extend=ExtendResponse(deadline_at_ms=1))


def failed(operation: SessionOperation, reason: int) -> SessionResult:
    return SessionResult(sequence=operation.sequence, failure=Failure(reason=reason))  # type: ignore[arg-type]


def handing_out(*jobs: Job) -> object:
    """Answers each dequeue with the next of `jobs`, and parks those beyond."""
    left = list(jobs)

    def answer(operation: SessionOperation) -> SessionResult | None:
        if not left:
            return None
        return SessionResult(sequence=operation.sequence, dequeue=DequeueResponse(jobs=[left.pop(0)]))

    return answer


@pytest.fixture
async def scripted(core: ScriptedCore) -> ScriptedCore:
    core.answers |= {"release": released, "acknowledge": done, "extend": extended}
    return core


@pytest.fixture
async def client(scripted: ScriptedCore) -> AsyncIterator[Client]:
    async with Client(scripted.target, patience_s=10) as client:
        yield client


async def test_a_failure_is_raised_as_its_class(scripted: ScriptedCore, client: Client) -> None:
    scripted.answers["get_job"] = lambda operation: failed(operation, REASON_JOB_NOT_FOUND)
    with pytest.raises(JobNotFoundError):
        await client.get_job(1)


async def test_a_wait_that_is_cancelled_before_its_job_is_cancelled_in_the_core(
    scripted: ScriptedCore, client: Client
) -> None:
    waiting = asyncio.ensure_future(client.dequeue("q", wait_ms=-1))
    await scripted.until(lambda: bool(scripted.parked))
    waiting.cancel()
    await scripted.until(lambda: not scripted.parked)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_who_waits_and_takes_nothing_is_told(scripted: ScriptedCore, client: Client) -> None:
    scripted.answers["await_jobs"] = lambda operation: SessionResult(
        sequence=operation.sequence, await_jobs=AwaitJobsResponse(ready=True)
    )
    assert await client.await_jobs("q")


async def test_a_wait_that_takes_nothing_is_cancelled_in_the_core(scripted: ScriptedCore, client: Client) -> None:
    waiting = asyncio.ensure_future(client.await_jobs("q"))
    await scripted.until(lambda: bool(scripted.parked))
    waiting.cancel()
    await scripted.until(lambda: not scripted.parked)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_job_that_was_handed_out_as_its_wait_was_cancelled_goes_back(
    scripted: ScriptedCore, client: Client
) -> None:
    def too_late(operation: SessionOperation) -> SessionResult:
        sequence = operation.cancel_wait.sequence
        scripted.respond(SessionResult(sequence=sequence, dequeue=DequeueResponse(jobs=[JOB])))
        result = SessionResult(sequence=operation.sequence)
        result.cancel_wait.SetInParent()
        return result

    scripted.answers["cancel_wait"] = too_late
    waiting = asyncio.ensure_future(client.dequeue("q", wait_ms=-1))
    await scripted.until(lambda: bool(scripted.parked))
    waiting.cancel()
    await scripted.until(lambda: bool(scripted.received("release")))
    release = scripted.received("release")[0].release
    assert (release.id, release.token, release.undo_attempt) == (7, 3, True)


async def test_operations_wait_for_a_core_that_is_away(scripted: ScriptedCore, client: Client) -> None:
    await scripted.stop()
    await disconnected(client.session)
    putting = asyncio.ensure_future(client.enqueue("q", b"x", rank=9))
    await asyncio.sleep(0)
    assert not putting.done()
    await scripted.start()
    assert await putting == 9


async def test_patience_ends(scripted: ScriptedCore) -> None:
    async with Client(scripted.target, patience_s=0.2) as client:
        await scripted.stop()
        with pytest.raises(UnavailableError):
            await client.enqueue("q", b"x")


async def test_reads_are_repeated_and_changes_are_not(scripted: ScriptedCore, client: Client) -> None:
    refusals = {"count": 2, "delete": 1}

    def answer(operation: SessionOperation) -> SessionResult:
        verb = operation.WhichOneof("operation") or ""
        refusals[verb] -= 1
        if refusals[verb] >= 0:
            return failed(operation, REASON_UNAVAILABLE)
        return SessionResult(sequence=operation.sequence)

    scripted.answers |= {"count": answer, "delete": answer}
    assert (await client.count("q")).total == 0
    with pytest.raises(UnavailableError):
        await client.delete(5)
    assert len(scripted.received("delete")) == 1


async def test_a_closed_client_says_so(scripted: ScriptedCore) -> None:
    client = Client(scripted.target)
    with pytest.raises(RuntimeError, match="async with"):
        await client.count("q")


async def test_moving_on_acknowledges_the_last_job(scripted: ScriptedCore, client: Client) -> None:
    second = Job()
    second.CopyFrom(JOB)
    second.id = 8
    scripted.answers["dequeue"] = handing_out(JOB, second)  # type: ignore[assignment]
    stop = asyncio.Event()
    async for job in client.work("q", stop=stop):
        if job.id == second.id:
            stop.set()
    assert [operation.acknowledge.id for operation in scripted.received("acknowledge")] == [7, 8]
    assert not scripted.received("release")


async def test_leaving_the_loop_by_an_error_gives_the_job_back(scripted: ScriptedCore, client: Client) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]

    async def work() -> None:
        async for _ in client.work("q"):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await work()
    await scripted.until(lambda: bool(scripted.received("release")))
    assert not scripted.received("acknowledge")


async def test_an_error_in_the_jobs_own_block_becomes_its_failure_reason(
    scripted: ScriptedCore, client: Client
) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]

    async def work() -> None:
        async for job in client.work("q"):
            async with job:
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await work()
    release = scripted.received("release")[0].release
    assert release.failure_reason == "ValueError: mine"
    assert not release.undo_attempt


async def test_a_lease_is_extended_while_the_body_runs(scripted: ScriptedCore, client: Client) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    async for job in client.work("q", lease_ms=600):
        async with job:
            await scripted.until(lambda: len(scripted.received("extend")) >= 4)
            assert not job.lost
        break
    assert [operation.extend.lease_ms for operation in scripted.received("extend")][:4] == [600] * 4
    assert len(scripted.received("acknowledge")) == 1


@pytest.mark.parametrize("answer", ["stale", "silent"])
async def test_a_lost_lease_stops_the_body(scripted: ScriptedCore, client: Client, answer: str) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    scripted.answers["extend"] = lambda operation: failed(operation, REASON_STALE_LEASE) if answer == "stale" else None

    async def work() -> None:
        async for job in client.work("q", lease_ms=200):
            async with job:
                await asyncio.get_running_loop().create_future()

    with pytest.raises(StaleLeaseError):
        await work()
    assert not scripted.received("acknowledge")
    assert not scripted.received("release")


async def test_an_acknowledgement_in_doubt_is_repeated_and_its_job_being_gone_is_success(
    scripted: ScriptedCore, client: Client
) -> None:
    answers = [REASON_UNAVAILABLE, REASON_UNAVAILABLE, REASON_JOB_NOT_FOUND]
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    scripted.answers["acknowledge"] = lambda operation: failed(operation, answers.pop(0))
    stop = asyncio.Event()
    async for job in client.work("q", stop=stop):
        await job.acknowledge()
        assert not job.lost
        stop.set()
    assert answers == []


async def test_a_worker_runs_handlers_side_by_side_and_stops_in_order(scripted: ScriptedCore, client: Client) -> None:
    jobs = [Job() for _ in range(3)]
    for number, job in enumerate(jobs):
        job.CopyFrom(JOB)
        job.id = number + 1
    scripted.answers["dequeue"] = handing_out(*jobs)  # type: ignore[assignment]
    stop, all_in = asyncio.Event(), asyncio.Barrier(3)

    async def handle(job: LeasedJob) -> None:
        await all_in.wait()
        stop.set()
        if job.id == 2:
            raise ValueError("mine")

    await client.run_worker("q", handler=handle, concurrency=3, stop=stop)
    assert sorted(operation.acknowledge.id for operation in scripted.received("acknowledge")) == [1, 3]
    assert [operation.release.id for operation in scripted.received("release")] == [2]


async def test_handlers_that_outlast_the_grace_give_their_jobs_back_uncounted(
    scripted: ScriptedCore, client: Client
) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    stop = asyncio.Event()

    async def handle(_: LeasedJob) -> None:
        stop.set()
        await asyncio.get_running_loop().create_future()

    await client.run_worker("q", handler=handle, grace_s=0, stop=stop)
    release = scripted.received("release")[0].release
    assert (release.failure_reason, release.undo_attempt) == ("the worker stopped", True)


async def test_a_cancelled_worker_gives_its_jobs_back(scripted: ScriptedCore, client: Client) -> None:
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    begun = asyncio.Event()

    async def handle(_: LeasedJob) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    working = asyncio.ensure_future(client.run_worker("q", handler=handle))
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert scripted.received("release")[0].release.undo_attempt


async def test_a_worker_outlives_its_core(scripted: ScriptedCore, client: Client, tmp_path: Path) -> None:
    stop, seen = asyncio.Event(), []

    async def handle(job: LeasedJob) -> None:
        seen.append(job.payload)
        stop.set()

    working = asyncio.ensure_future(client.run_worker("q", handler=handle, stop=stop))
    await scripted.until(lambda: bool(scripted.parked))
    await scripted.stop()
    scripted.answers["dequeue"] = handing_out(JOB)  # type: ignore[assignment]
    await scripted.start()
    await working
    assert seen == [b"work"]


@pytest.mark.parametrize("wrong", [{"lease_ms": 0}, {"concurrency": 0}])
async def test_a_worker_that_cannot_work_says_so(client: Client, wrong: dict[str, int]) -> None:
    async def handle(_: LeasedJob) -> None:
        pass

    with pytest.raises(ValueError, match="at least 1"):
        await client.run_worker("q", handler=handle, **wrong)  # type: ignore[arg-type]


async def test_acknowledging_by_id_needs_a_token(client: Client) -> None:
    with pytest.raises(ValueError, match="token"):
        await client.acknowledge(5)
