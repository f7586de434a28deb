"""Plain clients of the ZeroMQ key-value adapter: REQ, DEALER and SUB, as users write them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from typing import Self

import zmq

from tests.support.stack import AdapterPart

ANSWER_MS_MAX = 30_000
# libzmq's thread sends subscriptions after its handshake, and nothing tells when. On a machine with more to do than
# processors an update made at once overtook them in one case of 200.
_SUBSCRIBED_S = 0.1
CREATE_TABLE, DELETE_TABLE, UPDATE, DELETE, GET = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04"
OK, ERROR = b"\x00", b"\x01"
UPDATED, DELETED = b"\x00", b"\x01"
Frames = list[bytes]


def requests_of(adapter: AdapterPart) -> str:
    """Where an adapter takes requests."""
    return f"tcp://127.0.0.1:{adapter.port('zmq-kv')}"


def notifications_of(adapter: AdapterPart) -> str:
    """Where it publishes."""
    return f"tcp://127.0.0.1:{adapter.port('zmq-kv-pub')}"


def ttl(seconds: int) -> bytes:
    """A time to live as it is sent."""
    return struct.pack(">Q", seconds)


class _Client:
    """One socket with a context of its own, so that nothing is left behind."""

    def __init__(self, kind: int, endpoint: str, options: dict[int, int | bytes]) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(kind)
        patience: dict[int, int | bytes] = {zmq.LINGER: 0, zmq.RCVTIMEO: ANSWER_MS_MAX, zmq.SNDTIMEO: ANSWER_MS_MAX}
        for option, value in {**patience, **options}.items():
            self.socket.setsockopt(option, value)
        self.socket.connect(endpoint)

    def close(self) -> None:
        """Disconnect."""
        self.context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> Frames:
        """The next message. Raises zmq.Again when none comes for long."""
        return self.socket.recv_multipart()

    def is_silent(self, ms: int = 300) -> bool:
        """Whether no message comes for a while."""
        return not self.socket.poll(ms)


class ReqClient(_Client):
    """A REQ socket: one request at a time."""

    def __init__(self, endpoint: str, options: dict[int, int | bytes] | None = None) -> None:
        super().__init__(zmq.REQ, endpoint, options or {})

    def ask(self, *frames: bytes) -> Frames:
        """The reply's frames."""
        self.socket.send_multipart(frames)
        return self.read()

    def create_table(self, table: bytes) -> Frames:
        return self.ask(CREATE_TABLE, table)

    def delete_table(self, table: bytes) -> Frames:
        return self.ask(DELETE_TABLE, table)

    def update(self, table: bytes, key: bytes, value: bytes, ttl_seconds: int | None = None) -> Frames:
        return self.ask(UPDATE, table, key, value, *(() if ttl_seconds is None else (ttl(ttl_seconds),)))

    def delete(self, table: bytes, key: bytes) -> Frames:
        return self.ask(DELETE, table, key)

    def get(self, table: bytes, key: bytes) -> Frames:
        return self.ask(GET, table, key)


class DealerClient(_Client):
    """A DEALER socket: any number of requests at a time, with an envelope of its own making."""

    def __init__(self, endpoint: str, options: dict[int, int | bytes] | None = None) -> None:
        super().__init__(zmq.DEALER, endpoint, {zmq.SNDHWM: 0, zmq.RCVHWM: 0, **(options or {})})

    def send(self, *frames: bytes) -> None:
        """One message, frames as they are."""
        self.socket.send_multipart(frames)

    def pipeline(self, requests: Iterable[Sequence[bytes]]) -> None:
        """Requests behind REQ's delimiter."""
        for request in requests:
            self.socket.send_multipart([b"", *request])

    def read_replies(self, count: int) -> list[Frames]:
        """Replies in order, without the delimiter."""
        replies = [self.read() for _ in range(count)]
        assert all(reply[0] == b"" for reply in replies)
        return [reply[1:] for reply in replies]


class SubClient(_Client):
    """A SUB socket that is connected and subscribed, and hears everything that begins with one of `topics`."""

    def __init__(
        self, endpoint: str, *topics: bytes, options: dict[int, int | bytes] | None = None, connected: bool = True
    ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        for option, value in {zmq.LINGER: 0, zmq.RCVTIMEO: ANSWER_MS_MAX, zmq.RCVHWM: 0, **(options or {})}.items():
            self.socket.setsockopt(option, value)
        for topic in topics:
            self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.socket.connect(endpoint)
        if connected:
            monitor.setsockopt(zmq.RCVTIMEO, ANSWER_MS_MAX)
            monitor.recv_multipart()
            time.sleep(_SUBSCRIBED_S)
        self.socket.disable_monitor()

    def hear(self, count: int) -> list[tuple[bytes, bytes, bytes]]:
        """The next notifications: table, code and key."""
        return [self._one() for _ in range(count)]

    def _one(self) -> tuple[bytes, bytes, bytes]:
        table, code, key = self.read()
        return table, code, key
