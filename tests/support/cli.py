"""The command line as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SECONDS_MAX = 60


class Cli:
    """Runs `quintet` against one core. `group` is a command that has commands: `table`."""

    def __init__(self, target: str, group: str = "") -> None:
        self.target = target
        self._head = [sys.executable, "-m", "quintet_cli", *([group] if group else [])]

    def command(self, *arguments: str | bytes) -> list[str | bytes]:
        """The command line of one command."""
        name, *rest = arguments
        return [*self._head, name, "--target", self.target, *rest]

    def run(self, *arguments: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        return subprocess.run(self.command(*arguments), input=stdin, capture_output=True, timeout=SECONDS_MAX)

    def output(self, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
        """What it writes. Fails when it fails."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def text(self, *arguments: str | bytes, stdin: bytes = b"") -> str:
        """The same as text."""
        return self.output(*arguments, stdin=stdin).decode()

    def records(self, *arguments: str | bytes, stdin: bytes = b"") -> list[dict[str, Any]]:
        """What it says with --json, line by line."""
        return [json.loads(line) for line in self.text(*arguments, "--json", stdin=stdin).splitlines()]


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """How a process ends that was told to. One that does not is killed, and the test fails."""
    try:
        return process.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
