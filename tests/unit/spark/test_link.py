"""What failed calls stand for: a core that is away, or a refusal."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from quintet_client.errors import DamagedError
from quintet_spark.source.link import failure_of

CODE = grpc.StatusCode


class FailedCall(grpc.RpcError):
    """As gRPC raises them."""

    def __init__(self, code: grpc.StatusCode, reason: str = "") -> None:
        self._code = code
        self._reason = reason

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "it failed"

    def trailing_metadata(self) -> Any:
        if not self._reason:
            return ()
        status = Status(code=self._code.value[0])
        status.details.add().Pack(ErrorInfo(reason=self._reason, domain="quintet"))
        return (("grpc-status-details-bin", status.SerializeToString()),)


@pytest.mark.parametrize(
    "code", [CODE.UNAVAILABLE, CODE.UNKNOWN, CODE.INTERNAL, CODE.CANCELLED, CODE.DEADLINE_EXCEEDED]
)
def test_what_a_dying_core_leaves_is_tried_again(code: grpc.StatusCode) -> None:
    assert failure_of(FailedCall(code)).retryable


@pytest.mark.parametrize("code", [CODE.UNIMPLEMENTED, CODE.PERMISSION_DENIED, CODE.UNAUTHENTICATED, CODE.OUT_OF_RANGE])
def test_a_refusal_is_not(code: grpc.StatusCode) -> None:
    assert not failure_of(FailedCall(code)).retryable


def test_damage_is_damage() -> None:
    failure = failure_of(FailedCall(CODE.DATA_LOSS, "DAMAGED"))
    assert isinstance(failure, DamagedError)
    assert not failure.retryable
    assert failure_of(FailedCall(CODE.RESOURCE_EXHAUSTED, "TOO_MANY_IN_FLIGHT")).retryable
