"""Errors of the client: one class for every `Reason` of the API (proto/quintet/v1/reason.proto).

`raise_for(failure)` and `error_of_rpc(error)` turn what the wire says into these classes; nothing else makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import grpc
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from quintet.v1.reason_pb2 import Reason
from quintet.v1.session_service_pb2 import Failure

_ERROR_DOMAIN = "quintet"
_STATUS_DETAILS_KEY = "grpc-status-details-bin"


class QuintetError(Exception):
    """An operation was refused or its outcome is unknown.

    `reason` is the name of the API's reason without its prefix ("QUEUE_NOT_FOUND"), `message` one English sentence,
    `metadata` what the reason is about ("queue", "limit", "value", "min", "max"), `retryable` whether the same request
    may succeed later.
    """

    reason: ClassVar[str] = "UNSPECIFIED"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message or self.reason)
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})


class NotFoundError(QuintetError):
    """What the operation names does not exist."""


class AlreadyExistsError(QuintetError):
    """What the operation would create exists."""


class LeaseError(QuintetError):
    """The caller does not hold the lease it acts under."""


class PolicyError(QuintetError):
    """The queue's own settings forbid it."""


class AccessError(QuintetError):
    """The caller is not known, or not allowed."""


class RetryableError(QuintetError):
    """The world's fault: the same request may succeed later."""

    retryable = True


class InvalidArgumentError(QuintetError):
    """The request breaks a rule of the API."""

    reason = "INVALID_ARGUMENT"


class LimitExceededError(QuintetError):
    """A bound was passed; `metadata` names it."""

    reason = "LIMIT_EXCEEDED"


class PayloadTooLargeError(LimitExceededError):
    """The payload passes the server's or the queue's limit."""

    reason = "PAYLOAD_TOO_LARGE"


class QueueNotFoundError(NotFoundError):
    """There is no such queue."""

    reason = "QUEUE_NOT_FOUND"


class QueueExistsError(AlreadyExistsError):
    """There is a queue of that name."""

    reason = "QUEUE_EXISTS"


class JobNotFoundError(NotFoundError):
    """There is no such job, or it is in another queue."""

    reason = "JOB_NOT_FOUND"


class NotLeasedError(LeaseError):
    """The job exists, but is not leased."""

    reason = "NOT_LEASED"


class StaleLeaseError(LeaseError):
    """The job is leased again: the token is of an earlier lease."""

    reason = "STALE_LEASE"


class QueueFullError(PolicyError):
    """The queue holds as many jobs as its settings allow."""

    reason = "QUEUE_FULL"


class RankOutOfRangeError(PolicyError):
    """The rank is outside the queue's range."""

    reason = "RANK_OUT_OF_RANGE"


class QueuePausedError(PolicyError):
    """The queue takes no jobs now."""

    reason = "QUEUE_PAUSED"


class SessionLapsedError(LeaseError):
    """The session did not live long enough to be resumed; its owner leases are gone."""

    reason = "SESSION_LAPSED"


class OwnerClosedError(QuintetError):
    """The owner ended while the operation waited."""

    reason = "OWNER_CLOSED"


class SessionNotFoundError(NotFoundError):
    """There is no such session."""

    reason = "SESSION_NOT_FOUND"


class OffsetTrimmedError(QuintetError):
    """The event log no longer holds what follows this offset."""

    reason = "OFFSET_TRIMMED"


class StaleEpochError(QuintetError):
    """A commit with a higher epoch has been made."""

    reason = "STALE_EPOCH"


class ConsumerNotFoundError(NotFoundError):
    """There is no such consumer."""

    reason = "CONSUMER_NOT_FOUND"


class UnauthenticatedError(AccessError):
    """The core does not know the caller."""

    reason = "UNAUTHENTICATED"


class PermissionDeniedError(AccessError):
    """The caller may not do this."""

    reason = "PERMISSION_DENIED"


class TableNotFoundError(NotFoundError):
    """There is no such table."""

    reason = "TABLE_NOT_FOUND"


class TableExistsError(AlreadyExistsError):
    """There is a table of that name."""

    reason = "TABLE_EXISTS"


class RowNotFoundError(NotFoundError):
    """There is no such row."""

    reason = "ROW_NOT_FOUND"


class VersionMismatchError(QuintetError):
    """The row has another version than expected."""

    reason = "VERSION_MISMATCH"


class TableFullError(PolicyError):
    """The table holds as many rows as it may."""

    reason = "TABLE_FULL"


class UnavailableError(RetryableError):
    """The core cannot be reached, or whether the change has happened is unknown."""

    reason = "UNAVAILABLE"


class MemoryFullError(RetryableError):
    """The store has no memory left for what would grow its data."""

    reason = "MEMORY_FULL"


class DrainingError(UnavailableError):
    """The core is about to stop."""

    reason = "DRAINING"


class NotDurableError(RetryableError):
    """The store does not write to disk before it answers."""

    reason = "NOT_DURABLE"


class TooManyInFlightError(RetryableError):
    """More operations are under way than may be."""

    reason = "TOO_MANY_IN_FLIGHT"


class CancelledError(QuintetError):
    """A wait ended because its caller cancelled it. (Not asyncio's class of this name.)"""

    reason = "CANCELLED"


class InternalError(QuintetError):
    """The core's fault; its log says more."""

    reason = "INTERNAL"


class DamagedError(InternalError):
    """The store holds something else than the core wrote there. Nothing was changed."""

    reason = "DAMAGED"


def _classes_below(base: type[QuintetError]) -> list[type[QuintetError]]:
    return [each for below in base.__subclasses__() for each in (below, *_classes_below(below))]


ERROR_CLASSES: dict[int, type[QuintetError]] = {
    Reason.Value(f"REASON_{error_class.reason}"): error_class
    for error_class in _classes_below(QuintetError)
    if "reason" in vars(error_class)
}
"""The error class of each `Reason` (the enum's number)."""

_CLASSES_BY_STATUS: dict[grpc.StatusCode, type[QuintetError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceededError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.ABORTED: UnavailableError,
}


def error_of_failure(failure: Failure) -> QuintetError:
    """The error that a session's `Failure` stands for. A reason this client does not know is an `InternalError`."""
    error_class = ERROR_CLASSES.get(failure.reason, InternalError)
    return error_class(failure.message, failure.metadata)


def error_of_rpc(error: grpc.aio.AioRpcError | grpc.RpcError) -> QuintetError:
    """The error that a failed call stands for: by its google.rpc.ErrorInfo, else by its status code."""
    info = _error_info(error)
    message = error.details() or ""
    if info is None:
        return _CLASSES_BY_STATUS.get(error.code(), InternalError)(message)
    return _class_named(info.reason)(message, info.metadata)


def _class_named(reason: str) -> type[QuintetError]:
    name = f"REASON_{reason}"
    return ERROR_CLASSES.get(Reason.Value(name), InternalError) if name in Reason.keys() else InternalError  # noqa: SIM118


def _error_info(error: grpc.aio.AioRpcError | grpc.RpcError) -> ErrorInfo | None:
    trailing: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    for key, value in trailing:
        if key == _STATUS_DETAILS_KEY and isinstance(value, bytes):
            return _first_error_info(Status.FromString(value))
    return None


def _first_error_info(status: Status) -> ErrorInfo | None:
    for detail in status.details:
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == _ERROR_DOMAIN:
            return info
    return None
