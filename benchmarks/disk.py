"""How long the disk takes to keep a small append: the floor under every durable answer."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import percentile

_RECORD = b"x" * 200


@dataclass(frozen=True, slots=True)
class DiskLatency:
    """Latency in microseconds of `write` and `fdatasync` of 200 bytes at the end of a file in `directory`."""

    directory: str
    file_system: str
    samples: int
    p50_us: float
    p99_us: float


def fdatasync_latency(directory: Path, seconds: float = 0.5) -> DiskLatency:
    """Append and fdatasync one record after another in `directory` for `seconds`, as Redis does with its AOF."""
    samples = _sample(directory / "fdatasync.probe", seconds)
    return DiskLatency(
        str(directory),
        file_system(directory),
        len(samples),
        percentile(samples, 50) * 1e6,
        percentile(samples, 99) * 1e6,
    )


def _sample(path: Path, seconds: float) -> list[float]:
    samples: list[float] = []
    now = time.perf_counter
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        end = now() + seconds
        while (started := now()) < end:
            os.write(descriptor, _RECORD)
            os.fdatasync(descriptor)
            samples.append(now() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return samples


def file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`, in the words of stat(1)."""
    answer = subprocess.run(["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def refuse_memory_file_system(directory: Path) -> None:
    """Raise ValueError when `directory` lies in memory: nothing measured there would be durable."""
    if file_system(directory) in {"tmpfs", "ramfs"}:
        raise ValueError(f"{directory} is on a file system in memory; choose a directory on a disk (--directory)")
