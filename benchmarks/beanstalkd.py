"""beanstalkd with its binlog on a given directory, for comparison."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import Child

START_SECONDS = 10.0

# How often it keeps its binlog: at every write, every 50 ms (its default), never.
FSYNC_ARGUMENTS = {"beanstalkd -f 0": ("-f", "0"), "beanstalkd (default, 50 ms)": (), "beanstalkd -F": ("-F",)}


@contextmanager
def beanstalkd(variant: str, directory: Path) -> Iterator[tuple[tuple[str, int], Child]]:
    """Run beanstalkd as `variant` (a key of FSYNC_ARGUMENTS) with its binlog in a new folder of `directory`.

    Yields its address and process; both the process and the folder are gone afterwards.
    """
    binlog = directory / f"binlog-{list(FSYNC_ARGUMENTS).index(variant)}"
    binlog.mkdir()
    address = ("127.0.0.1", free_port())
    arguments = ["beanstalkd", "-l", address[0], "-p", str(address[1]), "-b", str(binlog), *FSYNC_ARGUMENTS[variant]]
    child = Child(arguments, directory / "beanstalkd.log")
    try:
        wait_until_listening(address, child)
        yield address, child
    finally:
        child.stop()
        shutil.rmtree(binlog)


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
