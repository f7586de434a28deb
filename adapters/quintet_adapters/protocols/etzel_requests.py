"""What an Etzel request says: from the source bytes of its fields to messages of the API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from quintet.v1 import queue_service_pb2 as api

from quintet_adapters.protocols.json_source import (
    ABSENT,
    JsonFaultError,
    SourceDecoder,
    json_string,
    read_number,
    read_string,
)
from quintet_adapters.protocols.payload import JSON_CONTENT_TYPE

_YEAR_S: Final = 365 * 24 * 3600
TIMEOUT_S_MIN: Final = 5
TIMEOUT_S_MAX: Final = _YEAR_S
DELAY_S_MAX: Final = _YEAR_S
EXPIRES_S_MAX: Final = 100 * _YEAR_S
"""What expires later never does."""
ID_MAX: Final = 2**63 - 1

_UID: Final = re.compile(r"[0-9a-f]{16}")
_CACHED_BYTES_MAX: Final = 256
_CACHED_QUEUES_MAX: Final = 4096

Command = Literal["SUB", "ISLP", "PUB", "FET", "ACK", "DEL"]
COMMANDS: Final[tuple[Command, ...]] = ("SUB", "ISLP", "PUB", "FET", "ACK", "DEL")
_COMMANDS_BY_SOURCE: Final[dict[bytes, Command]] = {f'"{command}"'.encode(): command for command in COMMANDS}
_COMMANDS_BY_NAME: Final[dict[str, Command]] = {command: command for command in COMMANDS}


@dataclass(frozen=True, slots=True)
class EtzelLimits:
    """Bounds of one conversation."""

    namespace: str = "default"
    frame_bytes_max: int = 8 * 1024 * 1024
    """The longest line; the largest WebSocket message, inflated."""
    queue_name_bytes_max: int = 4096
    requests_max: int = 256
    """Requests of one connection under way at once."""
    bytes_max: int = 16 * 1024 * 1024
    """Bytes of requests, and of messages expected in answers, under way at once (one request always may be)."""
    subscriptions_max: int = 1000
    """Queues of one connection."""
    path: str = "/connect"
    """Of the WebSocket, without a final slash."""
    handshake_ms: int = 10_000
    """From the connection to the end of the WebSocket's opening handshake."""


class Fields(msgspec.Struct, gc=False):
    """The fields of every request, as source bytes."""

    cmd: msgspec.Raw = ABSENT
    qname: msgspec.Raw = ABSENT
    message: msgspec.Raw = ABSENT
    msg: msgspec.Raw = ABSENT
    timeout: msgspec.Raw = ABSENT
    delay: msgspec.Raw = ABSENT
    expires: msgspec.Raw = ABSENT
    uid: msgspec.Raw = ABSENT


decode: Final = SourceDecoder(Fields).decode


class Queue:
    """A queue by the name a client gave it, with the requests that differ in nothing but the queue."""

    __slots__ = ("await_jobs", "create", "dequeue", "json", "name")

    def __init__(self, name: str, namespace: str) -> None:
        self.name = name
        self.json = json_string(name)
        """The name as JSON."""
        self.create = api.CreateQueueRequest(namespace=namespace, queue=name)
        self.dequeue = api.DequeueRequest(namespace=namespace, queues=(name,), jobs_max=1)
        self.await_jobs = api.AwaitJobsRequest(namespace=namespace, queues=(name,), wait_ms=-1, allow_missing=True)


class EtzelReader:
    """Reads requests; one serves all conversations of a process. Every method raises JsonFaultError."""

    def __init__(self, limits: EtzelLimits) -> None:
        self.limits = limits
        self.namespace = "" if limits.namespace == "default" else limits.namespace
        self._queues: dict[bytes, Queue] = {}

    def command(self, fields: Fields) -> Command:
        """Which request it is."""
        command = _COMMANDS_BY_SOURCE.get(bytes(fields.cmd))
        if command is None:
            name = read_string(_mandatory(fields.cmd, "cmd"), "cmd")
            command = _COMMANDS_BY_NAME.get(name)
            if command is None:
                raise JsonFaultError(f"unknown cmd: must be one of {', '.join(COMMANDS)}")
        return command

    def queue(self, fields: Fields) -> Queue:
        """The queue a request is about. Workers name the same over and over."""
        source = _mandatory(fields.qname, "qname")
        queue = self._queues.get(source)
        if queue is None:
            queue = Queue(self._queue_name(read_string(source, "qname")), self.namespace)
            if len(source) <= _CACHED_BYTES_MAX:
                if len(self._queues) >= _CACHED_QUEUES_MAX:
                    self._queues.clear()
                self._queues[source] = queue
        return queue

    def enqueue_request(self, fields: Fields, queue: Queue) -> api.EnqueueRequest:
        """A PUB's. The message's source bytes are the payload."""
        message = fields.message if fields.message is not ABSENT else fields.msg
        request = api.EnqueueRequest(namespace=self.namespace, queue=queue.name, create_if_missing=True)
        job = request.jobs.add(payload=_mandatory(message, "message"), content_type=JSON_CONTENT_TYPE)
        if fields.timeout is not ABSENT:
            job.lease_ms = _milliseconds(_timeout(fields.timeout))
        if fields.delay is not ABSENT:
            job.delay_ms = _milliseconds(_delay(fields.delay))
        if fields.expires is not ABSENT:
            job.time_to_live_ms = _time_to_live_ms(fields.expires)
        return request

    def uid(self, fields: Fields) -> str:
        """An ACK's; any string."""
        return read_string(_mandatory(fields.uid, "uid"), "uid")

    def delete_request(self, uid: str, queue: Queue) -> api.DeleteRequest | None:
        """An ACK's; None when no message has ever had such a uid."""
        if _UID.fullmatch(uid) is None:
            return None
        job_id = int(uid, 16)
        if not 0 < job_id <= ID_MAX:
            return None
        return api.DeleteRequest(namespace=self.namespace, id=job_id, queue=queue.name)

    def _queue_name(self, name: str) -> str:
        bytes_max = self.limits.queue_name_bytes_max
        if len(name) * 4 > bytes_max and len(name.encode()) > bytes_max:
            raise JsonFaultError(f"qname too long: at most {bytes_max} bytes in UTF-8")
        return name


def _mandatory(field: msgspec.Raw, name: str) -> bytes:
    if field is ABSENT:
        raise JsonFaultError(f"{name} is missing")
    return bytes(field)


def _seconds(field: msgspec.Raw, name: str, minimum: float, maximum: float) -> float:
    seconds = read_number(bytes(field), name)
    if not minimum <= seconds <= maximum:
        raise JsonFaultError(f"{name} must be from {minimum} to {maximum} seconds")
    return seconds


def _timeout(field: msgspec.Raw) -> float:
    return _seconds(field, "timeout", TIMEOUT_S_MIN, TIMEOUT_S_MAX)


def _delay(field: msgspec.Raw) -> float:
    return _seconds(field, "delay", 0, DELAY_S_MAX)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _time_to_live_ms(field: msgspec.Raw) -> int:
    """0: never. Less than a millisecond is one: it is not never."""
    seconds = read_number(bytes(field), "expires")
    if seconds < 0:
        raise JsonFaultError("expires must not be negative")
    if seconds == 0 or seconds > EXPIRES_S_MAX:
        return 0
    return max(1, _milliseconds(seconds))
