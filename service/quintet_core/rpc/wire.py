"""Results of a session as bytes.

A session answers tens of thousands of operations a second, and most answers are of few shapes. To build a message for
each of them, copy it into a response and serialize that costs more than the rest of the core; so these are
written down as the protocol buffers encoding of `SessionResponse.results` directly, from the field numbers of
session_service.proto and job.proto. Whatever is rare is a message of its own and appended: the encoding of a message is
the concatenation of its fields. Proved against the generated classes by tests.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from google.protobuf.message import Message
from quintet.v1 import job_pb2
from quintet.v1 import session_service_pb2 as pb

from quintet_core.domain.job import Job, JobState, LeasedRecord
from quintet_core.domain.outcomes import Deleted, Dequeued
from quintet_core.storage.records import leased_body, leased_run, unpack_leased

_LENGTH_DELIMITED, _FIXED64 = 2, 1


def varint(value: int) -> bytes:
    """An unsigned number in base 128, least significant group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


_SHORT = [varint(size) for size in range(4096)]


def length(size: int) -> bytes:
    """The same, of what is mostly short."""
    return _SHORT[size] if size < 4096 else varint(size)


def _tag(number: int) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED)


TAGS = {field.name: _tag(field.number) for field in pb.SessionResult.DESCRIPTOR.fields if field.message_type}
"""The tag of each kind of result."""

# results = 2 (message), then in it sequence = 1 (fixed64).
_RESULT, _SEQUENCE = b"\x12", b"\x09"
_ENQUEUED = struct.Struct("<3sQ4sQ")
# 21 bytes: sequence, enqueue = 3 of 10 bytes: ids = 1 (packed) of 8 bytes.
_ENQUEUED_HEAD, _ENQUEUED_IDS = b"\x12\x15\x09", b"\x1a\x0a\x0a\x08"
_ACKNOWLEDGED = struct.Struct("<3sQ2s")
# 11 bytes: sequence, acknowledge = 5 of no bytes.
_ACKNOWLEDGED_HEAD, _ACKNOWLEDGED_BODY = b"\x12\x0b\x09", b"\x2a\x00"
_U64 = struct.Struct("<Q")


def enqueued_one(sequence: int, job_id: int) -> bytes:
    """An EnqueueResponse with one id."""
    return _ENQUEUED.pack(_ENQUEUED_HEAD, sequence, _ENQUEUED_IDS, job_id)


def acknowledged(sequence: int) -> bytes:
    """An AcknowledgeResponse."""
    return _ACKNOWLEDGED.pack(_ACKNOWLEDGED_HEAD, sequence, _ACKNOWLEDGED_BODY)


_DELETED = struct.Struct("<3sQ3sB")
# 13 bytes: sequence, delete = 8 of 2 bytes: state = 1 (varint, one byte).
_DELETED_HEAD, _DELETED_STATE = b"\x12\x0d\x09", b"\x42\x02\x08"


def deleted(sequence: int, outcome: Deleted) -> bytes:
    """A DeleteResponse."""
    return _DELETED.pack(_DELETED_HEAD, sequence, _DELETED_STATE, outcome.state)


def result(sequence: int, kind: str, message: Message) -> bytes:
    """Any result: `kind` is its field in SessionResult."""
    return _result(sequence, TAGS[kind], message.SerializeToString())


def _result(sequence: int, tag: bytes, body: bytes) -> bytes:
    head = b"".join((_SEQUENCE, _U64.pack(sequence), tag, length(len(body))))
    return b"".join((_RESULT, length(len(head) + len(body)), head, body))


def joined_result(sequence: int, tag: bytes, size: int, parts: tuple[bytes, ...]) -> bytes:
    """Any result, from the parts of its encoded message, `size` bytes in all."""
    body_length = length(size)
    return b"".join(
        (
            _RESULT, length(9 + len(tag) + len(body_length) + size), _SEQUENCE, _U64.pack(sequence), tag, body_length,
            *parts,
        )
    )  # fmt: skip


