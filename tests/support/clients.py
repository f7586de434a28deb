"""Plain blocking clients of the two protocols, as their users write them."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any, Self

ANSWER_SECONDS_MAX = 30.0
Address = tuple[str, int]


def connect(address: Address) -> socket.socket:
    """A connection without delays of its own."""
    connection = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    data = bytearray()
    while part := connection.recv(1 << 20):
        data += part
    return bytes(data)


def reset(connection: socket.socket) -> None:
    """Close with RST, as a crashing host does: the other side knows at once that nobody reads any more."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class TextClient:
    """One command per connection."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def ask(self, command: bytes, *, half_close: bool = False) -> bytes:
        """The whole answer to a command sent in one piece."""
        with connect(self.address) as connection:
            connection.sendall(command)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def ask_in_pieces(self, pieces: Sequence[bytes]) -> bytes:
        """The whole answer to a command sent piece by piece, without pauses."""
        with connect(self.address) as connection:
            for piece in pieces:
                connection.sendall(piece)
            return read_all(connection)

    def add(self, queue: str, data: bytes) -> bytes:
        """The id of a new job."""
        return self.ask(f"ADD {queue} {len(data)} ".encode() + data)

    def get(self, queue: str) -> tuple[bytes, bytes] | None:
        """Id and data of the next job, or None."""
        answer = self.ask(f"GET {queue}\n".encode())
        if answer == b"NONE":
            return None
        job_id, length, data = answer.split(b" ", 2)
        assert int(length) == len(data)
        return job_id, data

    def ack(self, queue: str, job_id: bytes) -> bytes:
        """OK or NO."""
        return self.ask(f"ACK {queue} ".encode() + job_id + b"\n")

    def is_in(self, queue: str, job_id: bytes) -> bytes:
        """YES or NO."""
        return self.ask(f"IN {queue} ".encode() + job_id + b"\n")


class JobCentreClient:
    """One connection."""

    def __init__(self, address: Address) -> None:
        self.connection = connect(address)
        self._lines = self.connection.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._lines.close()
        self.connection.close()

    def reset(self) -> None:
        """Disconnect with RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def half_close(self) -> None:
        """Send nothing more."""
        self.connection.shutdown(socket.SHUT_WR)

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        """Send requests, all in one segment if they fit, without waiting for answers."""
        self.connection.sendall(
            b"".join((json.dumps(line).encode() if isinstance(line, dict) else line) + b"\n" for line in lines)
        )

    def read_line(self) -> bytes:
        """The next answer as it is, with its newline; empty at the end of the stream."""
        return self._lines.readline()

    def read(self) -> dict[str, Any]:
        """The next answer."""
        line = self.read_line()
        assert line.endswith(b"\n"), f"the connection was closed: {line!r}"
        return dict(json.loads(line))

    def ask(self, line: bytes | dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        self.send(line)
        return self.read()

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether no answer comes for a while."""
        self.connection.settimeout(seconds)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(ANSWER_SECONDS_MAX)

    def has_heard(self) -> bool:
        """Whether an answer, or the end of the stream, has come already."""
        return bool(select.select([self.connection], [], [], 0)[0])

    def put(self, queue: str, job: dict[str, Any] | None = None, pri: int = 0) -> int:
        """The id of a new job."""
        answer = self.ask({"request": "put", "queue": queue, "job": job or {}, "pri": pri})
        assert answer["status"] == "ok", answer
        return int(answer["id"])

    def get(self, *queues: str, wait: bool = False) -> dict[str, Any]:
        """ok with a job, or no-job."""
        return self.ask({"request": "get", "queues": list(queues), "wait": wait})

    def delete(self, job_id: int) -> str:
        """The status."""
        return str(self.ask({"request": "delete", "id": job_id})["status"])

    def abort(self, job_id: int) -> str:
        """The status."""
        return str(self.ask({"request": "abort", "id": job_id})["status"])
