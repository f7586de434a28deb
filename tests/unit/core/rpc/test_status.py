"""Refusals on the wire."""

from __future__ import annotations

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from quintet_core.domain.errors import Reason, refusal
from quintet_core.rpc.status import CODES, failure, status_details


def test_every_reason_has_a_code() -> None:
    assert set(CODES) == set(Reason)
    assert grpc.StatusCode.OK not in CODES.values()
    assert grpc.StatusCode.UNKNOWN not in CODES.values()


@pytest.mark.parametrize("reason", Reason)
def test_a_status_carries_reason_sentence_and_metadata(reason: Reason) -> None:
    refused = refusal(reason, max="7")
    status = Status.FromString(status_details(refused))
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message) == (CODES[reason].value[0], refused.message)
    assert (info.domain, info.reason) == ("quintet", reason.name)
    assert dict(info.metadata) == ({} if reason is Reason.INTERNAL else {"max": "7"})


def test_a_failure_carries_the_same() -> None:
    told = failure(refusal(Reason.QUEUE_FULL, max="7"))
    assert (int(told.reason), told.message, dict(told.metadata)) == (9, "the queue is full", {"max": "7"})


def test_what_went_wrong_inside_is_not_told() -> None:
    assert not failure(refusal(Reason.INTERNAL, what="secret place")).metadata
    assert b"secret place" not in status_details(refusal(Reason.INTERNAL, what="secret place"))
