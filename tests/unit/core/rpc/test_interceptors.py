"""What a caller sees of our own faults: one neutral sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from typing import Any

import grpc
import pytest
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import admin_service_pb2_grpc, event_service_pb2_grpc
from quintet.v1 import event_service_pb2 as e
from quintet_core.domain.errors import Reason, refusal
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.interceptors import Guard
from quintet_core.rpc.status import abort
from quintet_kit import logs

from tests.support.api import Api, open_api, refused

# The names are the API's.
# ruff: noqa: N802


class Broken(admin_service_pb2_grpc.AdminServiceServicer, event_service_pb2_grpc.EventServiceServicer):
    """Fails in every way a servicer can."""

    async def GetInfo(self, request: a.GetInfoRequest, context: Any) -> a.GetInfoResponse:
        raise RuntimeError("a secret of ours")

    async def GetDurability(self, request: a.GetDurabilityRequest, context: Any) -> a.GetDurabilityResponse:
        await abort(context, refusal(Reason.QUEUE_FULL))

    async def Subscribe(self, request: e.SubscribeRequest, context: Any) -> AsyncIterator[e.SubscribeResponse]:
        yield e.SubscribeResponse()
        raise RuntimeError("a secret of ours")

    async def ListPartitions(self, request: e.ListPartitionsRequest, context: Any) -> e.ListPartitionsResponse:
        partition = e.Partition(partition=1 if current_access().unlimited else 0)
        return e.ListPartitionsResponse(partitions=[partition])


@pytest.fixture
def log() -> Iterator[StringIO]:
    stream = StringIO()
    logs.configure("test", log_format="json", stream=stream)
    yield stream
    logs.configure("test")


async def serve(guard: Guard) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(interceptors=(guard,))
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(Broken(), server)  # type: ignore[abstract]
    event_service_pb2_grpc.add_EventServiceServicer_to_server(Broken(), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    server, target = await serve(Guard(None))
    async with open_api(target) as api:
        yield api
    await server.stop(0)


async def test_an_unexpected_error_is_internal_and_says_nothing_of_itself(api: Api, log: StringIO) -> None:
    answer = await refused(api.admin.GetInfo(a.GetInfoRequest()))
    assert (answer.code, answer.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert answer.message == "something is wrong inside the service"
    line = json.loads(log.getvalue().splitlines()[0])
    assert (line["event"], line["method"]) == ("call_failed", "/quintet.v1.AdminService/GetInfo")
    assert "a secret of ours" in line["exception"]


async def test_one_in_the_middle_of_a_stream_is_the_same(api: Api, log: StringIO) -> None:
    stream = api.events.Subscribe(e.SubscribeRequest())
    await stream.read()
    assert (await refused(stream.read())).reason == "INTERNAL"
    assert "call_failed" in log.getvalue()


async def test_a_refusal_goes_through_as_it_is(api: Api, log: StringIO) -> None:
    for _ in range(2):
        assert (await refused(api.admin.GetDurability(a.GetDurabilityRequest()))).reason == "QUEUE_FULL"
    assert log.getvalue() == ""


async def test_a_caller_has_the_access_of_its_own_token_alone() -> None:
    known = {"Bearer all": Access("all", ("*",), frozenset("*")), "Bearer some": Access("some", ("a",), frozenset())}
    server, target = await serve(Guard(known.get))
    async with open_api(target) as api:
        seen = []
        for header in ("Bearer all", "Bearer some", "Bearer all"):
            call = api.events.ListPartitions(e.ListPartitionsRequest(), metadata=(("authorization", header),))
            seen.append((await call).partitions[0].partition)
        assert seen == [1, 0, 1]
    await server.stop(0)
