"""One connection to Redis, as thin as it can be: bytes out, parsed replies in, in order.

redis-py spends about 90 µs of CPU on a lone command and 8 µs on each of a pipeline; the pipeline of this package has
that much for a whole operation. So the hot path packs and parses with hiredis and does nothing else (docs/adr).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

Reply = Any  # what Redis answers: bytes, int, None, a list of these, or hiredis.ReplyError

CONNECT_TIMEOUT_S = 5.0


def into(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that resolves a future, unless whoever awaited it has gone."""

    def settle(outcome: Any) -> None:
        if not future.done():
            future.set_result(outcome)

    return settle


class LinkLostError(ConnectionError):
    """The connection went away; what was sent and not answered is in doubt."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where Redis is, from redis://, rediss:// or unix:// URLs."""

    host: str = ""
    port: int = 6379
    path: str = ""
    username: str = ""
    password: str = ""
    tls: bool = False
    database: int = 0

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises ValueError for another scheme, or a port or database that is no number."""
        parts = urlsplit(url)
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
        if parts.scheme == "unix":
            database = int(parse_qs(parts.query).get("db", ["0"])[0])
            return cls(path=parts.path, username=username, password=password, database=database)
        if parts.scheme not in ("redis", "rediss"):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return cls(
            host=parts.hostname or "localhost",
            port=parts.port or 6379,
            username=username,
            password=password,
            tls=parts.scheme == "rediss",
            database=int(parts.path.strip("/") or 0),
        )

    def handshake(self) -> list[tuple[str | bytes, ...]]:
        """The commands that make a new connection ours."""
        commands: list[tuple[str | bytes, ...]] = []
        if self.password:
            commands.append(("AUTH", self.username or "default", self.password))
        if self.database:
            commands.append(("SELECT", str(self.database)))
        commands.append(("CLIENT", "SETNAME", "quintet-core"))
        return commands


class Link(asyncio.Protocol):
    """A connection. `send` takes packed commands and who wants each reply, in order."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[Callable[[Reply], None]] = deque()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self.on_push: Callable[[Reply], None] | None = None

    @property
    def open(self) -> bool:
        """Whether it can still send."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, only like them.
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False:
                if waiting:
                    waiting.popleft()(reply)
                elif self.on_push:
                    self.on_push(reply)
        except hiredis.ProtocolError:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, deque()
        lost = LinkLostError("connection to Redis lost")
        for on_reply in waiting:
            on_reply(lost)
        self._on_lost()

    def send(self, packed: bytes, on_reply: Callable[[Reply], None]) -> None:
        """One command. `on_reply` gets its reply, or LinkLostError; at once when the connection is gone."""
        if self._transport is None:
            on_reply(LinkLostError("not connected to Redis"))
            return
        self._waiting.append(on_reply)
        self._transport.write(packed)

    def send_all(self, packed: list[bytes], on_replies: list[Callable[[Reply], None]]) -> None:
        """Several commands, packed in parts, in one write; one reply each."""
        if self._transport is None:
            for on_reply in on_replies:
                on_reply(LinkLostError("not connected to Redis"))
            return
        self._waiting.extend(on_replies)
        self._transport.write(b"".join(packed))

    async def command(self, *parts: str | bytes | int) -> Reply:
        """One command and its reply. Raises hiredis.ReplyError for an error reply, LinkLostError when the link goes."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        # The stub wants a tuple of one element.
        self.send(hiredis.pack_command(parts), into(future))  # type: ignore[arg-type]
        reply = await future
        if isinstance(reply, Exception):
            raise reply
        return reply

    def abort(self) -> None:
        """Drop the connection now; everything unanswered gets LinkLostError."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close once what was written is sent."""
        if self._transport is not None:
            self._transport.close()


async def connect(address: Address, on_lost: Callable[[], None], tls: ssl.SSLContext | None = None) -> Link:
    """A connection past its handshake. Raises OSError, LinkLostError, TimeoutError or hiredis.ReplyError."""
    loop = asyncio.get_running_loop()
    link: Link | None = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if address.path:
                _, link = await loop.create_unix_connection(lambda: Link(on_lost), address.path)
            else:
                context = tls or (ssl.create_default_context() if address.tls else None)
                _, link = await loop.create_connection(
                    lambda: Link(on_lost), address.host, address.port, ssl=context if address.tls else None
                )
            for command in address.handshake():
                await link.command(*command)
    except BaseException:
        if link is not None:
            link.abort()
        raise
    return link
