"""The data directory: one `quintet up` at a time, however the last one ended.

The lock is an flock whose descriptor Redis inherits. It is therefore held until Redis itself is gone, also when
`quintet up` was killed and Redis is still ending: two servers never write one append-only file.
"""

import asyncio
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

import click
import msgspec

LOCK_FILE = "quintet.lock"
RUNTIME_PREFIX = "quintet-"
LEFT_BEHIND_SECONDS_MAX = 60.0


class _Holder(msgspec.Struct):
    """Who holds the lock, and where its sockets are; written into the lock file."""

    pid: int
    runtime: str


class DataDirectory:
    """A locked data directory and the short-pathed runtime directory (sockets, ready files) that goes with it."""

    def __init__(self, path: Path, lock: int, runtime: Path) -> None:
        self.path = path
        self.lock = lock
        """Descriptor of the lock, for Redis to inherit."""
        self.runtime = runtime

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Make, lock and clean up. Raises ClickException when another `quintet up` uses the directory."""
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise click.ClickException(f"The data directory {path} cannot be used: {error.strerror}") from None
        try:
            await _take(lock, path)
        except BaseException:
            os.close(lock)
            raise
        _remove_left_behind(_holder(lock))
        # Socket paths are limited to 107 bytes, so they cannot live in a data directory of any depth.
        runtime = Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX))
        _write(lock, _Holder(pid=os.getpid(), runtime=str(runtime)))
        return cls(path, lock, runtime)

    def remove_runtime(self) -> None:
        """Remove the runtime directory."""
        shutil.rmtree(self.runtime, ignore_errors=True)

    def close(self) -> None:
        """Remove the runtime directory and let go of the lock."""
        self.remove_runtime()
        os.close(self.lock)


async def _take(lock: int, path: Path) -> None:
    """Lock; a Redis whose `quintet up` was killed is given time to end."""
    deadline = asyncio.get_running_loop().time() + LEFT_BEHIND_SECONDS_MAX
    while not _try(lock):
        holder = _holder(lock)
        if holder is not None and _is_alive(holder.pid):
            raise click.ClickException(f"The data directory {path} is in use by `quintet up` (process {holder.pid}).")
        if asyncio.get_running_loop().time() > deadline:
            raise click.ClickException(f"The data directory {path} is still in use by the Redis of an earlier run.")
        await asyncio.sleep(0.05)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: int) -> _Holder | None:
    try:
        return msgspec.json.decode(os.pread(lock, 4096, 0), type=_Holder)
    except msgspec.DecodeError:
        return None


def _write(lock: int, holder: _Holder) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, msgspec.json.encode(holder), 0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove_left_behind(holder: _Holder | None) -> None:
    """A killed `quintet up` could not remove its runtime directory."""
    if holder is None:
        return
    runtime = Path(holder.runtime)
    if runtime.parent == Path(tempfile.gettempdir()) and runtime.name.startswith(RUNTIME_PREFIX):
        shutil.rmtree(runtime, ignore_errors=True)
