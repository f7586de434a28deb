"""Why an operation was refused: the reasons, and the two ways they travel.

An expected refusal is a value (`Refusal`); nothing is raised on the way of an operation. What is raised is our own
fault.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Reason(enum.IntEnum):
    """The reasons of quintet.v1.Reason, by the same numbers (proved by a test)."""

    INVALID_ARGUMENT = 1
    LIMIT_EXCEEDED = 2
    PAYLOAD_TOO_LARGE = 3
    QUEUE_NOT_FOUND = 4
    QUEUE_EXISTS = 5
    JOB_NOT_FOUND = 6
    NOT_LEASED = 7
    STALE_LEASE = 8
    QUEUE_FULL = 9
    RANK_OUT_OF_RANGE = 10
    QUEUE_PAUSED = 11
    SESSION_LAPSED = 12
    OWNER_CLOSED = 13
    SESSION_NOT_FOUND = 14
    OFFSET_TRIMMED = 15
    STALE_EPOCH = 16
    CONSUMER_NOT_FOUND = 17
    UNAUTHENTICATED = 18
    PERMISSION_DENIED = 19
    TABLE_NOT_FOUND = 20
    TABLE_EXISTS = 21
    ROW_NOT_FOUND = 22
    VERSION_MISMATCH = 23
    TABLE_FULL = 24
    UNAVAILABLE = 40
    MEMORY_FULL = 41
    DRAINING = 42
    NOT_DURABLE = 43
    TOO_MANY_IN_FLIGHT = 44
    CANCELLED = 45
    INTERNAL = 60
    DAMAGED = 61


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to an operation that was not carried out.

    `message` is one English sentence without any payload; `metadata` says what the reason is about ("limit", "max").
    Under `UNAVAILABLE` alone the change may have happened, once.
    """

    reason: Reason
    message: str
    metadata: dict[str, str] = field(default_factory=dict)


SENTENCES: dict[Reason, str] = {
    Reason.INVALID_ARGUMENT: "the request breaks a rule",
    Reason.LIMIT_EXCEEDED: "a limit is exceeded",
    Reason.PAYLOAD_TOO_LARGE: "the payload is too large",
    Reason.QUEUE_NOT_FOUND: "no such queue",
    Reason.QUEUE_EXISTS: "the queue exists",
    Reason.JOB_NOT_FOUND: "no such job",
    Reason.NOT_LEASED: "the job is not leased",
    Reason.STALE_LEASE: "the lease is over: the token is of an earlier lease",
    Reason.QUEUE_FULL: "the queue is full",
    Reason.RANK_OUT_OF_RANGE: "the rank is out of the queue's range",
    Reason.QUEUE_PAUSED: "the queue is paused",
    Reason.SESSION_LAPSED: "the session has lapsed, and its leases with it",
    Reason.OWNER_CLOSED: "the owner was closed",
    Reason.SESSION_NOT_FOUND: "no such session",
    Reason.OFFSET_TRIMMED: "the log no longer holds this offset",
    Reason.STALE_EPOCH: "a later epoch of this consumer has committed",
    Reason.CONSUMER_NOT_FOUND: "no such consumer",
    Reason.UNAUTHENTICATED: "a valid token is needed",
    Reason.PERMISSION_DENIED: "the token does not allow this",
    Reason.TABLE_NOT_FOUND: "no such table",
    Reason.TABLE_EXISTS: "the table exists",
    Reason.ROW_NOT_FOUND: "no such row",
    Reason.VERSION_MISMATCH: "the row has another version",
    Reason.TABLE_FULL: "the table is full",
    Reason.UNAVAILABLE: "Redis does not answer; the change may or may not have happened",
    Reason.MEMORY_FULL: "Redis has no memory left for more",
    Reason.DRAINING: "the core is about to stop",
    Reason.NOT_DURABLE: "Redis does not write to disk before it answers",
    Reason.TOO_MANY_IN_FLIGHT: "too many operations are in flight",
    Reason.CANCELLED: "the wait was cancelled",
    Reason.INTERNAL: "something is wrong inside the service",
    Reason.DAMAGED: "Redis holds something else than was written; nothing was changed",
}


def refusal(reason: Reason, message: str = "", **metadata: str) -> Refusal:
    """A refusal with the reason's own sentence unless a better one is given."""
    return Refusal(reason, message or SENTENCES[reason], metadata)


class CallerError(ValueError):
    """A broken rule of the caller's, found before anything was sent. Carries its refusal."""

    def __init__(self, refused: Refusal) -> None:
        super().__init__(refused.message)
        self.refusal = refused


def broken(message: str, **metadata: str) -> CallerError:
    """An INVALID_ARGUMENT to raise while arguments are checked."""
    return CallerError(refusal(Reason.INVALID_ARGUMENT, message, **metadata))


def exceeded(what: str, limit: int, value: int) -> CallerError:
    """A LIMIT_EXCEEDED to raise: `what` names the setting or field, limit and value in its unit."""
    message = f"{what} is {value}, the limit is {limit}"
    return CallerError(refusal(Reason.LIMIT_EXCEEDED, message, limit=what, max=str(limit), value=str(value)))
