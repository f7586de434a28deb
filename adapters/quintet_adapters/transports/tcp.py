"""TCP, with or without TLS: sockets beneath connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from quintet_adapters.adapter import Adapter
from quintet_adapters.connection import Connection
from quintet_adapters.protocols.conversation import Converse

_BACKLOG: Final = 4096
_WRITE_BUFFER_BYTES: Final = 256 * 1024
_KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_INTERVAL_S: Final = 15
_KEEPALIVE_PROBES: Final = 4
# As long as keepalive takes to find a dead peer that is idle.
_UNACKNOWLEDGED_MS: Final = (_KEEPALIVE_IDLE_S + _KEEPALIVE_INTERVAL_S * _KEEPALIVE_PROBES) * 1000


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """How a connection ends."""

    linger_ms: int = 2_000
    """For dropping what still comes after the last answer."""
    linger_bytes_max: int = 16 * 1024 * 1024
    close_ms: int = 10_000
    """For the client to take its last answers."""
    unacknowledged_ms: int = _UNACKNOWLEDGED_MS
    """For the client's host to make room for answers; then the connection is aborted, as it must be where a dead peer
    would keep leases. 0: a client need not read, and a dead one is found by the system's own patience (a quarter of
    an hour)."""


class TcpWire(asyncio.Protocol):
    """One socket."""

    def __init__(self, adapter: Adapter, converse: Converse, limits: TcpLimits) -> None:
        self._adapter = adapter
        self._converse = converse
        self._limits = limits
        self._connection: Connection | None = None
        self._ended = False
        self._linger_bytes_left = 0
        self._timer: asyncio.TimerHandle | None = None

    # From the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        if not self._adapter.may_join():
            self._transport.close()
            return
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self._connection = Connection(self._adapter, self, self._converse())
        self._adapter.join(self._connection)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if self._linger_bytes_left:
            self._linger_bytes_left -= len(data)
            if self._linger_bytes_left <= 0:
                self.close()
        elif connection is not None:
            connection.receive(data)

    def eof_received(self) -> bool:
        self._ended = True
        if self._linger_bytes_left:
            self.close()
        elif self._connection is not None:
            self._connection.receive_end()
        # A socket stays open for what is owed; TLS cannot be half-closed.
        return not self._is_tls

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._connection is not None:
            self._connection.lost()
            self._connection = None

    # From the connection (see `quintet_adapters.connection.Wire`).

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def linger(self) -> None:
        if self._ended or self._is_tls:
            self.close()
            return
        self._linger_bytes_left = self._limits.linger_bytes_max
        self._transport.resume_reading()
        self._transport.write_eof()
        self._after(self._limits.linger_ms, self.close)

    def close(self) -> None:
        self._linger_bytes_left = 0
        self._after(self._limits.close_ms, self._transport.abort)
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _after(self, milliseconds: int, action: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._adapter.loop.call_later(milliseconds / 1000, action)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _set_options(sock: socket.socket, unacknowledged_ms: int) -> None:
    """Of a listening socket, whose connections inherit them: set for each connection they cost 15 µs."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_ms)


async def listen(
    adapter: Adapter,
    converse: Converse,
    limits: TcpLimits,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
) -> asyncio.Server:
    """Serve clients on `host`:`port` (0: any free port). Raises OSError when the port is taken."""
    server = await adapter.loop.create_server(
        lambda: TcpWire(adapter, converse, limits), host, port, ssl=tls, backlog=_BACKLOG, reuse_address=True
    )
    for sock in server.sockets:
        _set_options(sock, limits.unacknowledged_ms)
    return server
