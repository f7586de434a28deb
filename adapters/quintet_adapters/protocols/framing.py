"""How a stream of bytes holds messages: what a conversation reads requests from and writes answers to."""

from __future__ import annotations

import abc
import enum

from quintet_adapters.protocols.lines import LineBuffer, TooLong
from quintet_adapters.protocols.payload import on_one_line


class Over(enum.Enum):
    """Why no further message can come."""

    FAILED = enum.auto()
    """The peer broke the framing, or never wanted more than one answer: what is owed is written, then `goodbye`."""
    LEFT = enum.auto()
    """The peer said goodbye and listens no more."""


class Unfit:
    """Takes the place of a message that cannot be one; the connection goes on."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Framing(abc.ABC):
    """Messages out of arbitrarily split bytes, and bytes out of answers. Knows no sockets."""

    def __init__(self) -> None:
        self.replies: list[bytes] = []
        """What the framing itself has to say to the peer, at once."""
        self.over: Over | None = None

    @property
    @abc.abstractmethod
    def waiting_bytes(self) -> int:
        """Bytes that nobody has looked at yet."""

    @abc.abstractmethod
    def feed(self, data: bytes) -> None:
        """Some bytes came."""

    @abc.abstractmethod
    def next_message(self) -> bytes | Unfit | None:
        """The next whole message, or None when more bytes are needed or nothing further can come."""

    @abc.abstractmethod
    def sole_message(self, data: bytes) -> bytes | None:
        """The message that these next bytes are, just one and all of it; None: to be fed, for they are anything else.

        Clients that wait for their answers send nothing else, so this saves them the rest.
        """

    @abc.abstractmethod
    def write(self, answer: bytes, output: list[bytes]) -> None:
        """Adds an answer, framed."""

    @abc.abstractmethod
    def fit(self, source: bytes) -> bytes:
        """JSON so that an answer may hold it."""

    @abc.abstractmethod
    def clear(self) -> None:
        """Forgets what came and was not taken."""

    def goodbye(self) -> bytes:
        """The last bytes for the peer: what `over` asks for or, the peer being in order, a word of parting."""
        return b""


class Lines(Framing):
    """A message is a line; its newline is not part of it."""

    def __init__(self, line_bytes_max: int) -> None:
        super().__init__()
        self._line_bytes_max = line_bytes_max
        self._lines = LineBuffer(line_bytes_max)

    @property
    def waiting_bytes(self) -> int:
        return self._lines.waiting_bytes

    def feed(self, data: bytes) -> None:
        self._lines.feed(data)

    def next_message(self) -> bytes | Unfit | None:
        line = self._lines.next_line()
        if isinstance(line, TooLong):
            return Unfit(f"line too long: at most {self._line_bytes_max} bytes")
        return line

    def sole_message(self, data: bytes) -> bytes | None:
        return data[:-1] if self._lines.is_one_line(data) else None

    def write(self, answer: bytes, output: list[bytes]) -> None:
        output.append(answer + b"\n")

    def fit(self, source: bytes) -> bytes:
        return on_one_line(source)

    def clear(self) -> None:
        self._lines.clear()
