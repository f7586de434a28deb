"""A data directory belongs to one `quintet up` at a time."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from quintet_cli.up.data_directory import LOCK_FILE, DataDirectory


async def test_it_is_made_when_missing_with_a_short_runtime_directory_beside_it(tmp_path: Path) -> None:
    directory = await DataDirectory.open(tmp_path / "deep" / "data")
    assert directory.path.is_dir()
    assert len(str(directory.runtime / "text-queue.ready")) < 108
    directory.close()
    assert not directory.runtime.exists()


async def test_a_second_user_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    first = await DataDirectory.open(tmp_path)
    with pytest.raises(click.ClickException, match=rf"in use by `quintet up` \(process {os.getpid()}\)"):
        await DataDirectory.open(tmp_path)
    first.close()
    (await DataDirectory.open(tmp_path)).close()


HOLDER = """
import fcntl, os, subprocess, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
# A grandchild inherits the lock, as Redis does, and outlives its parent until its standard input ends.
subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=(lock,))
os.write(lock, b'{"pid": %d, "runtime": "/nonexistent"}' % os.getpid())
"""


async def test_the_redis_of_a_killed_run_is_waited_for(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    subprocess.run([sys.executable, "-c", HOLDER, str(tmp_path / LOCK_FILE)], stdin=read_end, check=True)
    os.close(read_end)
    opening = asyncio.create_task(DataDirectory.open(tmp_path))
    await asyncio.sleep(0)
    assert not opening.done()
    os.close(write_end)
    (await opening).close()


async def test_what_a_killed_run_left_behind_is_removed(tmp_path: Path) -> None:
    left = await DataDirectory.open(tmp_path)
    os.close(left.lock)  # as the kernel does for a killed process
    directory = await DataDirectory.open(tmp_path)
    assert not left.runtime.exists()
    directory.close()


async def test_a_lock_file_that_is_not_ours_to_read_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"\xff{")
    (await DataDirectory.open(tmp_path)).close()


async def test_a_directory_that_cannot_be_used_is_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(click.ClickException, match="cannot be used: Not a directory"):
        await DataDirectory.open(tmp_path / "file" / "data")
