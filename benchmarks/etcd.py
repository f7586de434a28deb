"""etcd on a given directory, driven by its own measurement, for comparison."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measurement import Samples
from benchmarks.processes import Child, CpuMeter, free_port, wait_until_listening
from benchmarks.tongues import UnexpectedAnswerError

CLIENTS = 1000
"""Of --load=xl, which puts values of 1 KiB under keys of their own, for a minute."""
_PROGRAMS = ("etcd", "etcdctl")
_CHECK_SECONDS_MAX = 120.0


def missing() -> list[str]:
    """The programs that are not installed."""
    return [program for program in _PROGRAMS if not shutil.which(program)]


@contextmanager
def etcd(directory: Path) -> Iterator[tuple[tuple[str, int], Child]]:
    """Run one etcd with its settings left as they are, on a new folder of `directory`.

    Yields its address and process; both the process and the folder are gone afterwards.
    """
    data = directory / "etcd"
    address = ("127.0.0.1", free_port())
    clients, peers = f"http://127.0.0.1:{address[1]}", f"http://127.0.0.1:{free_port()}"
    arguments = ["etcd", "--data-dir", str(data), "--listen-client-urls", clients, "--advertise-client-urls", clients]
    arguments += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
    child = Child([*arguments, "--initial-cluster", f"default={peers}"], directory / "etcd.log")
    try:
        wait_until_listening(address, child)
        yield address, child
    finally:
        child.stop()
        shutil.rmtree(data, ignore_errors=True)
        # What a minute of writes left in memory would burden whoever comes next.
        os.sync()


class EtcdCheck:
    """`etcdctl check perf --load=xl`. It chooses its own time, and tells writes a second, but no latencies."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._endpoint = f"http://{address[0]}:{address[1]}"

    def run(self, _warm_up_seconds: float, _seconds: float, meter: CpuMeter) -> Samples:
        """Run the check to its end."""
        command = ["etcdctl", "--endpoints", self._endpoint, "check", "perf", "--load=xl"]
        samples = Samples()
        meter.start()
        started = time.perf_counter()
        # Its exit code says only whether it found the machine fast enough.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_SECONDS_MAX, check=False)
        samples.seconds = time.perf_counter() - started
        samples.cpu_seconds = meter.stop()
        samples.operations = round(writes_per_s(done.stdout + done.stderr) * samples.seconds)
        return samples


def writes_per_s(said: str) -> int:
    """The throughput that `etcdctl check perf` tells, whatever it thinks of it."""
    match = re.search(r"Throughput[^\d\n]*(\d+) writes/s", said)
    if match is None:
        raise UnexpectedAnswerError(said[-1000:])
    return int(match[1])
