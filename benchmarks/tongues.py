"""What a client says and hears: request bytes, and the least parsing of the answers.

One tongue object serves one connection loop. The bytes of `put` and `take` are made once, so that the load generator,
which shares the machine with what it measures, spends its time in the kernel and not in formatting.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from enum import IntEnum
from typing import Protocol

PAYLOAD_BYTES = 50
GREETING_BYTES_MAX = 65536


class Step(IntEnum):
    """The request whose answer is awaited."""

    PUT = 0
    TAKE = 1
    DELETE = 2


class UnexpectedAnswerError(Exception):
    """The server answered something other than success; holds the answer."""


Talk = Generator[bytes | None, bytes, None]
"""Requests without end: yields the next request, or None while the answer that it was sent is not whole yet."""


class Tongue(Protocol):
    """What one connection says."""

    @property
    def put(self) -> bytes | None:
        """The request that begins each lifecycle, always this object; None: requests are no parts of lifecycles."""
        ...

    def greet(self, opened: socket.socket) -> None:
        """What is said and heard before the first request, on a blocking socket."""
        ...

    def talk(self) -> Talk:
        """The requests of one connection; many talk at once."""
        ...


class ThreeSteps(ABC):
    """Lifecycles of three requests on one queue. Each `is_*` says if `answer` is whole; it raises
    UnexpectedAnswerError when it is whole and no success."""

    put: bytes
    take: bytes
    greetings: Sequence[bytes] = ()
    """Sent one by one when the connection opens; each has an answer."""

    @abstractmethod
    def is_put(self, answer: bytes) -> bool: ...
    @abstractmethod
    def is_taken(self, answer: bytes) -> bool: ...
    @abstractmethod
    def is_deleted(self, answer: bytes) -> bool: ...

    @abstractmethod
    def delete(self, taken: bytes) -> bytes:
        """The request that deletes the job that the whole answer `taken` brought."""

    def greet(self, opened: socket.socket) -> None:
        """Sends the greetings."""
        for greeting in self.greetings:
            opened.sendall(greeting)
            opened.recv(GREETING_BYTES_MAX)

    def talk(self) -> Talk:
        """Put, take, delete, and so on."""
        while True:
            answer = yield self.put
            while not self.is_put(answer):
                answer += yield None
            answer = yield self.take
            while not self.is_taken(answer):
                answer += yield None
            answer = yield self.delete(answer)
            while not self.is_deleted(answer):
                answer += yield None


class JobCentre(ThreeSteps):
    """Newline JSON: put, get, delete."""

    def __init__(self, queue: str) -> None:
        name = queue.encode()
        # An object of PAYLOAD_BYTES bytes.
        job = b'{"data":"' + b"x" * (PAYLOAD_BYTES - 11) + b'"}'
        self.put = b'{"request":"put","queue":"%b","job":%b,"pri":100}\n' % (name, job)
        self.take = b'{"request":"get","queues":["%b"]}\n' % name

    def is_put(self, answer: bytes) -> bool:
        if not answer.endswith(b"\n"):
            return False
        if b'"status":"ok"' not in answer:
            raise UnexpectedAnswerError(answer)
        return True

    is_taken = is_put
    is_deleted = is_put

    def delete(self, taken: bytes) -> bytes:
        return b'{"request":"delete","id":%b}\n' % job_centre_id(taken)


def job_centre_id(answer: bytes) -> bytes:
    """The digits behind the first `"id":` of an answer to put or get."""
    start = answer.index(b'"id":') + 5
    end = start
    while answer[end : end + 1].isdigit():
        end += 1
    return answer[start:end]


class Beanstalk(ThreeSteps):
    """beanstalkd's protocol: put, reserve, delete."""

    def __init__(self, tube: str) -> None:
        name = tube.encode()
        self.greetings = (b"use %b\r\n" % name, b"watch %b\r\n" % name, b"ignore default\r\n")
        self.put = b"put 100 0 120 %d\r\n%b\r\n" % (PAYLOAD_BYTES, b"x" * PAYLOAD_BYTES)
        self.take = b"reserve\r\n"

    def is_put(self, answer: bytes) -> bool:
        return _is_line(answer, b"INSERTED ")

    def is_taken(self, answer: bytes) -> bool:
        # The head line and the body line.
        return _is_line(answer, b"RESERVED ") and answer.count(b"\r\n") == 2

    def is_deleted(self, answer: bytes) -> bool:
        return _is_line(answer, b"DELETED")

    def delete(self, taken: bytes) -> bytes:
        return b"delete %b\r\n" % taken.split(b" ", 2)[1]


def _is_line(answer: bytes, beginning: bytes) -> bool:
    if not answer.endswith(b"\r\n"):
        return False
    if not answer.startswith(beginning):
        raise UnexpectedAnswerError(answer)
    return True


class Text(ThreeSteps):
    """The text queue: ADD, GET, ACK; the answer ends with the connection."""

    def __init__(self, queue: str) -> None:
        self._name = queue.encode()
        self.put = b"ADD %b %d %b" % (self._name, PAYLOAD_BYTES, b"x" * PAYLOAD_BYTES)
        self.take = b"GET %b\n" % self._name

    def is_put(self, answer: bytes) -> bool:
        if not answer or answer.startswith(b"ERROR"):
            raise UnexpectedAnswerError(answer)
        return True

    def is_taken(self, answer: bytes) -> bool:
        if answer == b"NONE":
            raise UnexpectedAnswerError(answer)
        return self.is_put(answer)

    def is_deleted(self, answer: bytes) -> bool:
        if answer != b"OK":
            raise UnexpectedAnswerError(answer)
        return True

    def delete(self, taken: bytes) -> bytes:
        return b"ACK %b %b\n" % (self._name, taken.split(b" ", 1)[0])