# id = 1, rank = 6, enqueued_at_ms = 8, available_at_ms = 9 (64 bits), attempts = 11, payload_bytes = 17 (32 bits),
# state = 7 (varint, one byte).
_JOB = struct.Struct("<BQBqBQBQBI2sI2B")
_LEASE = struct.Struct("<BBBQ")
_LEASE_TAG, _TOKEN_TAG = 0x72, 0x09
_PAYLOAD_TAG, _CONTENT_TYPE_TAG = b"\x22", b"\x2a"
_JOBS_TAG = b"\x0a"
_STATE = int(JobState.LEASED)
_FIXED_BYTES = _JOB.size + _LEASE.size + len(_PAYLOAD_TAG)


@lru_cache(maxsize=65536)
def _names(namespace: str, queue: str) -> bytes:
    return job_pb2.Job(namespace=namespace, queue=queue).SerializeToString()


@lru_cache(maxsize=1024)
def _content_type(content_type: bytes) -> bytes:
    return job_pb2.Job(content_type=content_type.decode()).SerializeToString()


def leased_job(record: LeasedRecord) -> tuple[int, tuple[bytes, ...]]:
    """A Job message, from the store's record: its size, and its parts. Raises ValueError or struct.error."""
    body = record.body
    attempts, rank, token, run_size, payload_bytes, deadline, expires, attempts_max = leased_run(record.run)
    enqueued, available, content_type, payload_at, is_rare = leased_body(body)
    payload = body[payload_at:]
    size = len(payload)
    packed_size = _SHORT[size] if size < 4096 else varint(size)
    names = _names(record.namespace, record.queue)
    kind = _content_type(content_type) if content_type else b""
    numbers = _JOB.pack(
        0x09, record.id, 0x31, rank, 0x41, enqueued, 0x49, available, 0x5D, attempts, b"\x8d\x01", payload_bytes,
        0x38, _STATE,
    )  # fmt: skip
    lease = _LEASE.pack(_LEASE_TAG, 9, _TOKEN_TAG, token)
    rest = b""
    if deadline or expires or attempts_max or run_size or is_rare:
        rest = _rest(unpack_leased(record))
    return (
        _FIXED_BYTES + len(names) + len(kind) + len(packed_size) + size + len(rest),
        (numbers, names, kind, lease, _PAYLOAD_TAG, packed_size, payload, rest),
    )


def _rest(job: Job) -> bytes:
    assert job.lease is not None
    rest: bytes = job_pb2.Job(
        expires_at_ms=job.expires_at_ms,
        attempts_max=job.attempts_max,
        failure_reason=job.failure_reason,
        deduplication_key=job.deduplication_key,
        attributes=job.attributes,
        lease=job_pb2.Lease(deadline_at_ms=job.lease.deadline_at_ms, worker=job.lease.worker),
    ).SerializeToString()
    return rest


_DEQUEUE_TAG = TAGS["dequeue"]


def dequeued(sequence: int, outcome: Dequeued) -> bytes:
    """A DequeueResponse. Raises as leased_job."""
    jobs = outcome.jobs
    if len(jobs) != 1:
        packed = [(_JOBS_TAG, length(size), *parts) for size, parts in map(leased_job, jobs)]
        return _result(sequence, _DEQUEUE_TAG, b"".join(part for parts in packed for part in parts))
    size, parts = leased_job(jobs[0])
    job_length = length(size)
    body_size = 1 + len(job_length) + size
    body_length = length(body_size)
    result_size = 9 + len(_DEQUEUE_TAG) + len(body_length) + body_size
    return b"".join(
        (
            _RESULT, length(result_size), _SEQUENCE, _U64.pack(sequence), _DEQUEUE_TAG, body_length, _JOBS_TAG,
            job_length, *parts,
        )
    )  # fmt: skip


def serialize(response: pb.SessionResponse | bytes) -> bytes:
    """For gRPC: a response that is encoded already, or a message."""
    if isinstance(response, bytes):
        return response
    serialized: bytes = response.SerializeToString()
    return serialized
