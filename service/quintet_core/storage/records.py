"""The records that the function library keeps, on this side. Formats: storage/lua/10_codec.lua, 20_partition.lua."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator

import msgspec

from quintet_core.domain.event import Event, EventKind
from quintet_core.domain.job import Job, JobState, Lease, LeasedRecord, LeaseTerms, NewJob
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.domain.queue import PauseDirection, Queue, QueueCounts, QueueSettings
from quintet_core.storage import keys
from quintet_core.storage.event_log import Entry, last_offset_of, names_in

_BIAS = 1 << 63
_RANK = struct.Struct(">Q")
_TAIL = struct.Struct(">BBH")
_OPTIONS = struct.Struct(">QQQIQQI")
_TERMS = struct.Struct(">IQQBB")
_BODY = struct.Struct(">IQQQQIQIBBH")
_RUN = struct.Struct(">BBIIQQQQQQQQIIQQBH")
_SETTINGS = struct.Struct(">BBQQQQQIQQH")
_EVENT = struct.Struct(">BIQQIQQIBH")
_BODY_BYTES = _BODY.size
_RUN_BYTES = _RUN.size


class RecordError(ValueError):
    """What the functions handed through is no record as the core writes them."""


def rank_bytes(rank: int) -> bytes:
    """An int64 as 8 bytes whose byte order is its order."""
    return _RANK.pack(rank + _BIAS)


def pack_plain_options(rank: int, payload_bytes: int) -> bytes:
    """The numbers of a new job that has no others."""
    return _OPTIONS.pack(rank + _BIAS, 0, 0, 0, 0, 0, payload_bytes)


def pack_plain_tail(content_type: bytes, payload: bytes) -> bytes:
    """The tail of a body without deduplication key and attributes."""
    return _TAIL.pack(len(content_type), 0, 0) + content_type + payload


def pack_options(job: NewJob, window_ms: int) -> bytes:
    """The numbers of a new job, as enqueue reads them."""
    return _OPTIONS.pack(
        job.rank + _BIAS,
        job.delay_ms,
        job.time_to_live_ms,
        job.attempts_max,
        job.lease_ms,
        window_ms,
        len(job.payload),
    )


def pack_tail(job: NewJob) -> bytes:
    """The part of a body that the functions do not look into."""
    if not (job.deduplication_key or job.attributes):
        return pack_plain_tail(job.content_type.encode(), job.payload)
    content_type, key = job.content_type.encode(), job.deduplication_key.encode()
    attributes = msgspec.msgpack.encode(job.attributes) if job.attributes else b""
    return b"".join(
        (_TAIL.pack(len(content_type), len(key), len(attributes)), content_type, key, attributes, job.payload)
    )


def pack_terms(jobs_max: int, terms: LeaseTerms, allow_missing: bool, await_jobs: bool, bound: bytes) -> bytes:
    """The terms of a dequeue; `bound` is a place, or empty."""
    flags = allow_missing | await_jobs << 1 | bool(terms.session) << 2 | bool(bound) << 3
    fixed = _TERMS.pack(jobs_max, terms.lease_ms, terms.session_ttl_ms, terms.placement_on_close, flags)
    return b"".join((fixed, terms.session, terms.owner, bound[:16], terms.worker.encode()))


def pack_settings(settings: QueueSettings) -> bytes:
    """Queue settings as the queue record holds them."""
    flags = (
        (settings.jobs_max is not None)
        | (settings.payload_bytes_max is not None) << 1
        | (settings.rank_range is not None) << 2
    )
    low, high = settings.rank_range or (-_BIAS, -_BIAS)
    letters, content_type = settings.dead_letter_queue.encode(), settings.content_type.encode()
    return (
        _SETTINGS.pack(
            flags,
            settings.structure,
            settings.jobs_max or 0,
            settings.payload_bytes_max or 0,
            low + _BIAS,
            high + _BIAS,
            settings.lease_ms,
            settings.attempts_max,
            settings.backoff_ms,
            settings.backoff_max_ms,
            len(letters),
        )
        + letters
        + content_type
    )


def unpack_settings(raw: bytes) -> QueueSettings:
    """The settings behind a queue record's settings field."""
    flags, structure, jobs, payload, low, high, lease, attempts, backoff, longest, letters = _SETTINGS.unpack_from(raw)
    end = _SETTINGS.size + letters
    return QueueSettings(
        structure=structure,
        jobs_max=jobs if flags & 1 else None,
        payload_bytes_max=payload if flags & 2 else None,
        rank_range=(low - _BIAS, high - _BIAS) if flags & 4 else None,
        lease_ms=lease,
        attempts_max=attempts,
        backoff_ms=backoff,
        backoff_max_ms=longest,
        dead_letter_queue=raw[_SETTINGS.size : end].decode(),
        content_type=raw[end:].decode(),
    )


