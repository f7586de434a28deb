"""Redis, the core and the adapters as real processes of their own, each of which a test may kill and start again.

    with Stack() as stack:
        stack.core.kill9()
        stack.core.start()

Everything lives in a temporary folder, listens on loopback or unix sockets on free ports (kept over restarts, so that
clients find a part again), and is gone when the stack is closed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import grpc
from quintet.v1.queue_pb2 import QueueCounts
from quintet.v1.queue_service_pb2 import CountRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.01
_POLL_SECONDS_MAX = 0.25
# A test run that is killed leaves no process behind. A program of its own, because no Python may run between the fork
# and the exec of a process with threads.
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


class Part:
    """One process. `start` waits until it is ready; every way to end it waits until it has ended."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.environment: dict[str, str] = {}
        """Added to the environment at the next start."""
        self._process: subprocess.Popen[bytes] | None = None

    # For each kind of part.

    def command(self) -> list[str]:
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        return {}

    def is_ready(self) -> bool:
        raise NotImplementedError

    # The life.

    @property
    def pid(self) -> int:
        """The process id. The part must have been started."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start, by default until ready."""
        assert not self.is_running, f"{self.name} runs already"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("QUINTET_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_DIE_WITH_PARENT, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | self.variables() | self.environment,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def ensure_running(self) -> None:
        """Start unless it runs, until ready."""
        if not self.is_running:
            self.start()

    def wait_ready(self) -> None:
        """Return once the part serves. Raises RuntimeError with its log when it ends first or takes too long."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.is_ready():
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is not ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(_POLL_SECONDS)

    def kill9(self) -> None:
        """SIGKILL, also when frozen or not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """SIGTERM, and what the process makes of it: its exit code. Killed when it takes too long."""
        assert self._process is not None, f"{self.name} was never started"
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise

    def restart(self) -> None:
        """kill -9, and start again."""
        self.kill9()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: the process does nothing until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block it does nothing."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class RedisPart(Part):
    """redis-server: append-only file, fsynced on every change, on a unix socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__("redis", folder)
        self.path = folder / "redis.sock"
        self.url = f"unix://{self.path}"
        self.data = folder / "data"

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        return [
            *("redis-server", "--port", "0", "--unixsocket", str(self.path), "--dir", str(self.data)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
        ]

    def is_ready(self) -> bool:
        return self.ask("PING") == b"+PONG\r\n"

    def ask(self, *parts: str) -> bytes:
        """The first bytes of the raw reply to a command; empty when Redis cannot be reached."""
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.settimeout(5)
            connection.connect(str(self.path))
            connection.sendall((" ".join(parts) + "\r\n").encode())
            return connection.recv(65536)
        return b""


class PythonPart(Part):
    """A process of Quintet, which says in its ready file what it listens on."""

    def __init__(self, name: str, folder: Path, module: tuple[str, ...], ports: Mapping[str, str]) -> None:
        super().__init__(name, folder)
        self._module = module
        self._ports = dict(ports)
        self._ready_file = folder / f"{name}.ready"
        self.listening: dict[str, str] = {}
        """Name of a listener to its `host:port` or `unix:/path`; `ports` maps the same names to their variables."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", *self._module]

    def variables(self) -> dict[str, str]:
        kept = {
            variable: self.listening[name].rpartition(":")[2] if name in self.listening else "0"
            for name, variable in self._ports.items()
        }
        return {"QUINTET_READY_FILE": str(self._ready_file), "QUINTET_LOG_FORMAT": "json", **kept}

    def is_ready(self) -> bool:
        try:
            ready = json.loads(self._ready_file.read_bytes())
        except FileNotFoundError:
            return False
        if ready["pid"] != self.pid:
            return False
        self.listening = ready["listening"]
        return True

    def port(self, name: str | None = None) -> int:
        """The port of a listener; by default the one called like the part."""
        return int(self.listening[name or self.name].rpartition(":")[2])

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels, as the exposition writes them."""
        with urllib.request.urlopen(f"http://{self.listening['metrics']}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def readiness(self) -> tuple[int, str]:
        """Status and words of /readyz."""
        try:
            with urllib.request.urlopen(f"http://{self.listening['metrics']}/readyz", timeout=10) as response:
                return response.status, response.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()


class CorePart(PythonPart):
    """The core, on a unix socket and on a TCP port."""

    def __init__(self, folder: Path, redis: RedisPart, name: str = "core") -> None:
        super().__init__(
            name, folder, ("quintet_core",), {"core-grpc": "QUINTET_CORE_PORT", "metrics": "QUINTET_METRICS_PORT"}
        )
        self.redis = redis
        self.socket = folder / f"{name}.sock"
        self.target = f"unix:{self.socket}"

    def variables(self) -> dict[str, str]:
        return super().variables() | {
            "QUINTET_REDIS_URL": self.redis.url,
            "QUINTET_CORE_SOCKET": str(self.socket),
            "QUINTET_CORE_HOST": "127.0.0.1",
        }


_FURTHER_PORTS = {
    "etzel": {"etzel-lines": "QUINTET_LINES_PORT"},
    "zmq-kv": {"zmq-kv-pub": "QUINTET_PUB_PORT"},
}
"""Of adapters with several listeners, those that are not called like the adapter."""


class AdapterPart(PythonPart):
    """An adapter in front of a core."""

    def __init__(self, protocol: str, folder: Path, core: CorePart, name: str = "") -> None:
        super().__init__(
            name or protocol,
            folder,
            ("quintet_adapters", protocol),
            {protocol: "QUINTET_PORT", "metrics": "QUINTET_METRICS_PORT", **_FURTHER_PORTS.get(protocol, {})},
        )
        self.protocol = protocol
        self._core = core

    def variables(self) -> dict[str, str]:
        return super().variables() | {"QUINTET_CORE_TARGET": self._core.target, "QUINTET_HOST": "127.0.0.1"}

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.address_of(self.protocol)

    def address_of(self, listener: str) -> tuple[str, int]:
        """Where clients connect to one of several listeners."""
        return "127.0.0.1", self.port(listener)


class Stack:
    """One of each, started together; `environment` adds to every Python process' environment."""

    def __init__(self, **environment: str) -> None:
        # Short-named: the path of a unix socket may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="quintet-"))
        self.redis = RedisPart(self.folder)
        self.core = CorePart(self.folder, self.redis)
        self.text_queue = AdapterPart("text-queue", self.folder, self.core)
        self.job_centre = AdapterPart("job-centre", self.folder, self.core)
        self.extra: list[Part] = []
        """Further parts, started by the test, ended with the stack."""
        for part in (self.core, *self.adapters):
            part.environment.update(environment)

    @property
    def adapters(self) -> tuple[AdapterPart, AdapterPart]:
        return self.text_queue, self.job_centre

    @property
    def parts(self) -> tuple[Part, ...]:
        """From the bottom up."""
        return (self.redis, self.core, *self.adapters, *self.extra)

    def start(self) -> None:
        """Start everything that does not run."""
        self.redis.start()
        self.core.start()
        for adapter in self.adapters:
            adapter.start(wait=False)
        for adapter in self.adapters:
            adapter.wait_ready()

    def second_core(self) -> CorePart:
        """Another core on the same Redis, not started."""
        core = CorePart(self.folder, self.redis, name=f"core-{len(self.extra) + 2}")
        self.extra.append(core)
        return core

    def further_adapter(self, protocol: str, core: CorePart | None = None, **environment: str) -> AdapterPart:
        """Another adapter on a core of this stack, not started."""
        adapter = AdapterPart(protocol, self.folder, core or self.core, name=f"{protocol}-{len(self.extra) + 2}")
        adapter.environment.update(environment)
        self.extra.append(adapter)
        return adapter

    def kill9(self) -> None:
        """Everything at once."""
        for part in self.parts:
            part.kill9()

    def close(self) -> None:
        """End every process and remove the folder."""
        for part in reversed(self.parts):
            part.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def counts(self, queue: str) -> QueueCounts:
        """How many jobs of a queue are in which state, as the core says."""
        with grpc.insecure_channel(self.core.target) as channel:
            return QueueServiceStub(channel).Count(CountRequest(queue=queue)).counts

    def logs(self) -> str:
        """What every part wrote, for the report of a failed test."""
        return "\n".join(f"--- {part.name}\n{part.log.read_text()[-4000:]}" for part in self.parts if part.log.exists())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(holds: Callable[[], bool], what: str, seconds_max: float = 30.0) -> None:
    """Wait for something in another process that nothing announces: the longer it takes, the less often asked for."""
    started = time.monotonic()
    while not holds():
        waited = time.monotonic() - started
        assert waited < seconds_max, f"waited {seconds_max:g} s in vain: {what}"
        time.sleep(min(max(_POLL_SECONDS, waited / 10), _POLL_SECONDS_MAX))


def stack_for_tests(**environment: str) -> Iterator[Stack]:
    """For fixtures: `yield from stack_for_tests()`."""
    with Stack(**environment) as stack:
        yield stack
