"""beanstalkd with its binlog on a given directory, for comparison."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import Child, free_port, wait_until_listening

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
