"""What a Job Centre request says: from the source bytes of its fields to messages of the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from quintet.v1 import queue_service_pb2 as api
from quintet.v1.job_pb2 import PLACEMENT_ORIGINAL

from quintet_adapters.protocols.json_source import (
    ABSENT,
    JsonFaultError,
    SourceDecoder,
    read_boolean,
    read_integer,
    read_string,
    read_strings,
)
from quintet_adapters.protocols.payload import JSON_CONTENT_TYPE

PRI_MAX: Final = 2**63 - 1
_CACHED_BYTES_MAX: Final = 256
_CACHED_REQUESTS_MAX: Final = 4096

Command = Literal["put", "get", "delete", "abort"]
_COMMANDS: Final[tuple[Command, ...]] = ("put", "get", "delete", "abort")
_COMMANDS_BY_SOURCE: Final[dict[bytes, Command]] = {f'"{command}"'.encode(): command for command in _COMMANDS}
_COMMANDS_BY_NAME: Final[dict[str, Command]] = {command: command for command in _COMMANDS}


@dataclass(frozen=True, slots=True)
class JobCentreLimits:
    """Bounds of one conversation."""

    namespace: str = "default"
    line_bytes_max: int = 8 * 1024 * 1024
    queue_name_bytes_max: int = 4096
    queues_max: int = 1000
    """Different names in one get."""
    requests_max: int = 256
    """Requests of one connection under way at once."""
    bytes_max: int = 16 * 1024 * 1024
    """Bytes of requests, and of jobs expected in answers, under way at once (one request always may be)."""
    leases_checked_above: int = 10_000
    """Beyond so many jobs in hand, each further one checks whether the oldest still exists."""


class Fields(msgspec.Struct, gc=False):
    """A request as it came: the source bytes of every field that some request has."""

    request: msgspec.Raw = ABSENT
    queue: msgspec.Raw = ABSENT
    job: msgspec.Raw = ABSENT
    pri: msgspec.Raw = ABSENT
    queues: msgspec.Raw = ABSENT
    wait: msgspec.Raw = ABSENT
    id: msgspec.Raw = ABSENT


decode: Final = SourceDecoder(Fields).decode


class JobCentreReader:
    """Reads requests; one serves all conversations of a process. Every method raises JsonFaultError."""

    def __init__(self, limits: JobCentreLimits) -> None:
        self.limits = limits
        self.namespace = "" if limits.namespace == "default" else limits.namespace
        self._dequeues: dict[tuple[bytes, bool], api.DequeueRequest | None] = {}

    def command(self, fields: Fields) -> Command:
        """Which request it is."""
        command = _COMMANDS_BY_SOURCE.get(bytes(fields.request))
        if command is None:
            name = read_string(_mandatory(fields.request, "request"), "request")
            command = _COMMANDS_BY_NAME.get(name)
            if command is None:
                raise JsonFaultError("unknown request: must be put, get, delete or abort")
        return command

    def enqueue_request(self, fields: Fields) -> api.EnqueueRequest:
        """A put's request. The job's source bytes are the payload."""
        queue = self._queue_name(read_string(_mandatory(fields.queue, "queue"), "queue"))
        job = _mandatory(fields.job, "job")
        if not job.startswith(b"{"):
            raise JsonFaultError("job must be an object")
        pri = read_integer(_mandatory(fields.pri, "pri"), "pri")
        if not 0 <= pri <= PRI_MAX:
            raise JsonFaultError(f"pri must be from 0 to {PRI_MAX}")
        request = api.EnqueueRequest(namespace=self.namespace, queue=queue, create_if_missing=True)
        request.jobs.add(payload=job, content_type=JSON_CONTENT_TYPE, rank=-pri)
        return request

    def waits(self, fields: Fields) -> bool:
        """Whether a get is to wait."""
        return fields.wait is not ABSENT and read_boolean(bytes(fields.wait), "wait")

    def dequeue_request(self, fields: Fields, wait: bool) -> api.DequeueRequest | None:
        """A get's request; None for an empty list of queues. Workers ask for the same over and over."""
        source = _mandatory(fields.queues, "queues")
        if len(source) > _CACHED_BYTES_MAX:
            return self._new_dequeue_request(source, wait)
        try:
            return self._dequeues[source, wait]
        except KeyError:
            if len(self._dequeues) >= _CACHED_REQUESTS_MAX:
                self._dequeues.clear()
            request = self._dequeues[source, wait] = self._new_dequeue_request(source, wait)
            return request

    def job_id(self, fields: Fields) -> int:
        """The id of a delete or abort: any integer."""
        return read_integer(_mandatory(fields.id, "id"), "id")

    def _new_dequeue_request(self, source: bytes, wait: bool) -> api.DequeueRequest | None:
        names = list(dict.fromkeys(read_strings(source, "queues")))
        if len(names) > self.limits.queues_max:
            raise JsonFaultError(f"too many queues: at most {self.limits.queues_max}")
        if not names:
            return None
        return api.DequeueRequest(
            namespace=self.namespace,
            queues=[self._queue_name(name) for name in names],
            jobs_max=1,
            wait_ms=-1 if wait else 0,
            owner_lease=True,
            placement_on_close=PLACEMENT_ORIGINAL,
            allow_missing=True,
        )

    def _queue_name(self, name: str) -> str:
        bytes_max = self.limits.queue_name_bytes_max
        if len(name) * 4 > bytes_max and len(name.encode()) > bytes_max:
            raise JsonFaultError(f"queue name too long: at most {bytes_max} bytes in UTF-8")
        return name


def _mandatory(field: msgspec.Raw, name: str) -> bytes:
    if field is ABSENT:
        raise JsonFaultError(f"{name} is missing")
    return bytes(field)
