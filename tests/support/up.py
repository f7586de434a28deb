"""A running `quintet up` on free ports: what end-to-end tests start, kill and ask."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

COMMAND = (sys.executable, "-m", "quintet_cli", "up", "--any-port")


@dataclass(slots=True)
class Up:
    """A `quintet up` that is ready."""

    process: subprocess.Popen[str]
    parts: Mapping[str, Any]

    def address(self, part: str, listener: str | None = None) -> tuple[str, int]:
        """Host and port of a part's listener (by default the one of the part's own name)."""
        host, _, port = self.parts[part]["listening"][listener or part].rpartition(":")
        return host, int(port)

    def ask(self, part: str, request: bytes) -> bytes:
        """One connection: send, read to the end of the stream."""
        return ask(self.address(part), request)

    def pid(self, part: str) -> int:
        """The part's process as it was when everything became ready."""
        return int(self.parts[part]["pid"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait()


@contextmanager
def up(data: Path, *options: str, log: IO[str] | int | None = None, **environment: str) -> Iterator[Up]:
    """Start `quintet up` on a data directory and wait until it is ready; killed at the end when it still runs."""
    with subprocess.Popen(
        (*COMMAND, "--json", "--data", str(data), *options),
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"quintet up ended with exit code {process.wait()}"
            yield Up(process, json.loads(line)["parts"])
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def ask(address: tuple[str, int], request: bytes) -> bytes:
    """Connect, send, read to the end of the stream."""
    with socket.create_connection(address) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def ask_until(address: tuple[str, int], request: bytes, answer_starts_with: bytes) -> bytes:
    """Ask again and again, also while nobody listens, until the answer begins as wanted."""
    while True:
        try:
            answer = ask(address, request)
        except OSError:
            answer = b""
        if answer.startswith(answer_starts_with):
            return answer
        time.sleep(0.02)


@contextmanager
def ends_of(*pids: int) -> Iterator[None]:
    """At the end of the block, wait until each of these processes (they need not be ours) has ended."""
    watched = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        for descriptor in watched:
            select.select([descriptor], [], [])
    finally:
        for descriptor in watched:
            os.close(descriptor)
