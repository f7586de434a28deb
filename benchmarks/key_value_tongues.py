"""One write or read of a row after another: ZeroMQ key-value, and Redis itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count, cycle

from benchmarks import zmtp
from benchmarks.tongues import Talk, UnexpectedAnswerError

KEYS = 10_000
"""Of a run; clients write and read them in turn."""
_UPDATE, _GET = b"\x02", b"\x04"
_OK_ALONE = zmtp.message(b"", b"\0")


def key(number: int) -> bytes:
    """A key of 16 bytes."""
    return b"key-%012d" % number


def keys() -> Iterator[bytes]:
    """The keys that the clients of a run share, again and again."""
    return cycle([key(number) for number in range(KEYS)])


def new_keys() -> Iterator[bytes]:
    """Other keys, each once."""
    return map(key, count(KEYS))


class KeyValueTongue:
    """The same request with one key after another; the answers are all alike."""

    put = None

    def __init__(self, before: bytes, after: bytes, answer: bytes, shared_keys: Iterator[bytes]) -> None:
        self._before = before
        self._after = after
        self._answer = answer
        self._keys = shared_keys

    def greet(self, opened: socket.socket) -> None:
        """Nothing."""

    def talk(self) -> Talk:
        """Requests without end."""
        before, after, wanted, shared_keys = self._before, self._after, self._answer, self._keys
        while True:
            answer = yield before + next(shared_keys) + after
            while answer != wanted:
                if not wanted.startswith(answer):
                    raise UnexpectedAnswerError(answer)
                answer += yield None


class _ZeroMq(KeyValueTongue):
    def greet(self, opened: socket.socket) -> None:
        """As a REQ socket."""
        zmtp.greet(opened, b"REQ")


def zeromq_update(table: str, value: bytes, shared_keys: Iterator[bytes]) -> KeyValueTongue:
    """A REQ client that updates."""
    before, after = _around_key(_UPDATE, table, value)
    return _ZeroMq(before, after, _OK_ALONE, shared_keys)


def zeromq_get(table: str, value: bytes, shared_keys: Iterator[bytes]) -> KeyValueTongue:
    """A REQ client that reads rows which all have this value."""
    before, after = _around_key(_GET, table, None)
    return _ZeroMq(before, after, zmtp.message(b"", b"\0", value), shared_keys)


def _around_key(command: bytes, table: str, value: bytes | None) -> tuple[bytes, bytes]:
    frames = [b"", command, table.encode(), key(0)] + ([] if value is None else [value])
    before, _, after = zmtp.message(*frames).partition(key(0))
    return before, after


def redis_set(value: bytes, shared_keys: Iterator[bytes]) -> KeyValueTongue:
    """A client of Redis that writes."""
    after = b"\r\n$%d\r\n%b\r\n" % (len(value), value)
    return KeyValueTongue(b"*3\r\n$3\r\nSET\r\n$16\r\n", after, b"+OK\r\n", shared_keys)


def redis_get(value: bytes, shared_keys: Iterator[bytes]) -> KeyValueTongue:
    """A client of Redis that reads keys which all have this value."""
    answer = b"$%d\r\n%b\r\n" % (len(value), value)
    return KeyValueTongue(b"*2\r\n$3\r\nGET\r\n$16\r\n", b"\r\n", answer, shared_keys)
