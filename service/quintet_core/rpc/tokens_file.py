"""The tokens file in use: read again when it changes, kept as it was while what is there is wrong."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from quintet_kit.logs import get_logger

from quintet_core.rpc.access import Access, Tokens

LOOK_PERIOD_S = 1.0


class TokensFile:
    """Tokens of a file. Raises ValueError, naming every fault, when it is wrong from the beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._tokens = Tokens.load(path)
        self._looked_at = monotonic()

    def access_of(self, authorization: str) -> Access | None:
        """As Tokens.access_of, by the file as it was at most a second ago."""
        now = monotonic()
        if now - self._looked_at >= LOOK_PERIOD_S:
            self._looked_at = now
            self._look()
        return self._tokens.access_of(authorization)

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = Tokens.load(self._path)
        except ValueError as error:
            get_logger().error("tokens_file_wrong", reason=str(error))
        else:
            get_logger().info("tokens_file_read")


def _stamp(path: Path) -> tuple[int, int, int]:
    """Tells a changed or replaced file; zeros when it is away."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
