"""Quintet on a directory of its own: Redis, core and adapters, as `quintet up` runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resp import RespConnection

STOP_SECONDS = 60.0
REWRITE_SECONDS = 60.0
LOG_CHARACTERS_SHOWN = 3000


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs: process ids and addresses by part (redis, core, text-queue, job-centre)."""

    pids: Mapping[str, int]
    listening: Mapping[str, Mapping[str, str]]

    def address(self, part: str, listener: str = "") -> tuple[str, int]:
        """Where the adapter `part` listens, by default with the listener of its own name."""
        host, _, port = self.listening[part][listener or part].rpartition(":")
        return host, int(port)

    @property
    def redis_socket(self) -> Path:
        return Path(self.listening["redis"]["redis"].removeprefix("unix:"))

    @property
    def core_target(self) -> str:
        """The core's unix socket when it has one, as gRPC names it."""
        addresses = [address for name, address in self.listening["core"].items() if name != "metrics"]
        return next((address for address in addresses if address.startswith("unix:")), addresses[0])

    def processes(self, *parts: str) -> dict[str, int]:
        """Process ids of `parts`, adapters under the name `adapter`."""
        return {part if part in {"redis", "core"} else "adapter": self.pids[part] for part in parts}

    def wait_until_quiet(self) -> None:
        """Return when Redis is not rewriting its AOF, so that no run pays for the one before it."""
        deadline = time.monotonic() + REWRITE_SECONDS
        with RespConnection(self.redis_socket) as redis:
            while redis.info("persistence")["aof_rewrite_in_progress"] == "1" and time.monotonic() < deadline:
                time.sleep(0.1)


@contextmanager
def quintet(directory: Path) -> Iterator[Stack]:
    """Run `quintet up` on a new folder of `directory`; afterwards its processes and the folder are gone."""
    data = directory / "quintet"
    log = directory / "quintet.log"
    arguments = [sys.executable, "-m", "quintet_cli", "up", "--any-port", "--json", "--data", str(data)]
    with log.open("ab") as errors:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    try:
        yield _started(process, log)
    except Exception as error:
        error.add_note(f"quintet up said:\n{_tail(log)}")
        raise
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        shutil.rmtree(data, ignore_errors=True)


def _started(process: subprocess.Popen[bytes], log: Path) -> Stack:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("quintet up did not start")
    parts = json.loads(line)["parts"]
    return Stack(
        {name: part["pid"] for name, part in parts.items()}, {name: part["listening"] for name, part in parts.items()}
    )


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]


@contextmanager
def redis_server(directory: Path, port: int = 0) -> Iterator[tuple[Path, int]]:
    """Run a bare redis-server with AOF always, as `quintet up` runs it; yields its unix socket and process id.

    With a `port` it also listens there.
    """
    data = directory / "redis"
    data.mkdir()
    path = data / "redis.sock"
    options = {"port": port, "unixsocket": path, "dir": data, "appendonly": "yes", "appendfsync": "always", "save": ""}
    arguments = ["redis-server"]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    with (directory / "redis.log").open("ab") as log:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_until_loaded(path, process)
        yield path, process.pid
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        shutil.rmtree(data)


def _wait_until_loaded(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            with RespConnection(path) as redis:
                redis.command("PING")
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