def unpack_queue(reply: list[bytes | int], partition: int) -> Queue:
    """A queue as the library's `describe` tells it."""
    name, _number, paused, until, created, settings, ready, delayed, leased, dead = reply
    assert isinstance(name, bytes)
    assert isinstance(settings, bytes)
    namespace, queue = keys.split_name_key(name)
    return Queue(
        namespace,
        queue,
        unpack_settings(settings),
        PauseDirection(int(paused)),
        int(until),
        QueueCounts(int(ready), int(delayed), int(leased), int(dead)),
        int(created),
        partition,
    )


_LEASED = JobState.LEASED


def unpack_leased(record: LeasedRecord) -> Job:
    """A job as a dequeue hands it out. Raises RecordError."""
    try:
        return _unpack_job(record.run, record.body, record.namespace, record.queue, record.id)
    except (struct.error, ValueError) as error:
        raise RecordError(f"job {record.id}: {error}") from error


def _unpack_job(run: bytes, body: bytes, namespace: str, queue: str, job_id: int) -> Job:
    (_, _, attempts, _, rank, _, token, deadline, _, _, _, expires, attempts_max, size, _, _, worker, _reason) = (
        _RUN.unpack_from(run)
    )
    _, _, enqueued, available, _, _, _, _, type_bytes, key_bytes, attribute_bytes = _BODY.unpack_from(body)
    at = _BODY_BYTES
    key, attributes = "", {}
    content_type = body[at : at + type_bytes].decode() if type_bytes else ""
    at += type_bytes
    if key_bytes or attribute_bytes:
        key = body[at : at + key_bytes].decode()
        at += key_bytes
        if attribute_bytes:
            attributes = msgspec.msgpack.decode(body[at : at + attribute_bytes], type=dict[str, str])
        at += attribute_bytes
    label = run[_RUN_BYTES : _RUN_BYTES + worker].decode() if worker else ""
    reason = run[_RUN_BYTES + worker :].decode() if len(run) > _RUN_BYTES + worker else ""
    return Job(
        job_id,
        namespace,
        queue,
        body[at:],
        content_type,
        rank - _BIAS,
        _LEASED,
        enqueued,
        available,
        expires,
        attempts,
        attempts_max,
        reason,
        Lease(token, deadline, label),
        key,
        attributes,
        size,
    )


_LEASED_RUN = struct.Struct(">2xI4xQ8xQQ24xQII16xBH")
_LEASED_BODY = struct.Struct(">12xQQ24xBBH")
_LEASED_BODY_BYTES = _LEASED_BODY.size


def leased_run(run: bytes) -> tuple[int, int, int, int, int, int, int, int]:
    """Of the run of a job that was just leased: attempts, rank, token, bytes of labels, payload_bytes, deadline,
    expires_at, attempts_max. Raises struct.error for what is no run."""
    attempts, rank, token, deadline, expires, attempts_max, size, worker, reason = _LEASED_RUN.unpack_from(run)
    return attempts, rank - _BIAS, token, worker + reason, size, deadline, expires, attempts_max


def leased_body(body: bytes) -> tuple[int, int, bytes, int, bool]:
    """Of a body: enqueued_at, available_at, content type, where the payload begins, and whether there is something
    else in between. Raises struct.error for what is no body."""
    enqueued, available, content_type, key, attributes = _LEASED_BODY.unpack_from(body)
    at = _BODY_BYTES + content_type
    return enqueued, available, body[_BODY_BYTES:at], at + key + attributes, bool(key or attributes)


_BLANK_RUN = bytes(_RUN_BYTES)


def token_of_run(run: bytes) -> int:
    """The token of the lease that a job had last."""
    return int(_RUN.unpack_from(run)[6])


