"""The Session stream, message by message, against a real core."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1.job_pb2 import JobState, NewJob, Placement
from quintet.v1.reason_pb2 import Reason

from tests.support.api import Api, refused

FIELD_OF = {
    field.message_type.full_name: field.name
    for field in s.SessionOperation.DESCRIPTOR.oneofs_by_name["operation"].fields
    if field.message_type is not None
}


class Stream:
    """A session by hand."""

    def __init__(self, api: Api, opening: s.SessionOpen) -> None:
        self._call = api.sessions.Session()
        self._opening: s.SessionOpen | None = opening
        self._sequence = 0
        self._results: dict[int, s.SessionResult] = {}
        self.opened = s.SessionOpened()
        self.closing: s.SessionClosing | None = None
        self.order: list[int] = []

    @classmethod
    async def open(cls, api: Api, **fields: Any) -> Stream:
        stream = cls(api, s.SessionOpen(**fields))
        await stream.send()
        await stream._read()
        return stream

    async def send(self, *operations: tuple[int, Message]) -> list[int]:
        """Operations of (owner, request) in one message; their sequences."""
        sent = []
        for owner, request in operations:
            self._sequence += 1
            named: Any = {FIELD_OF[request.DESCRIPTOR.full_name]: request}
            sent.append(s.SessionOperation(sequence=self._sequence, owner=owner, **named))
        opening, self._opening = self._opening, None
        await self._call.write(s.SessionRequest(open=opening, operations=sent))
        return [operation.sequence for operation in sent]

    async def result(self, sequence: int) -> s.SessionResult:
        while sequence not in self._results:
            assert await self._read(), "the stream ended"
        return self._results[sequence]

    async def do(self, owner: int, request: Message) -> s.SessionResult:
        (sequence,) = await self.send((owner, request))
        return await self.result(sequence)

    async def _read(self) -> bool:
        response = await self._call.read()
        if response is grpc.aio.EOF:  # type: ignore[attr-defined]
            return False
        if response.HasField("opened"):
            self.opened = response.opened
        if response.HasField("closing"):
            self.closing = response.closing
        for result in response.results:
            assert result.sequence not in self._results, "answered twice"
            self._results[result.sequence] = result
            self.order.append(result.sequence)
        return True

    async def refusal(self) -> Any:
        return await refused(self._call.read())

    async def half_close(self) -> None:
        """The orderly end: everything in flight is answered, then the stream ends."""
        await self._call.done_writing()
        while await self._read():
            pass

    def break_off(self) -> None:
        self._call.cancel()


@pytest.fixture
async def stream(api: Api) -> Stream:
    return await Stream.open(api, client="test")


def put(queue: str, payload: bytes = b"x") -> q.EnqueueRequest:
    return q.EnqueueRequest(queue=queue, jobs=[NewJob(payload=payload)], create_if_missing=True)


def take(queue: str, wait_ms: int = 0, **fields: Any) -> q.DequeueRequest:
    return q.DequeueRequest(queues=[queue], wait_ms=wait_ms, allow_missing=True, owner_lease=True, **fields)


def told_of(queue: str, wait_ms: int = -1) -> q.AwaitJobsRequest:
    return q.AwaitJobsRequest(queues=[queue], wait_ms=wait_ms, allow_missing=True)


async def ready(api: Api, queue: str) -> int:
    counts: int = (await api.queues.Count(q.CountRequest(queue=queue))).counts.ready
    return counts


class TestOpening:
    async def test_tells_what_the_session_is(self, stream: Stream) -> None:
        opened = stream.opened
        assert opened.session
        assert opened.secret
        assert (opened.session_ttl_ms, opened.in_flight_max, opened.resumed) == (10_000, 10_000, False)

    async def test_must_come_first(self, api: Api) -> None:
        stream = Stream(api, s.SessionOpen())
        stream._opening = None
        await stream.send()
        assert (await stream.refusal()).reason == "INVALID_ARGUMENT"

    async def test_with_a_label_too_long_is_refused(self, api: Api) -> None:
        stream = Stream(api, s.SessionOpen(client="x" * 256))
        await stream.send()
        assert (await stream.refusal()).reason == "LIMIT_EXCEEDED"

    async def test_may_carry_operations(self, api: Api, queue: str) -> None:
        stream = Stream(api, s.SessionOpen())
        (sequence,) = await stream.send((1, put(queue)))
        assert (await stream.result(sequence)).enqueue.ids
        assert stream.opened.session


class TestOperations:
    async def test_of_one_owner_take_effect_in_the_order_sent(self, stream: Stream, queue: str) -> None:
        names = [f"{queue}-{number}" for number in range(20)]
        operations: list[tuple[int, Message]] = []
        for name in names:  # over many partitions: each dequeue finds what was put just before it
            operations += [(1, put(name)), (1, take(name))]
        sequences = await stream.send(*operations)
        taken = [await stream.result(sequence) for sequence in sequences[1::2]]
        assert [result.dequeue.jobs[0].queue for result in taken] == names

    async def test_are_each_answered_with_their_own_kind(self, stream: Stream, queue: str) -> None:
        (id_,) = (await stream.do(1, put(queue))).enqueue.ids
        assert (await stream.do(1, q.GetJobRequest(id=id_))).get_job.job.state == JobState.JOB_STATE_READY
        assert (await stream.do(1, q.PeekRequest(queue=queue))).peek.jobs[0].id == id_
        assert (await stream.do(1, q.CountRequest(queue=queue))).count.counts.ready == 1
        assert (await stream.do(1, q.GetQueueRequest(queue=queue))).get_queue.queue.name == queue
        assert (await stream.do(1, q.ListQueuesRequest(prefix=queue))).list_queues.queues[0].name == queue
        job = (await stream.do(1, take(queue))).dequeue.jobs[0]
        released = await stream.do(1, q.ReleaseRequest(id=id_, token=job.lease.token, delay_ms=0))
        assert released.release.state == JobState.JOB_STATE_READY
        job = (await stream.do(1, q.DequeueRequest(queues=[queue], lease_ms=60_000))).dequeue.jobs[0]
        extended = await stream.do(1, q.ExtendRequest(id=id_, token=job.lease.token, lease_ms=120_000))
        assert extended.extend.deadline_at_ms > job.lease.deadline_at_ms
        acknowledged = await stream.do(1, q.AcknowledgeRequest(id=id_, token=job.lease.token))
        assert acknowledged.WhichOneof("result") == "acknowledge"
        (id_,) = (await stream.do(1, put(queue))).enqueue.ids
        assert (await stream.do(1, q.DeleteRequest(id=id_))).delete.state == JobState.JOB_STATE_READY
        assert (await stream.do(1, q.DeleteQueueRequest(queue=queue))).delete_queue.jobs == 0
        assert (await stream.do(1, q.CreateQueueRequest(queue=queue))).create_queue.queue.name == queue
        assert (await stream.do(1, s.Heartbeat())).WhichOneof("result") == "heartbeat"

    async def test_that_are_refused_say_why_and_end_nothing(self, stream: Stream, queue: str) -> None:
        failure = (await stream.do(1, q.CountRequest(queue=queue))).failure
        assert failure.reason == Reason.REASON_QUEUE_NOT_FOUND
        failure = (await stream.do(1, q.EnqueueRequest(queue=queue))).failure
        assert (failure.reason, failure.metadata["field"]) == (Reason.REASON_INVALID_ARGUMENT, "jobs")
        failure = (await stream.do(1, q.ListQueuesRequest(page_token="!"))).failure
        assert failure.reason == Reason.REASON_INVALID_ARGUMENT
        assert (await stream.do(1, put(queue))).enqueue.ids

    async def test_that_are_empty_are_refused(self, stream: Stream) -> None:
        await stream._call.write(s.SessionRequest(operations=[s.SessionOperation(sequence=77, owner=1)]))
        assert (await stream.result(77)).failure.reason == Reason.REASON_INVALID_ARGUMENT

    async def test_with_large_payloads_come_back_whole(self, stream: Stream, queue: str) -> None:
        payload = bytes(3 << 20)
        for _ in range(6):
            await stream.do(1, put(queue, payload))
        sequences = await stream.send(*((owner, take(queue)) for owner in range(6)))
        results = [await stream.result(sequence) for sequence in sequences]
        assert all(result.dequeue.jobs[0].payload == payload for result in results)

    async def test_by_the_thousand_are_all_answered(self, stream: Stream, queue: str) -> None:
        sequences = []
        for _ in range(20):
            sequences += await stream.send(*((owner, put(queue)) for owner in range(1000)))
        results = [await stream.result(sequence) for sequence in sequences]
        assert len({id_ for result in results for id_ in result.enqueue.ids}) == 20_000


class TestWaits:
    async def test_do_not_keep_others_from_their_answers(self, stream: Stream, queue: str) -> None:
        waiting, counting = await stream.send((1, take(queue, -1)), (1, q.ListQueuesRequest()))
        await stream.result(counting)
        await stream.do(1, put(queue))
        assert (await stream.result(waiting)).dequeue.jobs

    async def test_are_served_in_the_order_they_came(self, stream: Stream, queue: str) -> None:
        waits = await stream.send(*((owner, take(queue, -1)) for owner in range(20)))
        await stream.do(99, q.ListQueuesRequest())
        for number in range(20):
            await stream.do(99, put(queue, str(number).encode()))
        payloads = [(await stream.result(wait)).dequeue.jobs[0].payload for wait in waits]
        assert payloads == [str(number).encode() for number in range(20)]

    async def test_end_when_they_are_cancelled(self, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, take(queue, -1)))
        assert (await stream.do(1, s.CancelWait(sequence=waiting))).WhichOneof("result") == "cancel_wait"
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_CANCELLED
        assert (await stream.do(1, s.CancelWait(sequence=12345))).WhichOneof("result") == "cancel_wait"

    async def test_of_another_owner_cannot_be_cancelled(self, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, take(queue, -1)))
        await stream.do(2, s.CancelWait(sequence=waiting))
        await stream.do(2, put(queue))
        assert (await stream.result(waiting)).dequeue.jobs

    async def test_end_empty_in_their_time(self, stream: Stream, queue: str) -> None:
        assert not (await stream.do(1, take(queue, 30))).dequeue.jobs

    async def test_of_a_queue_that_is_deleted_end_when_it_must_exist(self, stream: Stream, queue: str) -> None:
        await stream.do(1, q.CreateQueueRequest(queue=queue))
        (waiting,) = await stream.send((1, q.DequeueRequest(queues=[queue], wait_ms=-1)))
        await stream.do(1, q.DeleteQueueRequest(queue=queue))
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_QUEUE_NOT_FOUND


class TestAwaits:
    async def test_are_told_of_a_job_and_take_none(self, api: Api, stream: Stream, queue: str) -> None:
        waits = await stream.send(*((owner, told_of(queue)) for owner in range(20)))
        assert not (await stream.do(99, told_of(queue, 0))).await_jobs.ready
        await stream.do(99, put(queue))
        assert all([(await stream.result(wait)).await_jobs.ready for wait in waits])
        assert (await stream.do(99, told_of(queue, 0))).await_jobs.ready
        assert await ready(api, queue) == 1

    async def test_end_when_they_are_cancelled_or_their_time_is_over(self, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, told_of(queue)))
        await stream.do(1, s.CancelWait(sequence=waiting))
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_CANCELLED
        assert (await stream.do(1, told_of(queue, 30))).WhichOneof("result") == "await_jobs"

    async def test_end_when_their_owner_closes(self, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, told_of(queue)))
        await stream.do(1, s.CloseOwner())
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_OWNER_CLOSED

    async def test_by_the_thousand_are_not_among_what_is_in_flight(self, stream: Stream, queue: str) -> None:
        waits = await stream.send(*((1, told_of(queue)) for _ in range(stream.opened.in_flight_max + 1)))
        await stream.do(1, put(queue))
        assert all([(await stream.result(wait)).await_jobs.ready for wait in waits])

    async def test_share_no_sequence_with_another_wait(self, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, told_of(queue)))
        stream._sequence = waiting - 1
        assert (await stream.do(1, told_of(queue))).failure.reason == Reason.REASON_INVALID_ARGUMENT


class TestOwners:
    async def test_give_back_everything_when_they_close(self, api: Api, stream: Stream, queue: str) -> None:
        names = [f"{queue}-{number}" for number in range(5)]
        for name in names:
            await stream.do(1, put(name))
            await stream.do(1, take(name))
        await stream.do(1, put(queue))
        await stream.do(2, take(queue))
        assert (await stream.do(1, s.CloseOwner())).close_owner.released == 5
        assert [await ready(api, name) for name in names] == [1] * 5
        assert await ready(api, queue) == 0
        assert (await stream.do(1, s.CloseOwner())).close_owner.released == 0

    async def test_end_their_waits_when_they_close(self, api: Api, stream: Stream, queue: str) -> None:
        (waiting,) = await stream.send((1, take(queue, -1)))
        await stream.do(1, s.CloseOwner())
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_OWNER_CLOSED
        await stream.do(2, put(queue))
        assert await ready(api, queue) == 1

    async def test_give_jobs_back_where_the_dequeue_said(self, api: Api, stream: Stream, queue: str) -> None:
        for payload in (b"1", b"2"):
            await stream.do(1, put(queue, payload))
        await stream.do(1, take(queue, placement_on_close=Placement.PLACEMENT_TAIL))
        await stream.do(1, s.CloseOwner())
        assert [(await api.take(queue)).payload for _ in range(2)] == [b"2", b"1"]

    async def test_keep_the_leases_they_know_of(self, api: Api, stream: Stream, queue: str) -> None:
        ids = [(await stream.do(1, put(queue))).enqueue.ids[0] for _ in range(3)]
        assert len((await stream.do(1, take(queue, jobs_max=3))).dequeue.jobs) == 3
        assert (await stream.do(1, s.KeepLeases(ids=ids[:1]))).keep_leases.released == 2
        assert await ready(api, queue) == 2


class TestTheEnd:
    async def test_in_order_answers_what_is_in_flight_and_gives_everything_back(
        self, api: Api, stream: Stream, queue: str
    ) -> None:
        await stream.do(1, put(queue))
        await stream.do(1, take(queue))
        waiting, putting = await stream.send((2, take(f"{queue}-other", -1)), (2, put(queue)))
        await stream.half_close()
        assert (await stream.result(putting)).enqueue.ids
        assert (await stream.result(waiting)).failure.reason == Reason.REASON_CANCELLED
        assert await ready(api, queue) == 2

    async def test_by_a_break_gives_everything_back(self, api: Api, stream: Stream, queue: str) -> None:
        await stream.do(1, put(queue))
        await stream.do(1, take(queue))
        again = asyncio.ensure_future(api.take(queue, wait_ms=-1))
        stream.break_off()
        assert (await again).failure_reason == "owner closed"

    async def test_by_a_break_leaves_no_job_with_a_waiter_that_is_gone(
        self, api: Api, stream: Stream, queue: str
    ) -> None:
        await stream.send((1, take(queue, -1)), (1, q.ListQueuesRequest()))
        await stream.result(2)
        again = asyncio.ensure_future(api.take(queue, wait_ms=-1, allow_missing=True))
        stream.break_off()
        await api.put(queue)
        await again

    async def test_by_a_break_can_be_resumed_leases_and_all(self, api: Api, queue: str) -> None:
        stream = await Stream.open(api, resumable=True)
        await stream.do(7, put(queue))
        job = (await stream.do(7, take(queue))).dequeue.jobs[0]
        stream.break_off()
        opened = stream.opened
        again = await Stream.open(api, resume_session=opened.session, resume_secret=opened.secret, resumable=True)
        assert (again.opened.resumed, again.opened.session) == (True, opened.session)
        assert await ready(api, queue) == 0
        answer = await again.do(7, q.AcknowledgeRequest(id=job.id, token=job.lease.token))
        assert answer.WhichOneof("result") == "acknowledge"

    async def test_of_a_resumed_session_still_gives_back_what_it_held(self, api: Api, queue: str) -> None:
        stream = await Stream.open(api, resumable=True)
        await stream.do(7, put(queue))
        await stream.do(7, take(queue))
        stream.break_off()
        opened = stream.opened
        again = await Stream.open(api, resume_session=opened.session, resume_secret=opened.secret, resumable=True)
        assert (await again.do(7, s.CloseOwner())).close_owner.released == 1

    async def test_in_order_is_for_good(self, api: Api, queue: str) -> None:
        stream = await Stream.open(api, resumable=True)
        await stream.do(1, put(queue))
        await stream.do(1, take(queue))
        await stream.half_close()
        opened = stream.opened
        again = Stream(api, s.SessionOpen(resume_session=opened.session, resume_secret=opened.secret))
        await again.send()
        assert (await again.refusal()).reason == "SESSION_LAPSED"

    async def test_a_session_is_resumed_by_nobody_else(self, api: Api) -> None:
        stream = await Stream.open(api, resumable=True)
        again = Stream(api, s.SessionOpen(resume_session=stream.opened.session, resume_secret=b"guessed"))
        await again.send()
        assert (await again.refusal()).reason == "SESSION_NOT_FOUND"
