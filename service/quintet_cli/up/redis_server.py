"""The child redis-server: found, checked, and told to write every change to disk before it answers."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from redis.asyncio import Redis
from redis.exceptions import RedisError

VERSION_MIN = (7, 0)
PROGRAMS = ("redis-server", "valkey-server")
_LOADED_POLL_SECONDS = 0.02


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
        async with Redis(unix_socket_path=str(self.socket), socket_timeout=5) as redis:
            while not await _is_loaded(redis):
                await asyncio.sleep(_LOADED_POLL_SECONDS)
        return {self.name: f"unix:{self.socket}"}


async def _is_loaded(redis: Redis) -> bool:
    try:
        return bool(await redis.ping())
    except (RedisError, OSError):  # not listening yet, or still loading
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
