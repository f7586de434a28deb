"""The small HTTP server every process has: `/metrics`, `/healthz` (alive) and `/readyz` (may be sent work).

One request per connection, bounded in size, time and number; it never serves anything else.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64

Readiness = Callable[[], tuple[bool, str]]
"""Whether work may be sent here, and in words why (not)."""

_PLAIN = "text/plain; charset=utf-8"
_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: str
    body: bytes

    def encode(self, *, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status} {_PHRASES[self.status]}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (self.body if with_body else b"")


class Exposition:
    """A running exposition server. `start` it, read `address`, `close` it."""

    def __init__(self, registry: CollectorRegistry, ready: Readiness) -> None:
        self._registry = registry
        self._ready = ready
        self._connections = 0
        self._server: asyncio.Server | None = None
        self.address = ""
        """`host:port` it listens on, the real port also when 0 was asked for."""

    @classmethod
    async def start(
        cls, *, registry: CollectorRegistry, ready: Readiness, host: str = "127.0.0.1", port: int = 0
    ) -> "Exposition":
        """Listen on `host`:`port` (0: any free port). Raises OSError when the port is taken."""
        exposition = cls(registry, ready)
        server = await asyncio.start_server(exposition._serve, host, port, limit=REQUEST_BYTES_MAX)
        exposition._server = server
        exposition.address = address_of(server)
        return exposition

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    await self._answer_one(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the peer's fault, and the peer's loss
        finally:
            self._connections -= 1
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b""
        method, target = _request_line(head)
        writer.write(self._answer(method, target).encode(with_body=method != "HEAD"))
        await writer.drain()

    def _answer(self, method: str, target: str) -> _Answer:
        if not method:
            return _Answer(400, _PLAIN, b"bad request\n")
        if method not in {"GET", "HEAD"}:
            return _Answer(405, _PLAIN, b"only GET and HEAD\n")
        match target.partition("?")[0]:
            case "/metrics":
                return _Answer(200, CONTENT_TYPE_LATEST, generate_latest(self._registry))
            case "/healthz":
                return _Answer(200, _PLAIN, b"alive\n")
            case "/readyz":
                ready, reason = self._ready()
                return _Answer(200 if ready else 503, _PLAIN, f"{reason}\n".encode())
            case _:
                return _Answer(404, _PLAIN, b"/metrics, /healthz or /readyz\n")


def address_of(server: asyncio.Server) -> str:
    """`host:port` of a listening server's first socket (IPv6 hosts in brackets)."""
    host, port, *_ = server.sockets[0].getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _request_line(head: bytes) -> tuple[str, str]:
    """Method and target of a request head, or two empty strings when it is not HTTP."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        return "", ""
    return parts[0].decode("latin-1"), parts[1].decode("latin-1")
