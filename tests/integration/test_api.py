"""Every RPC by a real gRPC client, against a real core and a real Redis: what each does, and how each refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q
from quintet.v1.event_pb2 import EventKind
from quintet.v1.job_pb2 import JobState, NewJob, Placement
from quintet.v1.queue_pb2 import PauseDirection, QueueSettings, QueueStructure, RankRange

from tests.support.api import Api, refused
from tests.support.stack import CorePart

CODE = grpc.StatusCode


class TestJobs:
    async def test_are_handed_out_by_rank_then_in_order(self, api: Api, queue: str) -> None:
        ids = [(await api.put(queue, payload, rank=rank))[0] for payload, rank in ((b"c", 1), (b"a", -1), (b"b", -1))]
        response = await api.queues.Dequeue(q.DequeueRequest(queues=[queue], jobs_max=10))
        assert [(job.payload, job.id) for job in response.jobs] == [(b"a", ids[1]), (b"b", ids[2]), (b"c", ids[0])]

    async def test_keep_everything_they_were_given(self, api: Api, queue: str) -> None:
        (job_id,) = await api.put(
            queue,
            b"\x00payload",
            rank=-(2**63),
            content_type="text/plain",
            deduplication_key="once",
            attempts_max=3,
            time_to_live_ms=60_000,
            attributes={"trace": "1", "empty": ""},
        )
        job = (await api.queues.GetJob(q.GetJobRequest(id=job_id))).job
        assert (job.payload, job.rank, job.content_type, job.deduplication_key, job.attempts_max) == (
            b"\x00payload",
            -(2**63),
            "text/plain",
            "once",
            3,
        )
        assert dict(job.attributes) == {"trace": "1", "empty": ""}
        assert (job.namespace, job.queue, job.state, job.payload_bytes) == (
            "default",
            queue,
            JobState.JOB_STATE_READY,
            8,
        )
        assert job.expires_at_ms == job.enqueued_at_ms + 60_000
        assert not job.HasField("lease")
        assert (await api.queues.GetJob(q.GetJobRequest(id=job_id, without_payload=True))).job.payload == b""

    async def test_with_a_key_that_is_remembered_are_put_once(self, api: Api, queue: str) -> None:
        first = await api.put(queue, deduplication_key="k")
        response = await api.queues.Enqueue(
            q.EnqueueRequest(queue=queue, jobs=[NewJob(deduplication_key="k"), NewJob(deduplication_key="other")])
        )
        assert response.ids[0] == first[0]
        assert list(response.deduplicated_ids) == first

    async def test_are_acknowledged_once(self, api: Api, queue: str) -> None:
        await api.put(queue)
        job = await api.take(queue)
        acknowledgement = q.AcknowledgeRequest(id=job.id, token=job.lease.token)
        await api.queues.Acknowledge(acknowledgement)
        answer = await refused(api.queues.Acknowledge(acknowledgement))
        assert (answer.code, answer.reason) == (CODE.NOT_FOUND, "JOB_NOT_FOUND")

    async def test_are_fenced_by_their_token(self, api: Api, queue: str) -> None:
        await api.put(queue)
        old = await api.take(queue)
        await api.queues.Release(q.ReleaseRequest(id=old.id, token=old.lease.token))
        new = await api.take(queue)
        assert new.lease.token > old.lease.token
        for call, request in (
            (api.queues.Acknowledge, q.AcknowledgeRequest),
            (api.queues.Release, q.ReleaseRequest),
            (api.queues.Extend, q.ExtendRequest),
        ):
            answer = await refused(call(request(id=old.id, token=old.lease.token)))
            assert (answer.code, answer.reason) == (CODE.FAILED_PRECONDITION, "STALE_LEASE")
        await api.queues.Acknowledge(q.AcknowledgeRequest(id=old.id, any_lease=True))

    async def test_that_are_not_leased_cannot_be_acknowledged(self, api: Api, queue: str) -> None:
        (job_id,) = await api.put(queue)
        answer = await refused(api.queues.Acknowledge(q.AcknowledgeRequest(id=job_id, any_lease=True)))
        assert (answer.code, answer.reason) == (CODE.FAILED_PRECONDITION, "NOT_LEASED")

    async def test_are_another_queues_business_where_a_queue_is_named(self, api: Api, queue: str) -> None:
        (job_id,) = await api.put(queue)
        answer = await refused(api.queues.GetJob(q.GetJobRequest(id=job_id, queue=f"{queue}-other")))
        assert answer.reason == "JOB_NOT_FOUND"
        answer = await refused(api.queues.GetJob(q.GetJobRequest(id=job_id, namespace="other")))
        assert answer.reason == "JOB_NOT_FOUND"
        assert (await api.queues.GetJob(q.GetJobRequest(id=job_id, queue=queue))).job.id == job_id

    async def test_go_back_with_a_reason_and_a_delay(self, api: Api, queue: str) -> None:
        await api.put(queue)
        job = await api.take(queue, worker="w1")
        assert job.lease.worker == "w1"
        response = await api.queues.Release(
            q.ReleaseRequest(id=job.id, token=job.lease.token, delay_ms=3_600_000, failure_reason="no ink")
        )
        assert response.state == JobState.JOB_STATE_DELAYED
        seen = (await api.queues.GetJob(q.GetJobRequest(id=job.id))).job
        assert (seen.state, seen.failure_reason, seen.attempts) == (JobState.JOB_STATE_DELAYED, "no ink", 1)

    async def test_go_back_to_the_tail_when_told(self, api: Api, queue: str) -> None:
        first, second = await api.put(queue, b"1", b"2")
        job = await api.take(queue)
        assert job.id == first
        await api.queues.Release(
            q.ReleaseRequest(
                id=first, token=job.lease.token, delay_ms=0, placement=Placement.PLACEMENT_TAIL, undo_attempt=True
            )
        )
        taken = [await api.take(queue), await api.take(queue)]
        assert [(job.id, job.attempts) for job in taken] == [(second, 1), (first, 1)]

    async def test_keep_their_lease_when_it_is_extended(self, api: Api, queue: str) -> None:
        await api.put(queue)
        job = await api.take(queue, lease_ms=60_000)
        response = await api.queues.Extend(q.ExtendRequest(id=job.id, token=job.lease.token, lease_ms=600_000))
        assert response.deadline_at_ms > job.lease.deadline_at_ms

    async def test_are_deleted_in_any_state(self, api: Api, queue: str) -> None:
        leased, ready = await api.put(queue, b"1", b"2")
        (delayed,) = await api.put(queue, delay_ms=3_600_000)
        await api.take(queue)
        states = [(await api.queues.Delete(q.DeleteRequest(id=id))).state for id in (leased, ready, delayed)]
        assert states == [JobState.JOB_STATE_LEASED, JobState.JOB_STATE_READY, JobState.JOB_STATE_DELAYED]
        assert (await refused(api.queues.Delete(q.DeleteRequest(id=ready)))).reason == "JOB_NOT_FOUND"

    async def test_are_seen_without_being_taken(self, api: Api, queue: str) -> None:
        ids = await api.put(queue, b"1", b"2", b"3")
        seen = await api.queues.Peek(q.PeekRequest(queue=queue, jobs_max=2))
        assert [job.id for job in seen.jobs] == ids[:2]
        assert (await api.queues.Count(q.CountRequest(queue=queue))).counts.ready == 3

    async def test_are_listed_by_pages_in_each_state(self, api: Api, queue: str) -> None:
        ids = await api.put(queue, *(b"%d" % number for number in range(5)))
        (delayed,) = await api.put(queue, delay_ms=3_600_000)
        found: list[int] = []
        token = ""
        while True:
            page = await api.queues.ListJobs(
                q.ListJobsRequest(queue=queue, page_size=2, page_token=token, without_payload=True)
            )
            found += [job.id for job in page.jobs]
            token = page.next_page_token
            if not token:
                break
        assert found == ids
        page = await api.queues.ListJobs(q.ListJobsRequest(queue=queue, state=JobState.JOB_STATE_DELAYED))
        assert [job.id for job in page.jobs] == [delayed]

    async def test_that_used_up_their_attempts_are_dead_until_redriven(self, api: Api, queue: str) -> None:
        await api.put(queue, attempts_max=1)
        job = await api.take(queue)
        response = await api.queues.Release(
            q.ReleaseRequest(id=job.id, token=job.lease.token, failure_reason="broken pipe")
        )
        assert response.state == JobState.JOB_STATE_DEAD
        nothing = await api.queues.Redrive(q.RedriveRequest(queue=queue, failure_reason_contains="fire"))
        assert nothing.jobs == 0
        redriven = await api.queues.Redrive(
            q.RedriveRequest(queue=queue, failure_reason_contains="pipe", reset_attempts=True)
        )
        assert redriven.jobs == 1
        assert (await api.take(queue)).attempts == 1

    async def test_are_redriven_by_id(self, api: Api, queue: str) -> None:
        ids = await api.put(queue, b"1", b"2", delay_ms=3_600_000)
        state = JobState.JOB_STATE_DELAYED
        response = await api.queues.Redrive(q.RedriveRequest(queue=queue, state=state, ids=[ids[1], 2**60]))
        assert response.jobs == 1
        assert (await api.take(queue)).id == ids[1]

    async def test_are_purged_by_state(self, api: Api, queue: str) -> None:
        await api.put(queue, b"1", b"2")
        await api.put(queue, delay_ms=3_600_000)
        purged = await api.queues.Purge(q.PurgeRequest(queue=queue, states=[JobState.JOB_STATE_READY]))
        assert purged.jobs == 2
        assert (await api.queues.Purge(q.PurgeRequest(queue=queue))).jobs == 1

    async def test_end_their_lease_by_its_deadline_and_come_back(self, api: Api, queue: str) -> None:
        await api.put(queue)
        job = await api.take(queue, lease_ms=50)
        again = await api.take(queue, wait_ms=20_000)
        assert (again.id, again.attempts, again.failure_reason) == (job.id, 2, "lease expired")

    async def test_wait_out_their_delay(self, api: Api, queue: str) -> None:
        (job_id,) = await api.put(queue, delay_ms=100)
        assert not (await api.queues.Dequeue(q.DequeueRequest(queues=[queue]))).jobs
        assert (await api.take(queue, wait_ms=20_000)).id == job_id

    async def test_that_die_move_to_the_dead_letter_queue(self, api: Api, queue: str) -> None:
        letters = f"{queue}-letters"
        settings = QueueSettings(attempts_max=1, dead_letter_queue=letters)
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue, settings=settings))
        await api.put(queue, b"letter", attributes={"kept": "yes"}, content_type="text/x")
        job = await api.take(queue)
        await api.queues.Release(q.ReleaseRequest(id=job.id, token=job.lease.token, failure_reason="gave up"))
        letter = await api.take(letters, wait_ms=20_000, allow_missing=True)
        assert (letter.payload, letter.content_type) == (b"letter", "text/x")
        assert dict(letter.attributes) == {
            "kept": "yes",
            "quintet-dead-letter-source": queue,
            "quintet-dead-letter-reason": "gave up",
        }


class TestWaits:
    async def test_end_empty_when_their_time_is_over(self, api: Api, queue: str) -> None:
        response = await api.queues.Dequeue(q.DequeueRequest(queues=[queue], wait_ms=20, allow_missing=True))
        assert not response.jobs

    async def test_end_with_the_first_job(self, api: Api, queue: str) -> None:
        waiting = asyncio.ensure_future(api.take(queue, wait_ms=20_000, allow_missing=True))
        await asyncio.sleep(0)
        (job_id,) = await api.put(queue)
        assert (await waiting).id == job_id

    async def test_over_several_queues_end_with_a_job_of_any(self, api: Api, queue: str) -> None:
        names = [f"{queue}-{number}" for number in range(40)]
        waiting = asyncio.ensure_future(api.take(*names, wait_ms=20_000, allow_missing=True))
        await asyncio.sleep(0)
        await api.put(names[33], b"found")
        assert (await waiting).payload == b"found"

    async def test_of_a_caller_that_left_take_nothing(self, core: CorePart, api: Api, queue: str) -> None:
        call = api.queues.Dequeue(q.DequeueRequest(queues=[queue], wait_ms=-1, allow_missing=True))
        while core.metrics()["quintet_core_parked_dequeues"] == 0:
            await asyncio.sleep(0.01)
        call.cancel()
        while core.metrics()["quintet_core_parked_dequeues"] > 0:
            await asyncio.sleep(0.01)
        await api.put(queue)
        assert (await api.queues.Count(q.CountRequest(queue=queue))).counts.ready == 1


class TestAwaits:
    async def test_end_with_the_first_job_and_take_none(self, api: Api, queue: str) -> None:
        request = q.AwaitJobsRequest(queues=[queue, f"{queue}-2"], wait_ms=20_000, allow_missing=True)
        waiting = [asyncio.ensure_future(api.queues.AwaitJobs(request)) for _ in range(10)]
        await asyncio.sleep(0)
        await api.put(queue)
        assert all([(await each).ready for each in waiting])
        assert (await api.queues.Count(q.CountRequest(queue=queue))).counts.ready == 1

    async def test_end_when_their_time_is_over(self, api: Api, queue: str) -> None:
        request = q.AwaitJobsRequest(queues=[queue], wait_ms=20, allow_missing=True)
        assert not (await api.queues.AwaitJobs(request)).ready

    async def test_of_a_missing_queue_or_of_none_are_refused(self, api: Api, queue: str) -> None:
        missing = await refused(api.queues.AwaitJobs(q.AwaitJobsRequest(queues=[queue], wait_ms=-1)))
        assert missing.reason == "QUEUE_NOT_FOUND"
        assert (await refused(api.queues.AwaitJobs(q.AwaitJobsRequest()))).reason == "INVALID_ARGUMENT"

    async def test_of_a_caller_that_left_are_forgotten(self, core: CorePart, api: Api, queue: str) -> None:
        call = api.queues.AwaitJobs(q.AwaitJobsRequest(queues=[queue], wait_ms=-1, allow_missing=True))
        while core.metrics()["quintet_core_awaiting_jobs"] == 0:
            await asyncio.sleep(0.01)
        call.cancel()
        while core.metrics()["quintet_core_awaiting_jobs"] > 0:
            await asyncio.sleep(0.01)


class TestQueues:
    async def test_are_made_changed_and_shown(self, api: Api, queue: str) -> None:
        settings = QueueSettings(
            structure=QueueStructure.QUEUE_STRUCTURE_HEAP,
            jobs_max=0,
            payload_bytes_max=10,
            rank_range=RankRange(min=-5, max=5),
            lease_ms=1000,
            attempts_max=4,
            backoff_ms=10,
            backoff_max_ms=100,
            content_type="text/plain",
        )
        made = (await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue, settings=settings))).queue
        assert (made.name, made.namespace, made.settings) == (queue, "default", settings)
        changed = QueueSettings(lease_ms=7)
        answer = (await api.queues.UpdateQueue(q.UpdateQueueRequest(queue=queue, settings=changed))).queue
        assert answer.settings == changed
        shown = (await api.queues.GetQueue(q.GetQueueRequest(queue=queue))).queue
        assert (shown.settings, shown.created_at_ms) == (changed, made.created_at_ms)

    async def test_exist_once(self, api: Api, queue: str) -> None:
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue))
        answer = await refused(api.queues.CreateQueue(q.CreateQueueRequest(queue=queue)))
        assert (answer.code, answer.reason) == (CODE.ALREADY_EXISTS, "QUEUE_EXISTS")

    @pytest.mark.parametrize(
        "verb", ["Count", "GetQueue", "DeleteQueue", "Pause", "Resume", "Purge", "ListJobs", "Peek"]
    )
    async def test_that_are_not_there_are_not_found(self, api: Api, queue: str, verb: str) -> None:
        answer = await refused(getattr(api.queues, verb)(getattr(q, f"{verb}Request")(queue=queue)))
        assert (answer.code, answer.reason) == (CODE.NOT_FOUND, "QUEUE_NOT_FOUND")

    async def test_are_not_made_by_an_enqueue_that_does_not_say_so(self, api: Api, queue: str) -> None:
        answer = await refused(api.queues.Enqueue(q.EnqueueRequest(queue=queue, jobs=[NewJob()])))
        assert answer.reason == "QUEUE_NOT_FOUND"
        assert (await refused(api.queues.Dequeue(q.DequeueRequest(queues=[queue])))).reason == "QUEUE_NOT_FOUND"

    async def test_are_gone_with_their_jobs_when_deleted(self, api: Api, queue: str) -> None:
        (job_id,) = await api.put(queue)
        assert (await api.queues.DeleteQueue(q.DeleteQueueRequest(queue=queue))).jobs == 1
        assert (await refused(api.queues.GetJob(q.GetJobRequest(id=job_id)))).reason == "JOB_NOT_FOUND"

    async def test_that_are_paused_neither_take_nor_give(self, api: Api, queue: str) -> None:
        await api.put(queue)
        paused = (await api.queues.Pause(q.PauseRequest(queue=queue))).queue
        assert (paused.paused, paused.paused_until_ms) == (PauseDirection.PAUSE_DIRECTION_BOTH, 0)
        answer = await refused(api.put(queue))
        assert (answer.code, answer.reason) == (CODE.FAILED_PRECONDITION, "QUEUE_PAUSED")
        assert not (await api.queues.Dequeue(q.DequeueRequest(queues=[queue]))).jobs
        waiting = asyncio.ensure_future(api.take(queue, wait_ms=20_000))
        await asyncio.sleep(0)
        resumed = (await api.queues.Resume(q.ResumeRequest(queue=queue))).queue
        assert resumed.paused == PauseDirection.PAUSE_DIRECTION_UNSPECIFIED
        await waiting

    async def test_paused_for_a_time_go_on_by_themselves(self, api: Api, queue: str) -> None:
        await api.put(queue)
        request = q.PauseRequest(queue=queue, direction=PauseDirection.PAUSE_DIRECTION_OUT, duration_ms=50)
        await api.queues.Pause(request)
        await api.take(queue, wait_ms=20_000)

    async def test_refuse_what_their_settings_forbid(self, api: Api, queue: str) -> None:
        settings = QueueSettings(jobs_max=1, payload_bytes_max=2, rank_range=RankRange(min=0, max=9))
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue, settings=settings))
        ranked = await refused(api.put(queue, rank=10))
        assert (ranked.code, ranked.reason) == (CODE.OUT_OF_RANGE, "RANK_OUT_OF_RANGE")
        assert (ranked.metadata["min"], ranked.metadata["max"]) == ("0", "9")
        large = await refused(api.put(queue, b"xxx"))
        assert (large.code, large.reason, large.metadata["max"]) == (CODE.INVALID_ARGUMENT, "PAYLOAD_TOO_LARGE", "2")
        await api.put(queue, b"x")
        full = await refused(api.put(queue, b"x"))
        assert (full.code, full.reason, full.metadata["max"]) == (CODE.RESOURCE_EXHAUSTED, "QUEUE_FULL", "1")

    async def test_are_listed_by_name_in_pages(self, api: Api, queue: str) -> None:
        names = sorted(f"{queue}-{number:02d}" for number in range(25))
        for name in reversed(names):
            await api.queues.CreateQueue(q.CreateQueueRequest(queue=name))
        found: list[str] = []
        token = ""
        while True:
            request = q.ListQueuesRequest(prefix=queue, page_size=7, page_token=token)
            page = await api.queues.ListQueues(request)
            found += [told.name for told in page.queues]
            token = page.next_page_token
            if not token:
                break
        assert found == names

    async def test_of_other_namespaces_are_others(self, api: Api, queue: str) -> None:
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue, namespace="elsewhere"))
        assert (await refused(api.queues.GetQueue(q.GetQueueRequest(queue=queue)))).reason == "QUEUE_NOT_FOUND"
        page = await api.queues.ListQueues(q.ListQueuesRequest(namespace="elsewhere", prefix=queue))
        assert [told.namespace for told in page.queues] == ["elsewhere"]


BROKEN: list[tuple[str, Any, str]] = [
    ("Enqueue", q.EnqueueRequest(queue="b"), "INVALID_ARGUMENT"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob()] * 101), "LIMIT_EXCEEDED"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob(delay_ms=-1)]), "INVALID_ARGUMENT"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob(content_type="x" * 256)]), "LIMIT_EXCEEDED"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob(payload=bytes(4 * 1024 * 1024 + 1))]), "PAYLOAD_TOO_LARGE"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob(payload=bytes(3 << 20))] * 3), "LIMIT_EXCEEDED"),
    ("Enqueue", q.EnqueueRequest(queue="b", jobs=[NewJob(attributes={"k": "v" * 4096})]), "LIMIT_EXCEEDED"),
    ("Enqueue", q.EnqueueRequest(queue="é" * 2049, jobs=[NewJob()]), "LIMIT_EXCEEDED"),
    ("Enqueue", q.EnqueueRequest(queue="b", namespace="n" * 256, jobs=[NewJob()]), "LIMIT_EXCEEDED"),
    ("Dequeue", q.DequeueRequest(), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"], jobs_max=101), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"], wait_ms=-2), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"], wait_ms=2**32), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"], lease_ms=-1), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"] * 1001), "LIMIT_EXCEEDED"),
    ("Dequeue", q.DequeueRequest(queues=["b"], owner_lease=True), "INVALID_ARGUMENT"),
    ("Dequeue", q.DequeueRequest(queues=["b"], placement_on_close=9), "INVALID_ARGUMENT"),  # type: ignore[arg-type]
    ("Acknowledge", q.AcknowledgeRequest(id=0), "JOB_NOT_FOUND"),
    ("Acknowledge", q.AcknowledgeRequest(id=-5), "JOB_NOT_FOUND"),
    ("Acknowledge", q.AcknowledgeRequest(id=2**63 - 1), "JOB_NOT_FOUND"),
    ("Release", q.ReleaseRequest(id=1, delay_ms=-1), "INVALID_ARGUMENT"),
    ("Release", q.ReleaseRequest(id=1, failure_reason="x" * 1025), "LIMIT_EXCEEDED"),
    ("Release", q.ReleaseRequest(id=1, placement=9), "INVALID_ARGUMENT"),  # type: ignore[arg-type]
    ("Extend", q.ExtendRequest(id=1, lease_ms=366 * 86_400_000), "INVALID_ARGUMENT"),
    ("Peek", q.PeekRequest(queue="b", jobs_max=101), "INVALID_ARGUMENT"),
    ("Peek", q.PeekRequest(queue="b", state=9), "INVALID_ARGUMENT"),  # type: ignore[arg-type]
    ("ListJobs", q.ListJobsRequest(queue="b", page_size=1001), "INVALID_ARGUMENT"),
    ("ListJobs", q.ListJobsRequest(queue="b", page_token="nonsense"), "INVALID_ARGUMENT"),
    ("ListQueues", q.ListQueuesRequest(page_size=1001), "INVALID_ARGUMENT"),
    ("ListQueues", q.ListQueuesRequest(page_token="!"), "INVALID_ARGUMENT"),
    ("Redrive", q.RedriveRequest(queue="b", state=JobState.JOB_STATE_LEASED), "INVALID_ARGUMENT"),
    ("Redrive", q.RedriveRequest(queue="b", jobs_max=-1), "INVALID_ARGUMENT"),
    ("Purge", q.PurgeRequest(queue="b", states=[JobState.JOB_STATE_LEASED]), "INVALID_ARGUMENT"),
    ("Pause", q.PauseRequest(queue="b", direction=9), "INVALID_ARGUMENT"),  # type: ignore[arg-type]
    ("Pause", q.PauseRequest(queue="b", duration_ms=-1), "INVALID_ARGUMENT"),
    (
        "CreateQueue",
        q.CreateQueueRequest(queue="b", settings=QueueSettings(rank_range=RankRange(min=1, max=0))),
        "INVALID_ARGUMENT",
    ),
    ("UpdateQueue", q.UpdateQueueRequest(queue="b", settings=QueueSettings(jobs_max=-1)), "INVALID_ARGUMENT"),
    ("CreateQueue", q.CreateQueueRequest(queue="b", settings=QueueSettings(dead_letter_queue="b")), "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("verb", "request_", "reason"), BROKEN, ids=[f"{v}-{n}" for n, (v, _, _) in enumerate(BROKEN)])
async def test_a_broken_request_is_refused_with_its_reason(api: Api, verb: str, request_: Any, reason: str) -> None:
    answer = await refused(getattr(api.queues, verb)(request_))
    assert answer.reason == reason
    assert answer.message


class TestEvents:
    async def partition_of(self, api: Api, queue: str) -> int:
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue))
        partition: int = (await api.queues.GetQueue(q.GetQueueRequest(queue=queue))).queue.partition
        return partition

    async def test_tell_every_change_in_order_and_the_same_each_time(self, api: Api, queue: str) -> None:
        partition = await self.partition_of(api, queue)
        await api.put(queue, rank=7)
        job = await api.take(queue)
        await api.queues.Acknowledge(q.AcknowledgeRequest(id=job.id, token=job.lease.token))
        request = e.ReadEventsRequest(partition=partition, events_max=10_000)
        first, second = await api.events.ReadEvents(request), await api.events.ReadEvents(request)
        assert first == second
        offsets = [event.offset for event in first.events]
        assert offsets == list(range(offsets[0], first.last_offset + 1))
        mine = [event for event in first.events if event.queue == queue]
        assert [event.kind for event in mine] == [
            EventKind.EVENT_KIND_QUEUE_CREATED,
            EventKind.EVENT_KIND_JOB_ENQUEUED,
            EventKind.EVENT_KIND_JOB_DEQUEUED,
            EventKind.EVENT_KIND_JOB_ACKNOWLEDGED,
        ]
        assert [(event.job_id, event.rank) for event in mine[1:]] == [(job.id, 7)] * 3
        behind = await api.events.ReadEvents(
            e.ReadEventsRequest(partition=partition, after_offset=mine[1].offset, events_max=1)
        )
        assert [event.offset for event in behind.events] == [mine[1].offset + 1]

    async def test_are_committed_by_consumers_that_never_go_back(self, api: Api, queue: str) -> None:
        partition = await self.partition_of(api, queue)

        async def commit(offset: int, epoch: int) -> Any:
            request = e.CommitOffsetRequest(consumer=queue, partition=partition, offset=offset, epoch=epoch)
            return await api.events.CommitOffset(request)

        assert (await commit(1, 1)).committed_offset == 1
        assert (await commit(0, 2)).committed_offset == 1
        answer = await refused(commit(1, 1))
        assert (answer.code, answer.reason) == (CODE.FAILED_PRECONDITION, "STALE_EPOCH")
        assert (await refused(commit(2**40, 2))).reason == "INVALID_ARGUMENT"
        listed = await api.events.ListPartitions(e.ListPartitionsRequest(consumer=queue))
        assert len(listed.partitions) == 16
        assert (listed.partitions[partition].committed_offset, listed.partitions[partition].epoch) == (1, 2)
        assert listed.partitions[(partition + 1) % 16].committed_offset == -1

    @pytest.mark.parametrize(
        ("verb", "request_"),
        [
            ("ReadEvents", e.ReadEventsRequest(partition=16)),
            ("ReadEvents", e.ReadEventsRequest(after_offset=-1)),
            ("ReadEvents", e.ReadEventsRequest(events_max=10_001)),
            ("CommitOffset", e.CommitOffsetRequest()),
            ("CommitOffset", e.CommitOffsetRequest(consumer="c", offset=-1)),
            ("CommitOffset", e.CommitOffsetRequest(consumer="c", epoch=2**63)),
        ],
    )
    async def test_refuse_what_is_broken(self, api: Api, verb: str, request_: Any) -> None:
        assert (await refused(getattr(api.events, verb)(request_))).reason == "INVALID_ARGUMENT"

    async def test_are_followed_as_they_are_committed(self, api: Api, queue: str) -> None:
        await api.queues.CreateQueue(q.CreateQueueRequest(queue=queue, namespace=queue))
        stream = api.events.Subscribe(e.SubscribeRequest(namespace=queue, from_earliest=True))
        seen = await stream.read()
        assert [event.kind for event in seen.events] == [EventKind.EVENT_KIND_QUEUE_CREATED]
        await api.queues.Enqueue(q.EnqueueRequest(namespace=queue, queue=queue, jobs=[NewJob()]))
        seen = await stream.read()
        assert [event.kind for event in seen.events] == [EventKind.EVENT_KIND_JOB_ENQUEUED]
        stream.cancel()

    async def test_cannot_be_followed_from_a_partition_there_is_not(self, api: Api) -> None:
        stream = api.events.Subscribe(e.SubscribeRequest(starts=[e.PartitionOffset(partition=99)]))
        assert (await refused(stream.read())).reason == "INVALID_ARGUMENT"


class TestAdmin:
    async def test_tells_that_a_reply_means_on_disk(self, api: Api) -> None:
        told = await api.admin.GetDurability(a.GetDurabilityRequest())
        assert (told.durable, told.weak_allowed, list(told.weaknesses)) == (True, False, [])
        assert (told.append_only, told.append_fsync, told.eviction_policy) == (True, "always", "noeviction")
        assert told.append_only_last_write_status == "ok"
        assert told.checked_at_ms > 0

    async def test_tells_who_the_core_is(self, api: Api) -> None:
        told = await api.admin.GetInfo(a.GetInfoRequest())
        assert (told.partitions, told.ready, told.draining) == (16, True, False)
        assert told.redis_version.startswith("7.")
        assert told.version
        assert told.library_version >= 1
        assert len(told.replica) == 16


class TestTheServer:
    @pytest.mark.parametrize(
        "service", ["", *(f"quintet.v1.{name}Service" for name in ("Queue", "Session", "Event", "Admin"))]
    )
    async def test_serves_health(self, api: Api, service: str) -> None:
        answer = await api.health.Check(HealthCheckRequest(service=service))
        assert answer.status == HealthCheckResponse.SERVING

    async def test_serves_reflection(self, api: Api) -> None:
        stub: Any = ServerReflectionStub(api.channel)
        async for answer in stub.ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")])):
            names = {service.name for service in answer.list_services_response.service}
            break
        ours = {f"quintet.v1.{name}Service" for name in ("Queue", "Table", "Session", "Event", "Admin")}
        assert {*ours, "grpc.health.v1.Health"} <= names

    async def test_says_unimplemented_to_what_it_does_not_know(self, api: Api) -> None:
        call: Any = api.channel.unary_unary("/quintet.v1.QueueService/Explode", None, None)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
        assert caught.value.code() is CODE.UNIMPLEMENTED

    async def test_counts_what_it_answered(self, core: CorePart, api: Api, queue: str) -> None:
        def answered(outcome: str) -> float:
            return core.metrics()[f'quintet_core_operations_total{{outcome="{outcome}",verb="count"}}']

        good, bad = answered("ok"), answered("queue_not_found")
        await api.put(queue)
        await api.queues.Count(q.CountRequest(queue=queue))
        await refused(api.queues.Count(q.CountRequest(queue=f"{queue}-not")))
        assert (answered("ok"), answered("queue_not_found")) == (good + 1, bad + 1)

    async def test_is_ready_and_alive(self, core: CorePart) -> None:
        assert core.readiness() == (200, "ready")

    async def test_shows_its_socket_to_its_owner_alone(self, core: CorePart) -> None:
        assert core.socket.stat().st_mode & 0o777 == 0o600
