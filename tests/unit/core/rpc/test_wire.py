"""What is encoded by hand means what the generated classes say."""

from __future__ import annotations

import struct

import msgspec
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from quintet.v1 import job_pb2
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet_core.domain.job import Job, JobState, Lease, LeasedRecord
from quintet_core.domain.outcomes import Deleted, Dequeued
from quintet_core.rpc import wire

U32, U64, I63 = 2**32 - 1, 2**64 - 1, 2**63 - 1
# Lengths at which a varint grows, and at which the table of short lengths ends.
BORDERS = (0, 1, 127, 128, 4095, 4096, 16_383, 16_384, 2_097_151, 2_097_152)

sequences = st.integers(0, U64) | st.sampled_from([0, 1, U64])
texts = st.text(max_size=60) | st.sampled_from(["", "é" * 2000, "x" * 4096, "\0"])
labels = st.text(max_size=60) | st.sampled_from(["", "é" * 127, "x" * 255, "\0"])
ids = st.integers(1, 2**53 - 1)
instants = st.integers(0, 2**53) | st.sampled_from([0, I63])
ranks = st.integers(-(2**63), I63) | st.sampled_from([-(2**63), -1, 0, 1, I63])
payloads = st.binary(max_size=300) | st.sampled_from([127, 128, 4095, 4096, 16_383, 16_384]).map(bytes)
leases = st.builds(
    Lease, st.integers(0, U64), instants, st.sampled_from(["", "worker", "é" * 127]) | st.text(max_size=20)
)
jobs = st.builds(
    Job,
    id=ids,
    namespace=texts,
    queue=texts,
    payload=payloads,
    content_type=st.sampled_from(["", "text/plain", "x" * 255]),
    rank=ranks,
    state=st.just(JobState.LEASED),
    enqueued_at_ms=instants,
    available_at_ms=instants,
    expires_at_ms=instants,
    attempts=st.integers(0, U32),
    attempts_max=st.integers(0, U32),
    failure_reason=texts,
    lease=leases,
    deduplication_key=labels,
    attributes=st.dictionaries(st.text(max_size=10), st.text(max_size=200), max_size=5),
    payload_bytes=st.integers(0, U32),
)


def job_message(job: Job) -> job_pb2.Job:
    """The same by the generated class."""
    assert job.lease is not None
    lease = job_pb2.Lease(token=job.lease.token, deadline_at_ms=job.lease.deadline_at_ms, worker=job.lease.worker)
    return job_pb2.Job(
        id=job.id,
        namespace=job.namespace,
        queue=job.queue,
        payload=job.payload,
        content_type=job.content_type,
        rank=job.rank,
        state=int(job.state),  # type: ignore[arg-type]
        enqueued_at_ms=job.enqueued_at_ms,
        available_at_ms=job.available_at_ms,
        expires_at_ms=job.expires_at_ms,
        attempts=job.attempts,
        attempts_max=job.attempts_max,
        failure_reason=job.failure_reason,
        lease=lease,
        deduplication_key=job.deduplication_key,
        attributes=job.attributes,
        payload_bytes=job.payload_bytes,
    )


RUN = struct.Struct(">BBIIQQQQQQQQIIQQBH")
BODY = struct.Struct(">IQQQQIQIBBH")


def record(job: Job) -> LeasedRecord:
    """The job as the function library hands it out: formats of storage/lua/10_codec.lua."""
    assert job.lease is not None
    worker, reason, rank = job.lease.worker.encode(), job.failure_reason.encode(), job.rank + 2**63
    run = RUN.pack(
        job.state, 1, job.attempts, 5, rank, 6, job.lease.token, job.lease.deadline_at_ms, 8, 9, 10,
        job.expires_at_ms, job.attempts_max, job.payload_bytes, 11, 12, len(worker), len(reason),
    )  # fmt: skip
    kind, key = job.content_type.encode(), job.deduplication_key.encode()
    attributes = msgspec.msgpack.encode(job.attributes) if job.attributes else b""
    body = BODY.pack(
        5, rank, job.enqueued_at_ms, job.available_at_ms, 13, 14, 15, 16, len(kind), len(key), len(attributes)
    )
    return LeasedRecord(
        job.id, job.namespace, job.queue, run + worker + reason, body + kind + key + attributes + job.payload
    )


def leased(job: Job) -> bytes:
    """The job's message as it goes out, of the size that was told."""
    size, parts = wire.leased_job(record(job))
    encoded = b"".join(parts)
    assert len(encoded) == size
    return encoded


def plain_job(payload: bytes, queue: str = "q") -> Job:
    lease = Lease(7, 0)
    return Job(
        1, "default", queue, payload, "", 0, JobState.LEASED, 1, 1, 0, 1, 0, "", lease, "", {}, len(payload)
    )  # fmt: skip


def results(*encoded: bytes) -> list[s.SessionResult]:
    """What a client reads when these are sent together."""
    return list(s.SessionResponse.FromString(b"".join(encoded)).results)


