"""AdminService: what an operator asks a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quintet.v1 import admin_service_pb2 as pb
from quintet.v1 import admin_service_pb2_grpc

from quintet_core.domain.durability import APPEND_FSYNC, APPEND_ONLY, EVICTION_POLICY
from quintet_core.domain.errors import Refusal
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.operations.namespaces import NamespaceOperations
from quintet_core.rpc import convert
from quintet_core.rpc.door import Context, Door
from quintet_core.storage.connection import RedisConnection
from quintet_core.waiting.sessions import Sessions

_M = TypeVar("_M")
UNREAD = "Redis has not been reached yet"

# Each method's name is the API's.
# ruff: noqa: N802


@dataclass(frozen=True, slots=True)
class Standing:
    """What a core tells of itself. `version` of the software; `replica` names this process among its peers."""

    version: str
    partitions: int
    replica: str
    started_at_ms: int
    connection: RedisConnection
    sessions: Sessions
    parked_waits: Callable[[], int]
    is_ready: Callable[[], bool]
    is_draining: Callable[[], bool]


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """Durability, identity, and what holds for namespaces."""

    def __init__(self, standing: Standing, namespaces: NamespaceOperations, door: Door) -> None:
        self._standing = standing
        self._namespaces = namespaces
        self._door = door

    async def GetDurability(self, request: pb.GetDurabilityRequest, context: Context) -> pb.GetDurabilityResponse:
        """Whether a reply means that the change is on disk, as last checked."""

        async def work() -> pb.GetDurabilityResponse:
            return self._durability()

        return await self._door.wait(context, "get_durability", None, work, _itself)

    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        """Who this core is."""

        async def work() -> pb.GetInfoResponse:
            return self._info()

        return await self._door.wait(context, "get_info", None, work, _itself)

    async def GetNamespace(self, request: pb.GetNamespaceRequest, context: Context) -> pb.GetNamespaceResponse:
        """What holds for a namespace."""
        namespace = convert.namespace_of(request)

        async def work() -> NamespaceSettings | Refusal:
            return await self._namespaces.get(namespace)

        return await self._door.wait(context, "get_namespace", namespace, work, convert.namespace_got)

    async def UpdateNamespace(self, request: pb.UpdateNamespaceRequest, context: Context) -> pb.UpdateNamespaceResponse:
        """Replace it."""
        namespace = convert.namespace_of(request)

        async def work() -> Refusal | None:
            return await self._namespaces.update(namespace, convert.namespace_settings(request.settings))

        return await self._door.wait(context, "update_namespace", namespace, work, convert.namespace_updated)

    def _durability(self) -> pb.GetDurabilityResponse:
        connection = self._standing.connection
        found = connection.durability
        if found is None:
            return pb.GetDurabilityResponse(weak_allowed=connection.weak_durability_allowed, weaknesses=[UNREAD])
        return pb.GetDurabilityResponse(
            durable=found.durable,
            weak_allowed=connection.weak_durability_allowed,
            weaknesses=found.weaknesses,
            append_only=found.settings.get(APPEND_ONLY) == "yes",
            append_fsync=found.settings.get(APPEND_FSYNC, ""),
            eviction_policy=found.settings.get(EVICTION_POLICY, ""),
            checked_at_ms=found.checked_at_ms,
            append_only_last_write_status=found.last_write_status,
        )

    def _info(self) -> pb.GetInfoResponse:
        standing = self._standing
        return pb.GetInfoResponse(
            version=standing.version,
            library_version=standing.connection.library_version,
            partitions=standing.partitions,
            redis_version=standing.connection.redis_version,
            replica=standing.replica,
            started_at_ms=standing.started_at_ms,
            sessions=standing.sessions.attached,
            parked_waits=standing.parked_waits(),
            ready=standing.is_ready(),
            draining=standing.is_draining(),
        )


def _itself(message: _M) -> _M:
    return message
