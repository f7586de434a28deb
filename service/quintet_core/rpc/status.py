"""Refusals as gRPC statuses and as Failures: the one table from reasons to codes."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from quintet.v1 import session_service_pb2

from quintet_core.domain.errors import Reason, Refusal

DOMAIN = "quintet"
DETAILS_KEY = "grpc-status-details-bin"

_CODE = grpc.StatusCode
CODES: dict[Reason, grpc.StatusCode] = {
    Reason.INVALID_ARGUMENT: _CODE.INVALID_ARGUMENT,
    Reason.LIMIT_EXCEEDED: _CODE.INVALID_ARGUMENT,
    Reason.PAYLOAD_TOO_LARGE: _CODE.INVALID_ARGUMENT,
    Reason.QUEUE_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.QUEUE_EXISTS: _CODE.ALREADY_EXISTS,
    Reason.JOB_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.NOT_LEASED: _CODE.FAILED_PRECONDITION,
    Reason.STALE_LEASE: _CODE.FAILED_PRECONDITION,
    Reason.QUEUE_FULL: _CODE.RESOURCE_EXHAUSTED,
    Reason.RANK_OUT_OF_RANGE: _CODE.OUT_OF_RANGE,
    Reason.QUEUE_PAUSED: _CODE.FAILED_PRECONDITION,
    Reason.SESSION_LAPSED: _CODE.FAILED_PRECONDITION,
    Reason.OWNER_CLOSED: _CODE.CANCELLED,
    Reason.SESSION_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.OFFSET_TRIMMED: _CODE.OUT_OF_RANGE,
    Reason.STALE_EPOCH: _CODE.FAILED_PRECONDITION,
    Reason.CONSUMER_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.UNAUTHENTICATED: _CODE.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: _CODE.PERMISSION_DENIED,
    Reason.TABLE_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.TABLE_EXISTS: _CODE.ALREADY_EXISTS,
    Reason.ROW_NOT_FOUND: _CODE.NOT_FOUND,
    Reason.VERSION_MISMATCH: _CODE.ABORTED,
    Reason.TABLE_FULL: _CODE.RESOURCE_EXHAUSTED,
    Reason.UNAVAILABLE: _CODE.UNAVAILABLE,
    Reason.MEMORY_FULL: _CODE.RESOURCE_EXHAUSTED,
    Reason.DRAINING: _CODE.UNAVAILABLE,
    Reason.NOT_DURABLE: _CODE.FAILED_PRECONDITION,
    Reason.TOO_MANY_IN_FLIGHT: _CODE.RESOURCE_EXHAUSTED,
    Reason.CANCELLED: _CODE.CANCELLED,
    Reason.INTERNAL: _CODE.INTERNAL,
    Reason.DAMAGED: _CODE.DATA_LOSS,
}
"""Every reason there is (proved by a test)."""


def shown_metadata(refused: Refusal) -> dict[str, str]:
    """What a caller is told beside the sentence; what went wrong inside the service is for the log alone."""
    return {} if refused.reason is Reason.INTERNAL else refused.metadata


def failure(refused: Refusal) -> session_service_pb2.Failure:
    """The refusal as a session carries it."""
    return session_service_pb2.Failure(
        reason=refused.reason,  # type: ignore[arg-type]
        message=refused.message,
        metadata=shown_metadata(refused),
    )


def status_details(refused: Refusal) -> bytes:
    """google.rpc.Status with an ErrorInfo, as trailing metadata carries it."""
    info = error_details_pb2.ErrorInfo(reason=refused.reason.name, domain=DOMAIN, metadata=shown_metadata(refused))
    packed = any_pb2.Any()
    packed.Pack(info)
    code: int = CODES[refused.reason].value[0]
    status = status_pb2.Status(code=code, message=refused.message, details=[packed])
    serialized: bytes = status.SerializeToString()
    return serialized


async def abort(context: grpc.aio.ServicerContext[Any, Any], refused: Refusal) -> NoReturn:
    """End a call with a refusal."""
    await context.abort(CODES[refused.reason], refused.message, ((DETAILS_KEY, status_details(refused)),))
    raise AssertionError("abort returns to nobody")