@given(sequences, ids | st.just(I63))
def test_an_enqueue_response_with_one_id(sequence: int, job_id: int) -> None:
    expected = s.SessionResult(sequence=sequence, enqueue=q.EnqueueResponse(ids=[job_id]))
    assert results(wire.enqueued_one(sequence, job_id)) == [expected]


@given(sequences)
def test_an_acknowledge_response(sequence: int) -> None:
    expected = s.SessionResult(sequence=sequence, acknowledge=q.AcknowledgeResponse())
    assert results(wire.acknowledged(sequence)) == [expected]


@given(sequences, st.sampled_from(JobState))
def test_a_delete_response(sequence: int, state: JobState) -> None:
    expected = s.SessionResult(sequence=sequence, delete=q.DeleteResponse(state=int(state)))  # type: ignore[arg-type]
    assert results(wire.deleted(sequence, Deleted(state))) == [expected]


@given(jobs)
def test_a_leased_job(job: Job) -> None:
    assert job_pb2.Job.FromString(leased(job)) == job_message(job)


@settings(max_examples=50)
@given(sequences, st.lists(jobs, max_size=3))
def test_a_dequeue_response(sequence: int, found: list[Job]) -> None:
    expected = s.SessionResult(sequence=sequence, dequeue=q.DequeueResponse(jobs=map(job_message, found)))
    assert results(wire.dequeued(sequence, Dequeued(list(map(record, found))))) == [expected]


@pytest.mark.parametrize("size", BORDERS)
def test_payloads_at_every_length_at_which_their_length_grows(size: int) -> None:
    job = plain_job(bytes(size))
    assert job_pb2.Job.FromString(leased(job)) == job_message(job)


@pytest.mark.parametrize("border", BORDERS[2:])
def test_jobs_and_results_at_every_length_at_which_their_length_grows(border: int) -> None:
    """Whatever surrounds the payload is some 80 bytes: around the border every length of a job and a result is met."""
    for size in range(max(0, border - 120), border + 2, 7 if border > 100_000 else 1):
        found = [plain_job(bytes(size))]
        expected = s.SessionResult(sequence=3, dequeue=q.DequeueResponse(jobs=map(job_message, found)))
        assert results(wire.dequeued(3, Dequeued(list(map(record, found))))) == [expected]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("failure", s.Failure(message="é" * 100, metadata={"limit": "1"})),
        ("enqueue", q.EnqueueResponse(ids=range(1, 50), deduplicated_ids=[3])),
        ("release", q.ReleaseResponse(state=job_pb2.JobState.JOB_STATE_READY)),
        ("get_job", q.GetJobResponse(job=job_pb2.Job(payload=bytes(20_000)))),
        ("heartbeat", s.HeartbeatResponse()),
        ("close_owner", s.CloseOwnerResponse(released=5)),
    ],
)
def test_any_other_result(kind: str, message: Message) -> None:
    expected = s.SessionResult(sequence=U64)
    getattr(expected, kind).MergeFrom(message)
    getattr(expected, kind).SetInParent()
    assert results(wire.result(U64, kind, message)) == [expected]


def test_every_kind_of_result_has_its_field() -> None:
    for kind in s.SessionResult.DESCRIPTOR.oneofs_by_name["result"].fields:
        (result,) = results(wire.result(1, kind.name, s.HeartbeatResponse()))
        assert result.WhichOneof("result") == kind.name


@settings(max_examples=25)
@given(st.lists(st.tuples(sequences, jobs), min_size=1, max_size=4))
def test_results_of_different_shapes_stand_side_by_side(mixed: list[tuple[int, Job]]) -> None:
    encoded, expected = [], []
    for sequence, job in mixed:
        encoded += [
            wire.enqueued_one(sequence, job.id),
            wire.dequeued(sequence, Dequeued([record(job)])),
            wire.acknowledged(sequence),
        ]
        expected += [sequence] * 3
    assert [result.sequence for result in results(*encoded)] == expected


@pytest.mark.parametrize("cut", [0, 1, 30, 51])
def test_what_is_no_record_raises(cut: int) -> None:
    whole = record(plain_job(b"x"))
    for damaged in (
        LeasedRecord(1, "default", "q", whole.run[:cut], whole.body),
        LeasedRecord(1, "default", "q", whole.run, whole.body[:cut]),
    ):
        with pytest.raises((struct.error, ValueError)):
            wire.dequeued(1, Dequeued([damaged]))


def test_bytes_go_out_as_they_are_and_messages_encoded() -> None:
    message = s.SessionResponse(opened=s.SessionOpened(session=1))
    assert s.SessionResponse.FromString(wire.serialize(message)) == message
    assert wire.serialize(b"") == b""


@given(st.integers(0, U64))
def test_varints_are_those_of_protocol_buffers(value: int) -> None:
    # Any field of type uint64 will do.
    expected = s.CancelWait(sequence=value).SerializeToString()
    assert (b"\x08" + wire.varint(value) if value else b"") == expected
