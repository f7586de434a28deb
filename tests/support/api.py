"""The API by generated stubs over a real channel, and refusals as what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from grpc_health.v1.health_pb2_grpc import HealthStub
from quintet.v1 import queue_service_pb2 as q
from quintet.v1.admin_service_pb2_grpc import AdminServiceStub
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.job_pb2 import Job, NewJob
from quintet.v1.metrics_service_pb2_grpc import MetricsServiceStub
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub
from quintet.v1.session_service_pb2_grpc import SessionServiceStub
from quintet.v1.table_service_pb2_grpc import TableServiceStub


@dataclass(frozen=True)
class Refused:
    """What a refused call tells."""

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str]


class Api:
    """Every service of one core over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        # The stubs are typed for synchronous channels too; here everything is awaited.
        self.queues: Any = QueueServiceStub(channel)
        self.tables: Any = TableServiceStub(channel)
        self.events: Any = EventServiceStub(channel)
        self.metrics: Any = MetricsServiceStub(channel)
        self.admin: Any = AdminServiceStub(channel)
        self.sessions: Any = SessionServiceStub(channel)
        self.health: Any = HealthStub(channel)
        self.channel = channel

    async def put(self, queue: str, *payloads: bytes, **fields: Any) -> list[int]:
        """Enqueue jobs that share their fields; their ids."""
        jobs = [NewJob(payload=payload, **fields) for payload in payloads or (b"x",)]
        response = await self.queues.Enqueue(q.EnqueueRequest(queue=queue, jobs=jobs, create_if_missing=True))
        return list(response.ids)

    async def take(self, *queues: str, **fields: Any) -> Job:
        """Dequeue the one job that must be there."""
        response = await self.queues.Dequeue(q.DequeueRequest(queues=queues, **fields))
        assert len(response.jobs) == 1
        job: Job = response.jobs[0]
        return job


@asynccontextmanager
async def open_api(
    target: str, credentials: grpc.ChannelCredentials | None = None, options: Sequence[tuple[str, Any]] = ()
) -> AsyncIterator[Api]:
    """An Api of the core at a target, closed at the end."""
    options = [("grpc.use_local_subchannel_pool", 1), *options]
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield Api(channel)


async def refused(call: Awaitable[Any]) -> Refused:
    """How a call is refused. Fails when it is not."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return told(error)
    raise AssertionError(f"not refused: {answer}")


def told(error: grpc.aio.AioRpcError) -> Refused:
    """The reason and its details behind a gRPC error; reason "" when it has none."""
    info = ErrorInfo()
    trailing: Any = error.trailing_metadata() or ()  # the stub knows it as no tuple
    for key, value in trailing:
        if key == "grpc-status-details-bin":
            status = Status.FromString(value)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            assert status.details[0].Unpack(info)
            assert info.domain == "quintet"
    return Refused(error.code(), info.reason, error.details() or "", dict(info.metadata))
