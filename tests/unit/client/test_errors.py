"""Every reason of the API has one error class, and the wire's errors become them."""

from __future__ import annotations

import grpc
import pytest
import quintet_client
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from quintet.v1.reason_pb2 import REASON_QUEUE_FULL, REASON_UNSPECIFIED, Reason
from quintet.v1.session_service_pb2 import Failure
from quintet_client.errors import (
    ERROR_CLASSES,
    InternalError,
    JobNotFoundError,
    LimitExceededError,
    QueueFullError,
    QuintetError,
    UnavailableError,
    error_of_failure,
    error_of_rpc,
)


@pytest.mark.parametrize("name", [name for name in Reason.keys() if name != "REASON_UNSPECIFIED"])  # noqa: SIM118
def test_each_reason_has_one_class_and_it_is_exported(name: str) -> None:
    error_class = ERROR_CLASSES[Reason.Value(name)]
    assert f"REASON_{error_class.reason}" == name
    assert getattr(quintet_client, error_class.__name__) is error_class


def test_no_two_classes_share_a_reason() -> None:
    assert len(set(ERROR_CLASSES.values())) == len(ERROR_CLASSES)
    assert REASON_UNSPECIFIED not in ERROR_CLASSES


def test_the_worlds_faults_are_retryable_and_no_others() -> None:
    retryable = {error_class.reason for error_class in ERROR_CLASSES.values() if error_class.retryable}
    assert retryable == {"UNAVAILABLE", "MEMORY_FULL", "DRAINING", "NOT_DURABLE", "TOO_MANY_IN_FLIGHT"}


def test_a_failure_becomes_its_class_with_all_it_says() -> None:
    error = error_of_failure(Failure(reason=REASON_QUEUE_FULL, message="full", metadata={"limit": "10"}))
    assert isinstance(error, QueueFullError)
    assert (error.message, error.metadata, str(error)) == ("full", {"limit": "10"}, "full")


def test_a_reason_of_a_newer_core_is_an_internal_error() -> None:
    failure = Failure(message="new")
    failure.reason = 9999  # type: ignore[assignment]
    assert isinstance(error_of_failure(failure), InternalError)


def rpc_error(code: grpc.StatusCode, *details: Any) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata()
    if details:
        trailing.add("grpc-status-details-bin", Status(details=details).SerializeToString())
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details="said", debug_error_string="")


def packed(info: ErrorInfo) -> Any:
    detail = Any()
    detail.Pack(info)
    return detail


def test_a_status_with_error_info_becomes_its_class() -> None:
    info = ErrorInfo(domain="quintet", reason="JOB_NOT_FOUND", metadata={"value": "7"})
    error = error_of_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, packed(info)))
    assert isinstance(error, JobNotFoundError)
    assert error.metadata == {"value": "7"}


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, UnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, LimitExceededError),
        (grpc.StatusCode.UNKNOWN, InternalError),
    ],
)
def test_a_bare_status_becomes_the_class_of_its_code(code: grpc.StatusCode, error_class: type[QuintetError]) -> None:
    assert type(error_of_rpc(rpc_error(code))) is error_class


def test_error_info_of_another_domain_is_not_ours() -> None:
    info = ErrorInfo(domain="elsewhere", reason="JOB_NOT_FOUND")
    assert type(error_of_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, packed(info)))) is UnavailableError
