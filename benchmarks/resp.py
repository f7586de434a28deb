"""The barest Redis connection: packed commands out, parsed replies in, in order, blocking."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Any

import hiredis


class RespConnection:
    """A blocking connection to the Redis that listens on the unix socket `path`.

    `receive` raises hiredis.ReplyError for an error reply.
    """

    def __init__(self, path: Path, timeout_seconds: float = 30.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_seconds)
        self._socket.connect(str(path))
        self._reader = hiredis.Reader()

    def __enter__(self) -> RespConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def send(self, packed: bytes) -> None:
        self._socket.sendall(packed)

    def receive(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("Redis closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def command(self, *parts: str | bytes | int) -> Any:
        """One command and its reply."""
        self.send(hiredis.pack_command(parts))  # type: ignore[arg-type]
        return self.receive()

    def info(self, section: str) -> dict[str, str]:
        """A section of Redis INFO."""
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
