"""What a command's exit code says."""

from __future__ import annotations

from quintet_client import InternalError, QuintetError, RetryableError

DONE = 0
NOTHING_THERE = 1
"""`take` and `peek` found no job, `table get` and `del` no row, `durability` found the store not durable."""
USAGE = 2
"""The command line was wrong (click's own code)."""
REFUSED = 3
"""The core refused: no such queue, a stale lease, no permission."""
UNAVAILABLE = 4
"""The core is away, or cannot do this now; the same command may succeed later."""
CORE_FAULT = 5
"""The core failed; its log says more."""
INTERRUPTED = 130
"""Ended by Ctrl+C."""


def of_error(error: QuintetError) -> int:
    """The exit code that stands for an error of the client."""
    if isinstance(error, RetryableError):
        return UNAVAILABLE
    return CORE_FAULT if isinstance(error, InternalError) else REFUSED
