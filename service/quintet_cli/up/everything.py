"""All children together: started from the bottom up, stopped from the top down."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import click

from quintet_cli.up import redis_server
from quintet_cli.up.child import Child, Listening, wait_ready_file
from quintet_cli.up.data_directory import DataDirectory
from quintet_cli.up.parts import METRICS, Part, parts
from quintet_cli.up.settings import UpSettings

Progress = Callable[[str], None]


class Everything:
    """Redis, the core and the adapters as children, with the data directory they share."""

    def __init__(self, settings: UpSettings, directory: DataDirectory) -> None:
        self._settings = settings
        self.directory = directory
        server = redis_server.RedisServer(
            program=redis_server.find(settings.redis_server),
            data=directory.path,
            socket=directory.runtime / "redis.sock",
        )
        core, adapters = parts(settings, server.url, directory.runtime / "core.sock")
        check_ports(settings.host, (core, *adapters))
        self.parts = (core, *adapters)
        self.redis = Child(
            name="redis",
            command=server.command(),
            environment=lambda _: {},
            wait_ready=server.wait_ready,
            death_signal=signal.SIGTERM,  # it ends its append-only file in order
            inherited=(directory.lock,),
            log=server.log,
        )
        self.core, *self.adapters = [self._python_child(part) for part in self.parts]

    @property
    def children(self) -> tuple[Child, ...]:
        return (self.redis, self.core, *self.adapters)

    async def start(self, progress: Progress) -> None:
        """Start all, each when what it stands on is ready. Raises `ChildError`."""
        progress("Redis (reads everything on disk)")
        await self.redis.start()
        progress("the core")
        await self.core.start()
        progress("the adapters")
        await asyncio.gather(*(adapter.start() for adapter in self.adapters))
        for child in self.children:
            child.keep_alive()

    async def stop(self) -> None:
        """Stop all, each before what it stands on; children that were never started included."""
        seconds_max = self._settings.stop_ms_max / 1000
        await asyncio.gather(*(adapter.stop(seconds_max) for adapter in self.adapters))
        await self.core.stop(seconds_max)
        await self.redis.stop(seconds_max)

    def _python_child(self, part: Part) -> Child:
        ready_file = self.directory.runtime / f"{part.name}.ready"
        return Child(
            name=part.name,
            command=part.command,
            environment=partial(_environment, self._settings, part, ready_file),
            wait_ready=partial(wait_ready_file, ready_file),
            start_seconds_max=self._settings.start_ms_max / 1000,
        )


@asynccontextmanager
async def opened(settings: UpSettings) -> AsyncIterator[Everything]:
    """Everything on its locked data directory; whatever was started is stopped at the end."""
    directory = await DataDirectory.open(settings.data)
    try:
        everything = Everything(settings, directory)
        try:
            yield everything
        finally:
            await everything.stop()
    finally:
        directory.close()


def _environment(settings: UpSettings, part: Part, ready_file: Path, chosen: Listening) -> Mapping[str, str]:
    return {
        **part.environment,
        **part.ports(chosen),
        "QUINTET_READY_FILE": str(ready_file),
        "QUINTET_LOG_LEVEL": settings.log_level,
        "QUINTET_LOG_FORMAT": settings.log_format,
    }


def check_ports(host: str, parts: Iterable[Part]) -> None:
    """Raise ClickException naming every port that cannot be had and why, before anything is started."""
    obstacles = [
        f"  port {listener.port} ({part.name}{' metrics' if listener.name == METRICS else ''}): {why}"
        for part in parts
        for listener in part.listeners
        if listener.port and (why := _obstacle(host, listener.port))
    ]
    if obstacles:
        raise click.ClickException(
            "\n".join((f"Cannot listen on {host}:", *obstacles))
            + "\nChoose others: --port-offset 10000, --any-port, or a port's own option (see quintet up --help)."
        )


def _obstacle(host: str, port: int) -> str:
    """Why nobody can listen there now, or nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""
