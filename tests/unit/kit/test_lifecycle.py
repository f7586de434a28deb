"""Signals, the order of draining, and the ready file, on a real process where it matters."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quintet_kit.lifecycle import drain, write_ready_file

PROCESS = """
import sys
from quintet_kit import logs
from quintet_kit.lifecycle import StopSignal, run

logs.configure("example")

async def main(stop: StopSignal) -> int:
    print("started", flush=True)
    await stop.wait()
    print("draining", flush=True)
    if "stubborn" in sys.argv:
        import asyncio
        await asyncio.Event().wait()
    return 3

sys.exit(run(main))
"""


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PROCESS, *arguments], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert read_line(process) == "started"
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_first_signal_drains_and_main_gives_the_exit_code() -> None:
    with started() as process:
        process.send_signal(signal.SIGTERM)
        assert read_line(process) == "draining"
        assert process.wait() == 3


def test_the_second_signal_ends_at_once() -> None:
    with started("stubborn") as process:
        process.send_signal(signal.SIGINT)
        assert read_line(process) == "draining"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 128 + signal.SIGINT


class Steps:
    """Records the order in which the drain calls its steps."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def step(self, name: str) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            self.taken.append(name)

        return take

    def mark(self, name: str) -> Callable[[], None]:
        return lambda: self.taken.append(name)


async def test_draining_takes_its_steps_in_order() -> None:
    steps = Steps()
    finished = await drain(
        set_not_ready=steps.mark("not ready"),
        delay_ms=0,
        stop_accepting=steps.step("stop accepting"),
        finish=steps.step("finish"),
        grace_ms=60_000,
        close=steps.step("close"),
    )
    assert finished
    assert steps.taken == ["not ready", "stop accepting", "finish", "close"]


async def test_draining_closes_when_the_grace_has_passed() -> None:
    steps = Steps()
    finished = await drain(
        set_not_ready=steps.mark("not ready"),
        delay_ms=0,
        stop_accepting=steps.step("stop accepting"),
        finish=asyncio.Event().wait,
        grace_ms=1,
        close=steps.step("close"),
    )
    assert not finished
    assert steps.taken[-1] == "close"


def test_the_ready_file_says_what_listens_where(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    write_ready_file(path, {"core-grpc": "127.0.0.1:50051"})
    assert json.loads(path.read_text())["listening"] == {"core-grpc": "127.0.0.1:50051"}
    assert [file.name for file in tmp_path.iterdir()] == ["ready.json"]
