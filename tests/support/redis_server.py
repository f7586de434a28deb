"""A real redis-server for tests: append-only file, fsynced on every change, on a unix socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest
from quintet_core.storage import keys, library

PARTITIONS = 16
START_SECONDS_MAX = 20.0


class RedisServer:
    """A child redis-server. `url` and `path` say where it listens; the files live in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "redis.sock")
        self.url = f"unix://{self.path}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. The server must be running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and return once it answers. Raises RuntimeError with its log when it does not."""
        log = self.folder / "redis.log"
        self._process = subprocess.Popen(
            [
                *("redis-server", "--port", "0", "--unixsocket", self.path, "--dir", str(self.folder)),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--logfile", str(log)),
            ]
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server does not start: {log.read_text()}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with RedisConnection(self.path) as connection:
                return bool(connection.command("PING") == "PONG")
        except (OSError, EOFError, hiredis.ReplyError):
            return False

    def kill(self) -> None:
        """kill -9; `start` brings it back with what was on disk."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop for good, frozen or not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()

    def freeze(self) -> None:
        """Answer nothing until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)


class RedisConnection:
    """A blocking connection for setting scenes and looking at what is there. Text replies of status are str."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def __enter__(self) -> RedisConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def command(self, *parts: bytes | str | int | float) -> Any:
        """One command and its reply. Raises hiredis.ReplyError for an error reply."""
        return self.commands([parts])[0]

    def commands(self, commands: list[tuple[bytes | str | int | float, ...]]) -> list[Any]:
        """Several commands in one write. Raises the first hiredis.ReplyError after all replies have come."""
        self._socket.sendall(b"".join(map(_packed, commands)))
        replies = [self._reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
        return [_plain(reply) for reply in replies]

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(1 << 20)
            if not data:
                raise EOFError("redis-server closed the connection")
            self._reader.feed(data)
        return reply


def _packed(parts: tuple[bytes | str | int | float, ...]) -> bytes:
    return bytes(hiredis.pack_command(parts))  # type: ignore[arg-type]


def _plain(reply: Any) -> Any:
    """A status reply ("OK", the name of a type) as text: the reader gives it as bytes, like every string."""
    return reply.decode() if reply in (b"OK", b"PONG", b"QUEUED") else reply


def prepare(connection: RedisConnection, partitions: int = PARTITIONS) -> None:
    """An empty database with the function library and initialized partitions."""
    connection.command("FLUSHALL")
    connection.command("FUNCTION", "LOAD", "REPLACE", library.source())
    connection.commands(
        [("FCALL", "initialize_v1", 1, keys.partition_tag(partition)) for partition in range(partitions)]
    )


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One redis-server for the whole run. Tests take `redis`, and leave its settings as they found them.

    Its folder is short-named: the path of a unix socket may have 107 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="quintet-redis-"))
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_redis_server() -> Iterator[RedisServer]:
    """A redis-server that the test may kill, freeze and reconfigure; not prepared."""
    folder = Path(tempfile.mkdtemp(prefix="quintet-redis-"))
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[RedisConnection]:
    """A connection to an empty, prepared database of PARTITIONS partitions on `redis_server`."""
    with RedisConnection(redis_server.path) as connection:
        prepare(connection)
        yield connection
