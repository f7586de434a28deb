"""The gRPC servers: one on a unix socket, trusted by the file's mode, and one on TCP behind TLS and tokens."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from quintet.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    event_service_pb2,
    event_service_pb2_grpc,
    metrics_service_pb2,
    metrics_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
    session_service_pb2,
    table_service_pb2,
    table_service_pb2_grpc,
)

from quintet_core.rpc.events import EventServicer, subscribe_handlers
from quintet_core.rpc.interceptors import AccessOf, Guard
from quintet_core.rpc.metrics import MetricsServicer, metrics_handlers
from quintet_core.rpc.session import SessionServicer, session_handlers
from quintet_core.rpc.watch import WatchServicer, watch_handlers

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
SERVICES = (
    queue_service_pb2.DESCRIPTOR.services_by_name["QueueService"].full_name,
    table_service_pb2.DESCRIPTOR.services_by_name["TableService"].full_name,
    session_service_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    event_service_pb2.DESCRIPTOR.services_by_name["EventService"].full_name,
    metrics_service_pb2.DESCRIPTOR.services_by_name["MetricsService"].full_name,
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


class SocketTakenError(OSError):
    """Another process listens where we were told to."""


@dataclass(frozen=True, slots=True)
class Servicers:
    """What every server serves."""

    queues: queue_service_pb2_grpc.QueueServiceServicer
    tables: table_service_pb2_grpc.TableServiceServicer
    sessions: SessionServicer
    events: EventServicer
    watch: WatchServicer
    metrics: MetricsServicer
    admin: admin_service_pb2_grpc.AdminServiceServicer
    health: health_pb2_grpc.HealthServicer


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the TCP listener. With a client CA, clients must show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Raises OSError when a file cannot be read."""
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        roots = self.client_ca.read_bytes() if self.client_ca is not None else None
        return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)


class Health:
    """The standard health service, mirroring readiness for the server as a whole and for each service."""

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]

    async def show(self, ready: bool) -> None:
        """Tell watchers and askers."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *SERVICES):
            await self.servicer.set(name, status)


class Servers:
    """The running listeners. `listening` maps their names to what clients connect to. Each serves `calls_max` calls at
    once, streams included; gRPC answers RESOURCE_EXHAUSTED to more."""

    def __init__(self, servicers: Servicers, calls_max: int) -> None:
        self._calls_max = calls_max
        self._servicers = servicers
        self._servers: list[grpc.aio.Server] = []
        self.listening: dict[str, str] = {}

    async def listen_unix(self, path: Path, mode: int) -> None:
        """On a unix socket that only its owner (and, by mode, its group) can open. Raises SocketTakenError."""
        _remove_stale(path)
        server = self._server(None)
        before = os.umask(0o177)
        try:
            _bind(server, f"unix:{path}", None)
            await server.start()
        finally:
            os.umask(before)
        _set_mode(path, mode)
        self._add(server, "core-socket", f"unix:{path}")

    async def listen_tcp(self, host: str, port: int, tls: TlsFiles | None, access_of: AccessOf | None) -> None:
        """On TCP; port 0 is any. Raises SocketTakenError, or OSError for TLS files that cannot be read."""
        server = self._server(access_of)
        shown = f"[{host}]" if ":" in host else host
        bound = _bind(server, f"{shown}:{port}", tls.credentials() if tls is not None else None)
        await server.start()
        self._add(server, "core-grpc", f"{shown}:{bound}")

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; those that run are ended after the grace."""
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(grace_s) for server in servers))

    def _add(self, server: grpc.aio.Server, name: str, address: str) -> None:
        self._servers.append(server)
        self.listening[name] = address

    def _server(self, access_of: AccessOf | None) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=(Guard(access_of),), options=_OPTIONS, maximum_concurrent_rpcs=self._calls_max
        )
        serve = self._servicers
        queue_service_pb2_grpc.add_QueueServiceServicer_to_server(serve.queues, server)
        table_service_pb2_grpc.add_TableServiceServicer_to_server(serve.tables, server)
        server.add_generic_rpc_handlers((session_handlers(serve.sessions),))
        event_service_pb2_grpc.add_EventServiceServicer_to_server(serve.events, server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(serve.metrics, server)
        # In the place of the generated ones.
        by_hand = (watch_handlers(serve.watch), subscribe_handlers(serve.events), metrics_handlers(serve.metrics))
        for service, handlers in by_hand:
            server.add_registered_method_handlers(service, handlers)  # type: ignore[attr-defined]
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(serve.admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(serve.health, server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        return server


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SocketTakenError(f"cannot listen on {address}: {error}") from None


def _set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that is no more. Raises SocketTakenError when somebody still answers there."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketTakenError(f"{path} is there and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketTakenError(f"cannot tell whether {path} is in use: {error}") from None
    raise SocketTakenError(f"another process listens on {path}")
