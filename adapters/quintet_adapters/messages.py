"""What protocols and connections say to each other, the same for every tongue.

A protocol's request *is* a message of the API (`quintet.v1`) and its reply a `SessionResult`: there is one noun for
each thing, and nothing is converted twice on the hot path.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final, Literal

from quintet.v1 import queue_service_pb2 as api
from quintet.v1 import reason_pb2
from quintet.v1.session_service_pb2 import Failure

Verb = Literal[
    "enqueue",
    "dequeue",
    "acknowledge",
    "release",
    "delete",
    "get_job",
    "count",
    "create_queue",
    "delete_queue",
    "list_queues",
    "await_jobs",
]
"""The deed a request asks for; `quintet_client.session.Session` has a `submit_<verb>` for each."""

RequestMessage = (
    api.EnqueueRequest
    | api.DequeueRequest
    | api.AcknowledgeRequest
    | api.ReleaseRequest
    | api.DeleteRequest
    | api.GetJobRequest
    | api.CountRequest
    | api.CreateQueueRequest
    | api.DeleteQueueRequest
    | api.ListQueuesRequest
    | api.AwaitJobsRequest
)

Outcome = Literal["ok", "empty", "refused", "unavailable", "failed"]
"""How a command ended, as metrics see it.

ok: done; empty: nothing there (no-job, NONE, NO); refused: the client's fault or a queue's policy; unavailable: the
world's fault; failed: ours.
"""
OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "empty", "refused", "unavailable", "failed")

INVALID_COMMAND: Final = "invalid"
"""The command of input that could not be read as one."""

CommandCounts = Counter[tuple[str, Outcome]]
"""How often each command ended in each way."""


class Request:
    """One request to the core on behalf of a client. The protocol fills the first half, the connection the second."""

    __slots__ = ("command", "message", "sent", "sequence", "started_at", "takes_lease", "verb")

    ends_lease: ClassVar[bool] = False
    """It ends a lease that the client gives up by it. Should it fail, the owner is closed, and the job goes back."""

    def __init__(self, verb: Verb, message: RequestMessage, command: str, *, takes_lease: bool = False) -> None:
        self.verb: Verb = verb
        self.message = message
        """Not changed after it was handed over; may be shared between requests."""
        self.command = command
        """The protocol's word for it, a label of metrics."""
        self.takes_lease = takes_lease
        """Its success gives the connection's owner a lease that lasts as long as the owner."""
        self.sequence = 0
        self.started_at = 0.0
        self.sent = False
        """Takes a lease, and can have reached the core."""


_WORLD: Final = frozenset(
    {
        reason_pb2.REASON_UNAVAILABLE,
        reason_pb2.REASON_MEMORY_FULL,
        reason_pb2.REASON_DRAINING,
        reason_pb2.REASON_NOT_DURABLE,
        reason_pb2.REASON_TOO_MANY_IN_FLIGHT,
        reason_pb2.REASON_CANCELLED,
        reason_pb2.REASON_SESSION_LAPSED,
        reason_pb2.REASON_SESSION_NOT_FOUND,
        reason_pb2.REASON_OWNER_CLOSED,
    }
)
_OURS: Final = frozenset({reason_pb2.REASON_UNSPECIFIED, reason_pb2.REASON_INTERNAL, reason_pb2.REASON_DAMAGED})
_IN_DOUBT: Final = _OURS | {reason_pb2.REASON_UNAVAILABLE}


def is_in_doubt(failure: Failure) -> bool:
    """Whether the core may have carried the request out all the same."""
    return failure.reason in _IN_DOUBT


def outcome_of(failure: Failure) -> Outcome:
    """How a failed request counts."""
    if failure.reason in _WORLD:
        return "unavailable"
    return "failed" if failure.reason in _OURS else "refused"


REASON_TEXTS: Final[dict[int, str]] = {
    reason_pb2.REASON_UNSPECIFIED: "internal error",
    reason_pb2.REASON_INVALID_ARGUMENT: "invalid argument",
    reason_pb2.REASON_LIMIT_EXCEEDED: "limit exceeded",
    reason_pb2.REASON_PAYLOAD_TOO_LARGE: "job too large",
    reason_pb2.REASON_QUEUE_NOT_FOUND: "no such queue",
    reason_pb2.REASON_QUEUE_EXISTS: "queue exists",
    reason_pb2.REASON_JOB_NOT_FOUND: "no such job",
    reason_pb2.REASON_NOT_LEASED: "nobody works on the job",
    reason_pb2.REASON_STALE_LEASE: "another client works on the job",
    reason_pb2.REASON_QUEUE_FULL: "queue full",
    reason_pb2.REASON_RANK_OUT_OF_RANGE: "priority outside the queue's range",
    reason_pb2.REASON_QUEUE_PAUSED: "queue paused",
    reason_pb2.REASON_SESSION_LAPSED: "unavailable, try again",
    reason_pb2.REASON_OWNER_CLOSED: "unavailable, try again",
    reason_pb2.REASON_SESSION_NOT_FOUND: "unavailable, try again",
    reason_pb2.REASON_OFFSET_TRIMMED: "offset trimmed",
    reason_pb2.REASON_STALE_EPOCH: "stale epoch",
    reason_pb2.REASON_CONSUMER_NOT_FOUND: "no such consumer",
    reason_pb2.REASON_UNAUTHENTICATED: "not authenticated",
    reason_pb2.REASON_PERMISSION_DENIED: "permission denied",
    reason_pb2.REASON_TABLE_NOT_FOUND: "no such table",
    reason_pb2.REASON_TABLE_EXISTS: "table exists",
    reason_pb2.REASON_ROW_NOT_FOUND: "no such row",
    reason_pb2.REASON_VERSION_MISMATCH: "version mismatch",
    reason_pb2.REASON_TABLE_FULL: "table full",
    reason_pb2.REASON_UNAVAILABLE: "unavailable, try again",
    reason_pb2.REASON_MEMORY_FULL: "no memory left, try again",
    reason_pb2.REASON_DRAINING: "shutting down, try again",
    reason_pb2.REASON_NOT_DURABLE: "the store does not write to disk",
    reason_pb2.REASON_TOO_MANY_IN_FLIGHT: "too busy, try again",
    reason_pb2.REASON_CANCELLED: "cancelled, try again",
    reason_pb2.REASON_INTERNAL: "internal error",
    reason_pb2.REASON_DAMAGED: "internal error",
}
"""What a client reads about each reason of the API: one line, stable."""

_LIMIT_TEXTS: Final[dict[int, str]] = {
    reason_pb2.REASON_PAYLOAD_TOO_LARGE: "{text}: at most {max} bytes",
    reason_pb2.REASON_LIMIT_EXCEEDED: "{text}: at most {max}",
    reason_pb2.REASON_QUEUE_FULL: "{text}: at most {max} jobs",
}


def explain(failure: Failure) -> str:
    """One line for the client: stable words per reason, with the limit where one was passed."""
    reason = failure.reason
    text = REASON_TEXTS.get(reason, "internal error")
    limit = failure.metadata.get("max") if reason in _LIMIT_TEXTS else None
    if limit:
        return _LIMIT_TEXTS[reason].format(text=text, max=limit)
    if reason == reason_pb2.REASON_INVALID_ARGUMENT and failure.message:
        return f"{text}: {' '.join(failure.message.split())}"
    return text
