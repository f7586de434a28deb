"""A child process is started, waited for, kept alive, stopped, and never outlives `quintet up`: on real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from quintet_cli.up.child import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN, Backoff, Child, ChildError, wait_ready_file

READY = """
import os, signal, sys
from pathlib import Path
from quintet_kit.lifecycle import write_ready_file
write_ready_file(Path(sys.argv[1]), {"port": os.environ.get("CHOSEN", "first")})
"""
OBEDIENT = READY + "signal.pause()\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "while True: signal.pause()\n"


@asynccontextmanager
async def child_running(program: str, folder: Path, **changes: float) -> AsyncIterator[Child]:
    """A child of `program`, which is not started yet; ended at the end."""
    ready_file = folder / "ready"

    def environment(listening: Mapping[str, str]) -> Mapping[str, str]:
        return {"CHOSEN": listening["port"] + "+again"} if listening else {}

    child = Child(
        name="example",
        command=(sys.executable, "-c", program, str(ready_file)),
        environment=environment,
        wait_ready=partial(wait_ready_file, ready_file),
        start_seconds_max=changes.get("start_seconds_max", 30.0),
    )
    try:
        yield child
    finally:
        await child.stop(0)


async def test_starting_returns_when_the_child_is_ready(tmp_path: Path) -> None:
    async with child_running(OBEDIENT, tmp_path) as child:
        await child.start()
        assert child.listening == {"port": "first"}


async def test_a_child_that_ends_before_it_is_ready_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    async with child_running("import sys; sys.exit(78)", tmp_path) as child:
        with pytest.raises(ChildError, match="example ended with exit code 78") as error:
            await child.start()
        assert error.value.exit_code == 78


async def test_a_child_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    async with child_running("import signal; signal.pause()", tmp_path, start_seconds_max=0.01) as child:
        with pytest.raises(ChildError, match="was not ready within"):
            await child.start()


async def test_a_child_that_dies_starts_again_and_is_told_what_it_listened_on(tmp_path: Path) -> None:
    async with child_running(OBEDIENT, tmp_path) as child:
        await child.start()
        first = child.pid
        child.keep_alive()
        os.kill(first, signal.SIGKILL)
        while child.listening == {"port": "first"}:
            await asyncio.sleep(0.01)
        assert child.listening == {"port": "first+again"}
        assert child.pid != first


async def test_stopping_ends_the_child_and_its_keeper(tmp_path: Path) -> None:
    async with child_running(OBEDIENT, tmp_path) as child:
        await child.start()
        child.keep_alive()
        await child.stop(30)
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)
        await child.stop(30)


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async with child_running(STUBBORN, tmp_path) as child:
        await child.start()
        await child.stop(0.01)
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)


async def test_a_ready_file_of_an_earlier_process_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text('{"pid": 1, "listening": {"port": "stale"}}')
    async with child_running(OBEDIENT, tmp_path) as child:
        await child.start()
        assert child.listening == {"port": "first"}


PARENT = """
import asyncio, sys
WAIT = "import signal, sys; sys.stdout.write('up '); sys.stdout.flush(); signal.pause()"
from quintet_cli.up.child import Child

async def ready(pid):
    return {}

async def main():
    child = Child(
        name="child",
        command=(sys.executable, "-c", WAIT),
        environment=lambda _: {},
        wait_ready=ready,
    )
    await child.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_child_does_not_outlive_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read(3) == b"up "
        parent.kill()
        # The child holds the other end of the pipe: its end is the end of the stream.
        assert parent.stdout.read() == b""


async def test_the_backoff_doubles_to_its_bound() -> None:
    backoff = Backoff()
    delays = [backoff.next_seconds() for _ in range(10)]
    assert delays[:3] == [BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MIN * 2, BACKOFF_SECONDS_MIN * 4]
    assert delays[-1] == BACKOFF_SECONDS_MAX
