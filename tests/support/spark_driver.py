"""A job of the pipeline as a process of its own: the driver, its JVM and its Python workers, killed and frozen as one
or each alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.stack import Part, until

_POLL_SECONDS = 0.01


class SparkDriver(Part):
    """`python -m quintet_spark <job> ...`. Ready when its process is there; what it has done shows in the lake."""

    def __init__(self, job: str, folder: Path, *arguments: str, name: str = "") -> None:
        super().__init__(name or job, folder)
        self._sessions: list[int] = []
        self._command = [sys.executable, "-m", "quintet_spark", job, *arguments]

    def command(self) -> list[str]:
        return self._command

    def is_ready(self) -> bool:
        return True

    def start(self, *, wait: bool = True) -> None:
        super().start(wait=wait)
        self._sessions.append(self.pid)

    def processes(self) -> dict[int, str]:
        """Process ids and commands of the driver that was started last and of all that it started, the driver first."""
        return self._processes_of([self.pid])

    def leftovers(self) -> dict[int, str]:
        """Of drivers before the last one: what is there still, though each was killed in part or as a whole."""
        return self._processes_of([session for session in self._sessions if session != self.pid])

    def _processes_of(self, sessions: Sequence[int]) -> dict[int, str]:
        """They have a session of their own, whatever became of their parents."""
        found = {}
        for path in Path("/proc").iterdir():
            if path.name.isdecimal():
                with suppress(OSError):
                    state, _parent, _group, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) in sessions and state != "Z":
                        found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return dict(sorted(found.items(), key=lambda each: each[0] != self.pid))

    def kill9(self) -> None:
        """Everything at once, also what is left of a driver before this one; returns when all of it has gone."""
        super().kill9()
        while left := self._processes_of(self._sessions):
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def kill9_jvm(self) -> bool:
        """The JVM alone; whether there was one."""
        return self._kill9_those("java ")

    def kill9_workers(self) -> bool:
        """The Python workers that the JVM started, and no more; whether there were any."""
        return self._kill9_those("-m pyspark.")

    def kill9_python(self) -> None:
        """The driver's own process alone: what it started is left to find that out."""
        super().kill9()

    def _kill9_those(self, named: str) -> bool:
        found = [pid for pid, command in self.processes().items() if named in command and pid != self.pid]
        for pid in found:
            _signal(pid, signal.SIGKILL)
        return bool(found)

    def freeze(self) -> None:
        for pid in self.processes():
            _signal(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.processes():
            _signal(pid, signal.SIGCONT)

    def wait_status(self, seconds_max: float) -> int:
        """Until it ends of its own accord, and nothing is left of it; its exit code."""
        assert self._process is not None, f"{self.name} was never started"
        status = self._process.wait(seconds_max)
        until(lambda: not self.processes(), f"the processes of {self.name} end", seconds_max)
        return status


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
