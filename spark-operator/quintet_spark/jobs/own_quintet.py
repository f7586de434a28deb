"""A `quintet up` of one's own: on a folder, on free ports, and gone afterwards."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS_MAX = 30
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class OwnQuintetError(Exception):
    """It did not start; what it said is in the log that the text names."""


@contextmanager
def own_quintet(folder: Path) -> Iterator[str]:
    """The core's endpoint. Everything that was started ends with the block, and should this process be killed."""
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / "quintet.log"
    command = (sys.executable, "-m", "quintet_cli", "up", "--any-port", "--json", "--data", str(folder / "data"))
    with (
        log_path.open("wb") as log,
        subprocess.Popen(  # noqa: S603  # our own command line
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl+C at the terminal is for us: we end it in its turn.
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # nothing but a system call
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise OwnQuintetError(f"quintet up ended with exit code {process.wait()}; see {log_path}")
            yield str(json.loads(line)["parts"]["core"]["listening"]["core-grpc"])
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            finally:
                process.kill()


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
