"""The session against a scripted core: batching, breaking, resuming, lapsing, back-pressure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from quintet.v1.job_pb2 import Job, NewJob
from quintet.v1.queue_service_pb2 import (
    AwaitJobsRequest,
    DequeueRequest,
    DequeueResponse,
    EnqueueRequest,
    ListQueuesRequest,
)
from quintet.v1.reason_pb2 import (
    REASON_CANCELLED,
    REASON_LIMIT_EXCEEDED,
    REASON_OWNER_CLOSED,
    REASON_SESSION_LAPSED,
    REASON_TOO_MANY_IN_FLIGHT,
    REASON_UNAVAILABLE,
)
from quintet.v1.session_service_pb2 import Failure, SessionOperation, SessionResult
from quintet_client.credentials import Credentials
from quintet_client.errors import QuintetError, UnauthenticatedError, UnavailableError
from quintet_client.session import Observer, Session

from tests.unit.client.scripted_core import ScriptedCore, disconnected


class Results:
    """Collects results; `await results.count(n)` waits for them."""

    def __init__(self) -> None:
        self.all: list[SessionResult] = []
        self._changed = asyncio.Event()

    def __call__(self, result: SessionResult) -> None:
        copy = SessionResult()
        copy.CopyFrom(result)
        self.all.append(copy)
        self._changed.set()

    async def count(self, wanted: int) -> list[SessionResult]:
        while len(self.all) < wanted:
            self._changed.clear()
            await self._changed.wait()
        return self.all

    @property
    def reasons(self) -> list[int]:
        return [result.failure.reason for result in self.all]


def job(rank: int, payload: bytes = b"x") -> EnqueueRequest:
    return EnqueueRequest(queue="q", jobs=[NewJob(payload=payload, rank=rank)])


WAIT_FOREVER = DequeueRequest(queues=["q"], wait_ms=-1, owner_lease=True)


class Losses:
    def __init__(self, session: Session) -> None:
        self.count = 0
        self.happened = asyncio.Event()
        session.on_leases_lost(self._lost)

    def _lost(self) -> None:
        self.count += 1
        self.happened.set()


async def test_operations_of_one_tick_go_out_as_one_request(core: ScriptedCore, session: Session) -> None:
    results = Results()
    owner = session.new_owner()
    sequences = [session.submit_enqueue(owner, job(rank), results) for rank in range(50)]
    assert session.in_flight == 50
    answered = await results.count(50)
    assert [result.sequence for result in answered] == sequences
    assert [result.enqueue.ids[0] for result in answered] == list(range(50))
    assert [len(request.operations) for request in core.requests if request.operations] == [50]
    assert session.in_flight == 0


async def test_an_empty_request_is_still_an_operation(core: ScriptedCore, session: Session) -> None:
    core.answers["list_queues"] = lambda operation: SessionResult(sequence=operation.sequence)
    results = Results()
    session.submit_list_queues(session.new_owner(), ListQueuesRequest(), results)
    await results.count(1)
    assert len(core.received("list_queues")) == 1


async def test_large_batches_are_split_by_bytes(core: ScriptedCore, session: Session) -> None:
    results = Results()
    owner = session.new_owner()
    for rank in range(5):
        session.submit_enqueue(owner, job(rank, b"x" * 3_000_000), results)
    assert not session.writable
    await results.count(5)
    assert session.writable
    assert [len(request.operations) for request in core.requests if request.operations] == [1] * 5


async def test_a_request_beyond_what_a_message_holds_is_refused_here(core: ScriptedCore, session: Session) -> None:
    results = Results()
    session.submit_enqueue(session.new_owner(), job(1, b"x" * (64 * 1024 * 1024)), results)
    assert results.all == []
    await results.count(1)
    assert results.reasons == [REASON_LIMIT_EXCEEDED]
    assert session.connected


async def test_a_broken_stream_answers_everything_in_flight_once(core: ScriptedCore, session: Session) -> None:
    core.answers["enqueue"] = lambda _: None
    results, waited = Results(), Results()
    owner = session.new_owner()
    for rank in range(3):
        session.submit_enqueue(owner, job(rank), results)
    session.submit_dequeue(owner, WAIT_FOREVER, waited)
    await core.until(lambda: len(core.operations) == 4)
    await core.break_streams()
    await results.count(3)
    await waited.count(1)
    assert results.reasons == [REASON_UNAVAILABLE] * 3
    assert waited.reasons == [REASON_UNAVAILABLE]
    assert session.parked == 0


async def test_a_broken_stream_is_resumed_and_leases_are_kept(core: ScriptedCore, session: Session) -> None:
    losses = Losses(session)
    await core.break_streams()
    await core.until(lambda: len(core.opens) == 2)
    await session.wait_connected(10)
    assert core.opens[1].resume_session == 1
    assert core.opens[1].resume_secret == b"secret"
    assert losses.count == 0
    assert session.leases_valid
    results = Results()
    session.submit_enqueue(session.new_owner(), job(7), results)
    assert (await results.count(1))[0].enqueue.ids == [7]


async def test_a_session_that_cannot_be_resumed_loses_its_leases_and_a_new_one_opens(
    core: ScriptedCore, session: Session
) -> None:
    losses = Losses(session)
    core.sessions.clear()
    await core.break_streams()
    await losses.happened.wait()
    await core.until(lambda: len(core.opens) == 3)
    await session.wait_connected(10)
    assert losses.count == 1
    assert core.opens[2].resume_session == 0


async def test_unanswered_heartbeats_lapse_the_session(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", session_ttl_ms=300)
    await core.start()
    core.answers_heartbeats = False
    session = await Session.connect(core.target)
    losses = Losses(session)
    waited = Results()
    session.submit_dequeue(session.new_owner(), WAIT_FOREVER, waited)
    await losses.happened.wait()
    await waited.count(1)
    assert waited.reasons == [REASON_UNAVAILABLE]
    await core.until(lambda: len(core.opens) >= 2)
    assert core.opens[1].resume_session == 0
    await session.close()
    await core.stop()


async def test_answered_heartbeats_keep_the_session(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", session_ttl_ms=1500)
    await core.start()
    session = await Session.connect(core.target)
    losses = Losses(session)
    await core.until(lambda: len(core.received("heartbeat")) >= 4)
    assert losses.count == 0
    assert session.leases_valid
    await session.close()
    await core.stop()


async def test_a_session_lapses_while_the_core_is_away(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", session_ttl_ms=300)
    await core.start()
    session = await Session.connect(core.target)
    losses = Losses(session)
    await core.stop()
    await losses.happened.wait()
    assert not session.leases_valid
    await core.start()
    await session.wait_connected(10)
    assert core.opens[-1].resume_session == 0
    assert losses.count == 1
    await session.close()
    await core.stop()


async def test_a_session_that_is_not_resumable_loses_its_leases_with_its_stream(core: ScriptedCore) -> None:
    session = await Session.connect(core.target, resumable=False)
    losses = Losses(session)
    await core.break_streams()
    await losses.happened.wait()
    await session.close()
    assert losses.count == 1


async def test_without_a_core_operations_fail_at_once(tmp_path: Path) -> None:
    session = await Session.connect(f"unix:{tmp_path / 'nobody.sock'}", wait_ready=False)
    results = Results()
    session.submit_enqueue(session.new_owner(), job(1), results)
    session.close_owner(1)
    session.cancel_wait(1, 1)
    assert results.all == []
    await results.count(1)
    assert results.reasons == [REASON_UNAVAILABLE]
    await session.close()


async def test_connect_says_why_it_failed(tmp_path: Path, core: ScriptedCore) -> None:
    with pytest.raises(UnavailableError):
        await Session.connect(f"unix:{tmp_path / 'nobody.sock'}", connect_timeout_s=0.2)
    core.refusal = grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(UnauthenticatedError):
        await Session.connect(core.target, connect_timeout_s=10)


async def test_a_session_that_started_without_a_core_finds_it_later(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock")
    session = await Session.connect(core.target, wait_ready=False)
    connected = asyncio.Event()
    session.on_connected(connected.set)
    await core.start()
    await connected.wait()
    assert session.connected
    await session.close()
    await core.stop()


async def test_operations_beyond_the_cores_bound_wait_their_turn(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", in_flight_max=10)
    await core.start()
    held: list[SessionOperation] = []
    core.answers["enqueue"] = held.append
    session = await Session.connect(core.target, backlog_max=5)
    results = Results()
    for rank in range(16):
        session.submit_enqueue(1, job(rank), results)
    assert not session.writable
    await core.until(lambda: len(held) == 10)
    await results.count(1)
    assert results.reasons == [REASON_TOO_MANY_IN_FLIGHT]
    writable = asyncio.Event()
    session.on_writable(writable.set)
    core.answers.clear()
    core.respond(*(SessionResult(sequence=operation.sequence) for operation in held))
    await results.count(16)
    await writable.wait()
    ranks = [operation.enqueue.jobs[0].rank for operation in core.received("enqueue")]
    assert ranks == list(range(15))
    await session.close()
    await core.stop()


async def test_parked_dequeues_do_not_count_as_in_flight(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", in_flight_max=2)
    await core.start()
    session = await Session.connect(core.target)
    waited = Results()
    for _ in range(20):
        session.submit_dequeue(session.new_owner(), WAIT_FOREVER, waited)
    await core.until(lambda: len(core.parked) == 20)
    assert session.parked == 20
    assert session.writable
    await session.close()
    await core.stop()


async def test_waits_that_take_nothing_do_not_count_as_in_flight(core: ScriptedCore, session: Session) -> None:
    waited = Results()
    sequence = session.submit_await_jobs(1, AwaitJobsRequest(queues=["q"], wait_ms=-1), waited)
    assert (session.parked, session.in_flight) == (1, 0)
    session.cancel_wait(1, sequence)
    await waited.count(1)
    assert waited.reasons == [REASON_CANCELLED]
    assert session.parked == 0


async def test_a_cancelled_wait_answers_cancelled(core: ScriptedCore, session: Session) -> None:
    waited = Results()
    sequence = session.submit_dequeue(1, WAIT_FOREVER, waited)
    session.cancel_wait(1, sequence)
    await waited.count(1)
    assert waited.reasons == [REASON_CANCELLED]


async def test_a_parked_dequeue_takes_what_comes(core: ScriptedCore, session: Session) -> None:
    waited = Results()
    sequence = session.submit_dequeue(1, WAIT_FOREVER, waited)
    await core.until(lambda: sequence in core.parked)
    core.respond(SessionResult(sequence=sequence, dequeue=DequeueResponse(jobs=[Job(id=5)])))
    assert (await waited.count(1))[0].dequeue.jobs[0].id == 5


async def test_a_closed_owner_answers_its_waits(core: ScriptedCore, session: Session) -> None:
    waited = Results()
    session.submit_dequeue(4, WAIT_FOREVER, waited)
    session.close_owner(4)
    await waited.count(1)
    assert waited.reasons == [REASON_OWNER_CLOSED]


async def test_an_owner_closed_while_away_is_closed_after_the_resume(core: ScriptedCore, session: Session) -> None:
    await core.stop()
    results = Results()
    session.submit_enqueue(1, job(1), results)
    await results.count(1)
    session.close_owner(77)
    await core.start()
    await core.until(lambda: any(operation.owner == 77 for operation in core.received("close_owner")))


async def test_an_owner_whose_close_is_in_doubt_is_closed_again(core: ScriptedCore, session: Session) -> None:
    core.answers["close_owner"] = lambda _: None
    session.close_owner(78)
    await core.until(lambda: len(core.received("close_owner")) == 1)
    await core.break_streams()
    await core.until(lambda: len(core.received("close_owner")) == 2)


async def test_what_is_submitted_during_a_hand_over_waits_for_the_next_stream(
    core: ScriptedCore, session: Session
) -> None:
    core.answers["enqueue"] = lambda _: None
    results = Results()
    session.submit_enqueue(1, job(1), results)
    await core.until(lambda: len(core.operations) == 1)
    core.announce_closing()
    await disconnected(session)
    held = Results()
    session.submit_enqueue(1, job(2), held)
    core.answers.clear()
    core.respond(SessionResult(sequence=core.operations[0].sequence))
    await results.count(1)
    assert results.reasons == [0]
    await core.break_streams()
    assert (await held.count(1))[0].enqueue.ids == [2]


async def test_a_hand_over_that_leads_nowhere_fails_what_waited(core: ScriptedCore, session: Session) -> None:
    core.announce_closing()
    await disconnected(session)
    held = Results()
    session.submit_enqueue(1, job(2), held)
    await core.stop()
    await held.count(1)
    assert held.reasons == [REASON_UNAVAILABLE]


async def test_close_is_orderly_and_answers_what_is_left(core: ScriptedCore) -> None:
    session = await Session.connect(core.target)
    losses = Losses(session)
    results, waited = Results(), Results()
    session.submit_dequeue(1, WAIT_FOREVER, waited)
    session.submit_enqueue(1, job(3), results)
    await session.close()
    assert core.half_closed.is_set()
    assert results.all[0].enqueue.ids == [3]
    assert waited.reasons == [REASON_UNAVAILABLE]
    assert losses.count == 0
    session.submit_enqueue(1, job(4), results)
    await results.count(2)
    assert results.reasons[1] == REASON_UNAVAILABLE


async def test_a_callback_that_raises_disturbs_no_other(core: ScriptedCore, session: Session) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    results = Results()

    def broken(_: SessionResult) -> None:
        raise ValueError("mine")

    session.submit_enqueue(1, job(1), broken)
    session.submit_enqueue(1, job(2), results)
    await results.count(1)
    assert isinstance(reported[0]["exception"], ValueError)


async def test_a_heartbeat_refused_for_good_lapses_the_session(tmp_path: Path) -> None:
    core = ScriptedCore(tmp_path / "core.sock", session_ttl_ms=900)
    core.answers["heartbeat"] = lambda operation: SessionResult(
        sequence=operation.sequence, failure=Failure(reason=REASON_SESSION_LAPSED)
    )
    await core.start()
    session = await Session.connect(core.target)
    losses = Losses(session)
    await losses.happened.wait()
    await session.close()
    await core.stop()


async def test_the_token_travels_and_is_read_anew(core: ScriptedCore, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("first\n")
    session = await Session.connect(core.target, credentials=Credentials(token_path=secret))
    assert core.metadata["authorization"] == "Bearer first"
    secret.write_text("second")
    await core.break_streams()
    await core.until(lambda: core.metadata["authorization"] == "Bearer second")
    await session.close()


async def test_the_observer_sees_the_life_of_the_session(core: ScriptedCore) -> None:
    seen: list[str] = []

    class Seen(Observer):
        def session_opened(self, resumed: bool) -> None:
            seen.append(f"opened resumed={resumed}")

        def session_broken(self, error: QuintetError) -> None:
            seen.append(f"broken {error.reason}")

    session = await Session.connect(core.target, observer=Seen())
    await core.break_streams()
    await core.until(lambda: len(core.opens) == 2)
    await session.wait_connected(10)
    await session.close()
    assert seen == ["opened resumed=False", "broken UNAVAILABLE", "opened resumed=True", "broken UNAVAILABLE"]
