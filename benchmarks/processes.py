"""CPU time of processes, and child processes that end with the run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_SECONDS = 10.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """User and system time of the process `pid` with all its threads so far, in seconds (/proc/PID/stat); also of the
    children that it has waited for, if so asked."""
    # The command name, in parentheses, may itself hold spaces: count from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / _TICKS_PER_SECOND


def busy_cpu_seconds() -> float:
    """Seconds that all processors together were not idle since the machine started (/proc/stat)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_SECOND


class CpuMeter:
    """CPU time that named processes use from `start` on; `load` is this one and the children that it has waited for.

    `others_seconds`, after `stop`: what the rest of the machine used meanwhile. Figures of a run beside busy neighbours
    are worth little.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._started: dict[str, float] = {}
        self._busy_seconds = 0.0
        self.others_seconds = 0.0

    def start(self) -> None:
        self._busy_seconds = busy_cpu_seconds()
        self._started = self._read()

    def stop(self) -> dict[str, float]:
        """Seconds of CPU per name since `start`."""
        used = {name: seconds - self._started[name] for name, seconds in self._read().items()}
        self.others_seconds = max(0.0, busy_cpu_seconds() - self._busy_seconds - sum(used.values()))
        return used

    def _read(self) -> dict[str, float]:
        ours = os.times()
        load = ours.user + ours.system + ours.children_user + ours.children_system
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()} | {"load": load}


class Child:
    """A child process in a process group of its own, ended by SIGTERM and, after `grace_seconds`, by SIGKILL."""

    def __init__(self, arguments: Sequence[str], log: Path, *, grace_seconds: float = 10.0) -> None:
        self._grace_seconds = grace_seconds
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def fail_when_gone(self) -> None:
        """Raise RuntimeError with the end of its log when the process has ended."""
        if self.process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}:\n{tail}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(self._grace_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def free_port() -> int:
    """A TCP port of loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_listening(address: tuple[str, int], child: Child) -> None:
    """Return when something listens at `address`; raise when `child` ends first or START_SECONDS pass."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(address, timeout=1).close()
            return
        except OSError:
            child.fail_when_gone()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
