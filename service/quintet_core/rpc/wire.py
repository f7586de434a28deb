"""Results of a session as bytes.

A session answers tens of thousands of operations a second, and most answers are of three shapes. To build a message for
each of them, copy it into a response and serialize that costs more than the rest of the core; so these three are
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

from quintet_core.domain.job import Job
from quintet_core.domain.outcomes import Dequeued

_LENGTH_DELIMITED, _FIXED64 = 2, 1


def varint(value: int) -> bytes:
    """An unsigned number in base 128, least significant group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


_SHORT = [varint(length) for length in range(4096)]


def _length(size: int) -> bytes:
    return _SHORT[size] if size < 4096 else varint(size)


def _tag(number: int) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED)


_FIELDS = {field.name: _tag(field.number) for field in pb.SessionResult.DESCRIPTOR.fields if field.message_type}

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


def result(sequence: int, kind: str, message: Message) -> bytes:
    """Any result: `kind` is its field in SessionResult."""
    return _result(sequence, _FIELDS[kind], message.SerializeToString())


def _result(sequence: int, tag: bytes, body: bytes) -> bytes:
    head = b"".join((_SEQUENCE, _U64.pack(sequence), tag, _length(len(body))))
    return b"".join((_RESULT, _length(len(head) + len(body)), head, body))


# id = 1, rank = 6, enqueued_at_ms = 8, available_at_ms = 9 (64 bits), attempts = 11, payload_bytes = 17 (32 bits),
# state = 7 (varint, one byte).
_JOB = struct.Struct("<BQBqBQBQBI2sI2B")
_LEASE = struct.Struct("<BBBQ")
_LEASE_TAG, _TOKEN_TAG = 0x72, 0x09
_PAYLOAD_TAG, _CONTENT_TYPE_TAG = b"\x22", b"\x2a"
_JOBS_TAG = b"\x0a"


@lru_cache(maxsize=65536)
def _names(namespace: str, queue: str) -> bytes:
    return job_pb2.Job(namespace=namespace, queue=queue).SerializeToString()


@lru_cache(maxsize=1024)
def _content_type(content_type: str) -> bytes:
    return job_pb2.Job(content_type=content_type).SerializeToString()


def leased_job(job: Job) -> bytes:
    """A Job message of a job that has just been leased."""
    lease = job.lease
    assert lease is not None
    numbers = _JOB.pack(
        0x09, job.id, 0x31, job.rank, 0x41, job.enqueued_at_ms, 0x49, job.available_at_ms, 0x5D, job.attempts,
        b"\x8d\x01", job.payload_bytes, 0x38, job.state,
    )  # fmt: skip
    payload = job.payload
    parts = (
        numbers,
        _names(job.namespace, job.queue),
        _content_type(job.content_type),
        _LEASE.pack(_LEASE_TAG, 9, _TOKEN_TAG, lease.token),
        _PAYLOAD_TAG,
        _length(len(payload)),
        payload,
    )
    if lease.deadline_at_ms or lease.worker or job.expires_at_ms or job.attempts_max or _is_rare(job):
        return b"".join(parts) + _rest(job)
    return b"".join(parts)


def _is_rare(job: Job) -> bool:
    return bool(job.failure_reason or job.deduplication_key or job.attributes)


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


_DEQUEUE_TAG = _FIELDS["dequeue"]


def dequeued(sequence: int, outcome: Dequeued) -> bytes:
    """A DequeueResponse."""
    body = b""
    for job in outcome.jobs:
        packed = leased_job(job)
        body += b"".join((_JOBS_TAG, _length(len(packed)), packed))
    return _result(sequence, _DEQUEUE_TAG, body)


def serialize(response: pb.SessionResponse | bytes) -> bytes:
    """For gRPC: a response that is encoded already, or a message."""
    if isinstance(response, bytes):
        return response
    serialized: bytes = response.SerializeToString()
    return serialized
