"""One supervised child process: started, waited for, started again when it dies, stopped."""

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from quintet_kit.environment import child_environment
from quintet_kit.logs import get_logger

BACKOFF_SECONDS_MIN = 0.1
BACKOFF_SECONDS_MAX = 5.0
STEADY_SECONDS = 30.0
"""A child that lived this long starts again without waiting for its earlier deaths."""

_READY_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: nothing may be imported after a fork

Listening = Mapping[str, str]


class ChildError(Exception):
    """A child ended, or was not ready in time, while it was being started."""

    def __init__(self, child: "Child", what: str, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(f"{child.name} {what}{f' (see {child.log})' if child.log else ''}")


@dataclass(slots=True, kw_only=True)
class Child:
    """A child process and the task that keeps it alive.

    `environment` is asked at every start with what the child listened on before (empty at first). `wait_ready`
    gets the child's process id and returns what it listens on.
    """

    name: str
    command: Sequence[str]
    environment: Callable[[Listening], Mapping[str, str]]
    wait_ready: Callable[[int], Awaitable[Listening]]
    start_seconds_max: float | None = None
    death_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends the child when `quintet up` dies without stopping it."""
    inherited: Sequence[int] = ()
    """File descriptors it keeps open."""
    log: Path | None = None
    """Where it tells why it ended, when that is not stderr."""
    listening: Listening = field(default_factory=dict)
    _process: Process | None = None
    _keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start and wait until it is ready. Raises `ChildError` when it ends first or takes too long."""
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            env=child_environment(self.environment(self.listening)),
            pass_fds=self.inherited,
            start_new_session=True,  # Ctrl+C reaches `quintet up` alone, which stops its children in order
            preexec_fn=_dies_with_parent(self.death_signal),
        )
        ended = asyncio.ensure_future(self._process.wait())
        ready = asyncio.ensure_future(self.wait_ready(self.pid))
        try:
            await asyncio.wait({ended, ready}, timeout=self.start_seconds_max, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self.listening = ready.result()
            elif ended.done():
                raise ChildError(self, f"ended with exit code {ended.result()} before it was ready", ended.result())
            else:
                raise ChildError(self, f"was not ready within {self.start_seconds_max:g} seconds")
        finally:
            ended.cancel()
            ready.cancel()

    def keep_alive(self) -> None:
        """From now on start the child again whenever it dies."""
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def stop(self, seconds_max: float) -> None:
        """SIGTERM, and SIGKILL when it has not ended after `seconds_max`. Idempotent; also for one never started."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(seconds_max):
                await process.wait()
        except TimeoutError:
            get_logger().warning("child_killed", name=self.name, stop_seconds_max=seconds_max)
            await self._kill()

    async def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            assert self._process is not None
            exit_code = await self._process.wait()
            delay = backoff.next_seconds()
            get_logger().warning("child_ended", name=self.name, exit_code=exit_code, restart_in_seconds=delay)
            await asyncio.sleep(delay)
            await self._start_again(backoff)

    async def _start_again(self, backoff: "Backoff") -> None:
        try:
            await self.start()
        except (ChildError, OSError) as error:
            get_logger().error("child_restart_failed", name=self.name, reason=str(error))
            await self._kill()
        else:
            backoff.started()
            get_logger().warning("child_restarted", name=self.name, pid=self.pid)


class Backoff:
    """How long to wait before the next start: doubling, bounded, forgiven after a steady life."""

    def __init__(self) -> None:
        self._seconds = BACKOFF_SECONDS_MIN
        self._started_at = asyncio.get_running_loop().time()

    def started(self) -> None:
        """The child runs (again)."""
        self._started_at = asyncio.get_running_loop().time()

    def next_seconds(self) -> float:
        """The child died: what to wait now."""
        if asyncio.get_running_loop().time() - self._started_at >= STEADY_SECONDS:
            self._seconds = BACKOFF_SECONDS_MIN
        seconds, self._seconds = self._seconds, min(self._seconds * 2, BACKOFF_SECONDS_MAX)
        return seconds


async def wait_ready_file(path: Path, pid: int) -> Listening:
    """Wait until process `pid` says in its ready file what it listens on; files of earlier processes do not count."""
    while (ready := _read(path)) is None or ready.pid != pid:
        await asyncio.sleep(_READY_POLL_SECONDS)
    return ready.listening


class _ReadyFile(msgspec.Struct):
    pid: int
    listening: dict[str, str]


def _read(path: Path) -> _ReadyFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ReadyFile)
    except FileNotFoundError:
        return None


def _dies_with_parent(death_signal: int) -> Callable[[], None]:
    """Runs in the child between fork and exec: the kernel shall end it when this process ends, however that happens."""
    parent = os.getpid()

    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return prepare
