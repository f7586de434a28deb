"""`make pipeline` in small: everything comes up, a report is written, and nothing is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.spark_options import compiling

COMMAND = (sys.executable, "-m", "quintet_spark", "pipeline", "--master", "local[2]", "--log-format", "json")
pytestmark = pytest.mark.timeout(600)


def family(pid: int) -> list[int]:
    """Every process that this one started, and those that they started."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    wanted = {pid}
    while wanted := {child for child, parent in parents.items() if parent in wanted}:
        found += wanted
    return found


class Shown:
    """A pipeline under way, from the moment its load runs."""

    def __init__(self, *options: str, variables: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            (*COMMAND, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (variables or {}),
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "load runs for" in line:
                break
        else:
            raise AssertionError(f"it ended with {self.process.wait()}: {''.join(said)}")
        self._ends = []
        for pid in family(self.process.pid):
            with suppress(ProcessLookupError):  # Spark has some that last milliseconds
                self._ends.append(os.pidfd_open(pid))
        assert len(self._ends) >= 8  # quintet up, Redis, the core, five adapters; the JVM

    def ended(self) -> tuple[int, str]:
        """Exit code and standard output, when all processes that it had started have ended."""
        assert self.process.stderr is not None
        sys.stderr.write(self.process.stderr.read())  # shown where the test fails
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        code = self.process.wait()
        for descriptor in self._ends:
            select.select([descriptor], [], [])
            os.close(descriptor)
        return code, output


def test_it_shows_everything_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    code, output = Shown("--seconds", "5", "--rate", "50", "--folder", str(folder), variables=compiling()).ended()
    assert code == 0
    page = Path(output.strip().removeprefix("Report: "))
    assert page == folder / "lake" / "report" / "index.html"
    assert all(queue in page.read_text() for queue in ("orders", "mails", "webhooks", "thumbnails", "reminders"))
    assert list((folder / "lake" / "rollup").glob("date=*/*.parquet"))

    again = subprocess.run((*COMMAND, "--folder", str(folder)), capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "an earlier run" in again.stderr


def test_ctrl_c_ends_the_load_and_reports_what_there_is(tmp_path: Path) -> None:
    shown = Shown("--seconds", "3000", "--rate", "50", "--folder", str(tmp_path))
    shown.process.send_signal(signal.SIGINT)
    code, output = shown.ended()
    assert code == 0
    assert Path(output.strip().removeprefix("Report: ")).is_file()


def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    shown = Shown("--seconds", "3000", "--rate", "50", "--folder", str(tmp_path))
    shown.process.kill()
    code, _ = shown.ended()
    assert code == -signal.SIGKILL
