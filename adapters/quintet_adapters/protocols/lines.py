"""Newline-ended lines out of arbitrarily split bytes, bounded, without scanning anything twice."""

from __future__ import annotations

import enum
from typing import Final


class TooLong(enum.Enum):
    """Takes the place of a line over the limit, once; the rest of that line is skipped."""

    LINE = enum.auto()


TOO_LONG: Final = TooLong.LINE


class LineBuffer:
    """Bytes received and not yet taken as lines."""

    __slots__ = ("_chunk", "_line_bytes_max", "_partial", "_position", "_skipping")

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._chunk = b""
        self._position = 0
        self._partial = bytearray()
        self._skipping = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that nobody has looked at yet."""
        return len(self._chunk) - self._position

    def is_one_line(self, data: bytes) -> bool:
        """Whether these next bytes are just one line within the limit, so that they need not be fed."""
        size = len(data) - 1
        return (
            data.find(b"\n") == size >= 0
            and size <= self._line_bytes_max
            and self._position >= len(self._chunk)
            and not self._partial
            and not self._skipping
        )

    @property
    def is_drained(self) -> bool:
        """Nothing is left but perhaps the beginning of a line."""
        return self._position >= len(self._chunk)

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if self._position < len(self._chunk):
            self._chunk = self._chunk[self._position :] + data
        else:
            self._chunk = data
        self._position = 0

    def next_line(self) -> bytes | TooLong | None:
        """The next whole line without its newline, or None when more bytes are needed."""
        while True:
            start = self._position
            if start >= len(self._chunk):
                return None
            end = self._chunk.find(b"\n", start)
            if end < 0:
                return self._keep_beginning()
            self._position = end + 1
            if self._skipping:
                self._skipping = False
                continue
            if len(self._partial) + end - start > self._line_bytes_max:
                self._partial = bytearray()
                return TOO_LONG
            return self._complete(start, end)

    def clear(self) -> None:
        """Forgets everything."""
        self._chunk, self._position, self._partial = b"", 0, bytearray()

    def _complete(self, start: int, end: int) -> bytes:
        if not self._partial:
            return self._chunk[start:end]
        self._partial += memoryview(self._chunk)[start:end]
        line, self._partial = bytes(self._partial), bytearray()
        return line

    def _keep_beginning(self) -> TooLong | None:
        rest = memoryview(self._chunk)[self._position :]
        too_long = not self._skipping and len(self._partial) + len(rest) > self._line_bytes_max
        if too_long:
            self._skipping = True
        if self._skipping:
            self._partial = bytearray()
        elif rest:
            self._partial += rest
        self._chunk, self._position = b"", 0
        return TOO_LONG if too_long else None
