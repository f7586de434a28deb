"""The life of a long-running process: signals, draining in order, and telling its parent that it is ready.

async def main(stop: StopSignal) -> int:
    ...start...
    announce(listening, settings.ready_file)
    await stop.wait()
    await drain(...)
    return 0

sys.exit(run(main))
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
import uvloop

from quintet_kit.logs import get_logger

Step = Callable[[], Awaitable[object]]


class StopSignal:
    """Set by the first SIGTERM or SIGINT (or by `set`): drain now. The second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.at_once: Callable[[int], object] = end_process
        """What the second signal does, given its number. Nothing is lost by ending: all state is in Redis."""

    def wait(self) -> Awaitable[object]:
        """Return when the process shall stop."""
        return self._event.wait()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Ask the process to stop, as the first signal does."""
        self._event.set()

    def on_signal(self, number: int) -> None:
        """The signal handler: the first drains, every later one ends at once."""
        if self._event.is_set():
            self.at_once(number)
            return
        get_logger().info("stop_requested", signal=signal.Signals(number).name)
        self._event.set()


def run(main: Callable[[StopSignal], Awaitable[int]]) -> int:
    """Run `main` under uvloop with SIGTERM and SIGINT turned into its `StopSignal`; returns main's exit code."""

    async def with_signals() -> int:
        stop = StopSignal()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.on_signal, number)
        return await main(stop)

    return uvloop.run(with_signals())


async def drain(
    *,
    set_not_ready: Callable[[], object],
    delay_ms: int,
    stop_accepting: Step,
    finish: Step,
    grace_ms: int,
    close: Step,
) -> bool:
    """Stop serving in the one right order; returns whether everything in flight finished within the grace.

    Not ready -> `delay_ms` for load balancers to notice -> stop accepting -> finish what is in flight, at most
    `grace_ms` -> close. `close` runs whatever happened before it.
    """
    log = get_logger()
    set_not_ready()
    log.info("drain_started", delay_ms=delay_ms, grace_ms=grace_ms)
    finished = True
    try:
        await asyncio.sleep(delay_ms / 1000)
        await stop_accepting()
        async with asyncio.timeout(grace_ms / 1000):
            await finish()
    except TimeoutError:
        finished = False
        log.warning("drain_grace_passed", grace_ms=grace_ms)
    finally:
        await close()
    log.info("drained", finished=finished)
    return finished


def announce(listening: Mapping[str, str], ready_file: Path | None) -> None:
    """Say what listens where: one `listening` log line per address, then the ready file when one is asked for.

    Call it once, when the process is ready to serve. `listening` maps a name (`core-grpc`, `metrics`, ...) to
    `host:port` or `unix:/path`.
    """
    log = get_logger()
    for name, address in listening.items():
        log.info("listening", name=name, address=address)
    if ready_file is not None:
        write_ready_file(ready_file, listening)


def write_ready_file(path: Path, listening: Mapping[str, str]) -> None:
    """Write `{"pid": ..., "listening": {name: address}}` atomically: a reader sees all of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode({"pid": os.getpid(), "listening": dict(listening)}))
    draft.replace(path)


def end_process(number: int) -> NoReturn:
    """End now with 128 + signal number, as a shell shows a process that a signal ended."""
    sys.stderr.flush()
    os._exit(128 + number)
