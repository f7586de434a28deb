"""The child redis-server: found, checked, and told to write every change to disk before it answers."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

VERSION_MIN = (7, 0)
PROGRAMS = ("redis-server", "valkey-server")
_LOADED_POLL_SECONDS = 0.02
_ANSWER_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class RedisServer:
    """How to run Redis on a data directory, reachable by a unix socket only."""

    program: Path
    data: Path
    socket: Path

    name = "redis"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def command(self) -> tuple[str, ...]:
        """The command line. Durability is not negotiable here: the core would refuse anything weaker."""
        options = {
            "dir": str(self.data),
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "daemonize": "no",
            "logfile": str(self.log),
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "aof-use-rdb-preamble": "yes",
            "aof-load-truncated": "yes",
            "auto-aof-rewrite-percentage": "100",
            "auto-aof-rewrite-min-size": "64mb",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        return (str(self.program), *(word for name, value in options.items() for word in (f"--{name}", value)))

    @property
    def log(self) -> Path:
        """Where Redis writes its log lines."""
        return self.data / "redis.log"

    async def wait_ready(self, _pid: int) -> Mapping[str, str]:
        """Return what it listens on once everything on disk is loaded, however long that takes."""
        while not await _is_loaded(self.socket):
            await asyncio.sleep(_LOADED_POLL_SECONDS)
        return {self.name: f"unix:{self.socket}"}


async def _is_loaded(path: Path) -> bool:
    """Whether it answers as one that has loaded everything. One question needs no client, which is slow to import."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(b"PING\r\n")
                return await reader.readline() == b"+PONG\r\n"
            finally:
                writer.close()
    except OSError:  # not listening yet (TimeoutError is one, too)
        return False


def find(given: Path | None) -> Path:
    """The server to run: the one given, else the first in PATH that is recent enough.

    Raises ClickException saying what was found and what to do.
    """
    candidates = [str(given)] if given else [path for name in PROGRAMS if (path := shutil.which(name))]
    if not candidates:
        raise click.ClickException(
            "No redis-server was found. Install it (Debian: apt-get install redis-server; `make run` does that)"
            " or name one: --redis-server PATH."
        )
    versions = {path: _version(path) for path in candidates}
    for path, version in versions.items():
        if version >= VERSION_MIN:
            return Path(path)
    found = ", ".join(f"{path} is {'.'.join(map(str, version)) or 'not one'}" for path, version in versions.items())
    raise click.ClickException(f"Quintet needs redis-server 7.0 or later, or valkey-server; {found}.")


def _version(program: str) -> tuple[int, ...]:
    """`Redis server v=7.0.15 ...` -> (7, 0, 15); () when the program says nothing of the kind."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in match.groups()) if match else ()
