"""What TaskFlux clients are answered, as bytes; the dialects differ in nothing else but structure 0."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from typing import Final

from quintet.v1 import reason_pb2
from quintet.v1.queue_pb2 import Queue, QueueSettings
from quintet.v1.session_service_pb2 import Failure

from quintet_adapters.messages import explain
from quintet_adapters.protocols.taskflux_packets import INT32_MAX

OK: Final = b"k"
NOTHING: Final = b"cd\0"
AUTHORIZED: Final = b"a\1"
BOOTSTRAPPED: Final = b"b\1"

_INT32: Final = struct.Struct(">i")
_RECORD: Final = struct.Struct(">3sqi")
_COUNT: Final = struct.Struct(">2si")
_ERROR: Final = struct.Struct(">2si")
_VIOLATION: Final = struct.Struct(">2sii")
_RANGE_VIOLATION: Final = struct.Struct(">2siqq")
_NO_NODES: Final = struct.pack(">ii", 0, 0)


class Code(enum.IntEnum):
    """Codes of Error."""

    UNKNOWN = 0
    BAD_NAME = 1
    NOT_FOUND = 2
    EXISTS = 3
    BAD_KEY_RANGE = 5
    BAD_SIZE_MAX = 6
    BAD_PAYLOAD_MAX = 7
    NO_KEY_RANGE = 8
    UNKNOWN_STRUCTURE = 9


_POLICY_OTHER: Final = 0
_POLICY_SIZE: Final = 1

_CODES: Final = {
    reason_pb2.REASON_QUEUE_NOT_FOUND: Code.NOT_FOUND,
    reason_pb2.REASON_QUEUE_EXISTS: Code.EXISTS,
}
_POLICY_REASONS: Final = frozenset(
    {reason_pb2.REASON_QUEUE_FULL, reason_pb2.REASON_PAYLOAD_TOO_LARGE, reason_pb2.REASON_RANK_OUT_OF_RANGE}
)


def string(text: str) -> bytes:
    """A String."""
    raw = text.encode()
    return _INT32.pack(len(raw)) + raw


def refused_authorization(reason: str) -> bytes:
    """AuthorizationResponse."""
    return b"a\0" + string(reason)


def refused_bootstrap(reason: str) -> bytes:
    """BootstrapResponse."""
    return b"b\0" + string(reason)


def error_response(details: str) -> bytes:
    """ErrorResponse 0, before the end."""
    return b"e" + _INT32.pack(0) + string(details)


def metadata(address: str) -> bytes:
    """ClusterMetadataResponse: one address, leader 0, own id 0."""
    return b"m" + _INT32.pack(1) + string(address) + _NO_NODES


def record(key: int, payload: bytes) -> bytes:
    """A dequeued record."""
    return _RECORD.pack(b"cd\1", key, len(payload)) + payload


def count(records: int) -> bytes:
    """The answer to Count."""
    return _COUNT.pack(b"cc", min(records, INT32_MAX))


def size_of(queue: Queue) -> int:
    """What can be taken or is delayed."""
    return queue.counts.ready + queue.counts.delayed


def listed(name: bytes, records: int, settings: QueueSettings) -> bytes:
    """One queue of a list."""
    policies = list(_policies(settings))
    return b"".join(
        (
            bytes((len(name),)),
            name,
            _INT32.pack(min(records, INT32_MAX)),
            _INT32.pack(len(policies)),
            *(string(text) for policy in policies for text in policy),
        )
    )


def queues(entries: list[bytes]) -> bytes:
    """The answer to List."""
    return b"cl" + _INT32.pack(len(entries)) + b"".join(entries)


def _policies(settings: QueueSettings) -> Iterable[tuple[str, str]]:
    if settings.HasField("jobs_max"):
        yield "max-queue-size", str(min(settings.jobs_max, INT32_MAX))
    if settings.HasField("payload_bytes_max"):
        yield "max-payload-size", str(min(settings.payload_bytes_max, INT32_MAX))
    if settings.HasField("rank_range"):
        yield "priority-range", f"{settings.rank_range.min} {settings.rank_range.max}"


class Answers:
    """What depends on the dialect."""

    def __init__(self, *, csharp: bool) -> None:
        self._error_head = b"ce" if csharp else b"cx"
        self._policy_payload, self._policy_range = (3, 2) if csharp else (2, 3)

    def error(self, code: Code, details: str = "") -> bytes:
        """Error."""
        return _ERROR.pack(self._error_head, code) + string(details)

    def failed(self, failure: Failure) -> bytes:
        """What a client is told of a failure of the core: an Error or a PolicyViolation."""
        if failure.reason in _POLICY_REASONS:
            return self._violation(failure)
        code = _CODES.get(failure.reason, Code.UNKNOWN)
        return self.error(code, "" if code else explain(failure))

    def _violation(self, failure: Failure) -> bytes:
        limits = failure.metadata
        try:
            if failure.reason == reason_pb2.REASON_RANK_OUT_OF_RANGE:
                return _RANGE_VIOLATION.pack(
                    b"cp", self._policy_range, int(limits.get("min", "")), int(limits.get("max", ""))
                )
            full = failure.reason == reason_pb2.REASON_QUEUE_FULL
            policy = _POLICY_SIZE if full else self._policy_payload
            return _VIOLATION.pack(b"cp", policy, min(int(limits.get("max", "")), INT32_MAX))
        except ValueError:
            # A core that does not tell the limit.
            return b"cp" + _INT32.pack(_POLICY_OTHER) + string(explain(failure))