def unpack_shown(reply: list[bytes | int], partition: int, partitions: int) -> Job:
    """A job as the library's `show` tells it, in whatever state."""
    state, name, available_at, run, sequence, body = reply[:6]
    assert isinstance(name, bytes)
    assert isinstance(run, bytes)
    assert isinstance(sequence, bytes)
    assert isinstance(body, bytes)
    namespace, queue = keys.split_name_key(name)
    job_id = int.from_bytes(sequence, "big") * partitions + partition
    job = _unpack_job(run or _BLANK_RUN, body, namespace, queue, job_id)
    job.state = JobState(int(state))
    _, rank, _, _, expires, attempts_max, _, size, *_ = _BODY.unpack_from(body)
    job.rank, job.expires_at_ms, job.payload_bytes = rank - _BIAS, expires, size
    job.attempts_max = attempts_max
    if job.state is not JobState.LEASED:
        job.lease = None
    if available_at:
        job.available_at_ms = int(float(available_at))
    return job


# Numbers from here on are of tables.
FIRST_TABLE = 1 << 31
_CARRIED, _TABLE_DELETED = 1, 2
# Beside the state of a job.
_PAYLOAD_CARRIED = 64
_JOB_EVENTS_OFF, _CARRY_PAYLOADS, _CARRY_VALUES = 1, 2, 4


def pack_namespace(settings: NamespaceSettings) -> int:
    """The settings of a namespace as the library takes them."""
    return (
        settings.job_events_off * _JOB_EVENTS_OFF
        | settings.events_carry_payloads * _CARRY_PAYLOADS
        | settings.events_carry_values * _CARRY_VALUES
    )


def unpack_namespace(flags: int) -> NamespaceSettings:
    """The settings as the library tells them."""
    return NamespaceSettings(bool(flags & _JOB_EVENTS_OFF), bool(flags & _CARRY_PAYLOADS), bool(flags & _CARRY_VALUES))


def unpack_events(entry: Entry, partition: int, partitions: int) -> Iterator[Event]:
    """The events of one stream entry (id, time, names, events, carried values or b""), in order."""
    return (event for _, event in unpack_chosen(entry, partition, partitions, None))


def unpack_chosen(
    entry: Entry, partition: int, partitions: int, chosen: Container[int] | None
) -> Iterator[tuple[int, Event]]:
    """The same, each with the number of its queue or table; only those of some numbers, unless `chosen` is None."""
    named_by, at, names, packed, values = entry
    last, at_ms = last_offset_of(named_by), int(at)
    named = {number: keys.split_name_key(key) for number, key in names_in(names) if chosen is None or number in chosen}
    found = []
    position = value_at = 0
    while position < len(packed):
        fields = _EVENT.unpack_from(packed, position)
        position += _EVENT.size + fields[9]
        found.append((fields, packed[position - fields[9] : position]))
    offset = last - len(found)
    for (kind, number, sequence, rank, attempt, wait, service, size, state, _), detail in found:
        offset += 1
        value = None
        if state == _CARRIED if number >= FIRST_TABLE else state >= _PAYLOAD_CARRIED:
            value = values[value_at : value_at + size]
            value_at += size
            if value_at > len(values):
                raise ValueError("an event carries more than its entry holds")
        if chosen is not None and number not in chosen:
            continue
        namespace, name = named[number]
        if number >= FIRST_TABLE:
            told = _table_event(partition, offset, kind, at_ms, namespace, name, rank, size, state, detail, value)
            yield number, told
            continue
        job_id = sequence * partitions + partition if sequence else 0
        signed = rank - _BIAS if sequence else 0
        event = Event(
            partition, offset, kind, at_ms, namespace, name, job_id, signed, attempt, wait, service, size,
            state % _PAYLOAD_CARRIED, detail.decode(errors="replace"), payload=value,
        )  # fmt: skip
        yield number, event


def _table_event(
    partition: int,
    offset: int,
    kind: int,
    at_ms: int,
    namespace: str,
    table: str,
    expires_at_ms: int,
    size: int,
    state: int,
    detail: bytes,
    value: bytes | None,
) -> Event:
    """An event of a table, whose detail is text, or of a row, whose detail is its key."""
    if kind >= EventKind.TABLE_CREATED:
        told, key = detail.decode(errors="replace"), b""
    else:
        told, key = "table deleted" if state == _TABLE_DELETED else "", detail
    return Event(
        partition, offset, kind, at_ms, namespace, "", 0, 0, 0, 0, 0, size, 0, told, table, key, expires_at_ms, value
    )
