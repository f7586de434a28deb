"""Plain blocking clients of Etzel: by WebSocket, with the library most people use, and by lines."""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Self

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect as connect_websocket

from tests.support.clients import ANSWER_SECONDS_MAX, Address, connect

Message = bytes | str | dict[str, Any]


class EtzelClient(ABC):
    """One connection. `ask` and the verbs keep wake-ups that come before the answer; `awake` takes them."""

    def __init__(self) -> None:
        self._wake_ups: deque[str] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def send(self, *requests: Message) -> None:
        """Send requests without waiting for answers."""

    @abstractmethod
    def read_source(self, seconds_max: float = ANSWER_SECONDS_MAX) -> bytes:
        """The next answer or wake-up as it is. Raises TimeoutError; EOFError at the end."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    def read_any(self, seconds_max: float = ANSWER_SECONDS_MAX) -> dict[str, Any]:
        """The next answer or wake-up."""
        return dict(json.loads(self.read_source(seconds_max)))

    def read(self) -> dict[str, Any]:
        """The next answer; wake-ups before it are kept."""
        while (answer := self.read_any())["cmd"] == "awk":
            self._wake_ups.append(answer["qname"])
        return answer

    def ask(self, request: Message) -> dict[str, Any]:
        """The answer to one request."""
        self.send(request)
        return self.read()

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        try:
            self.read_source(seconds)
        except TimeoutError:
            return not self._wake_ups
        return False

    def awake(self, seconds_max: float = ANSWER_SECONDS_MAX) -> str:
        """Waits for the next wake-up: the name of its queue."""
        if self._wake_ups:
            return self._wake_ups.popleft()
        message = self.read_any(seconds_max)
        assert message["cmd"] == "awk", message
        return str(message["qname"])

    # The verbs.

    def subscribe(self, queue: str) -> None:
        """SUB."""
        answer = self.ask({"cmd": "SUB", "qname": queue})
        assert answer == {"cmd": "oksub", "qname": queue}, answer

    def sleep(self, queue: str) -> None:
        """ISLP."""
        answer = self.ask({"cmd": "ISLP", "qname": queue})
        assert answer == {"cmd": "okslp", "qname": queue}, answer

    def publish(self, queue: str, message: Any, **options: float) -> str:
        """PUB: the uid."""
        answer = self.ask({"cmd": "PUB", "qname": queue, "message": message, **options})
        assert answer["cmd"] == "ok", answer
        return str(answer["uid"])

    def fetch(self, queue: str) -> dict[str, Any]:
        """FET: msg, nomsg or nok."""
        return self.ask({"cmd": "FET", "qname": queue})

    def acknowledge(self, queue: str, uid: str) -> None:
        """ACK."""
        answer = self.ask({"cmd": "ACK", "qname": queue, "uid": uid})
        assert answer == {"cmd": "okack", "uid": uid, "qname": queue}, answer


class EtzelLinesClient(EtzelClient):
    """By lines."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.connection = connect(address)
        self._received = bytearray()

    def send(self, *requests: Message) -> None:
        self.connection.sendall(b"".join(_source(request) + b"\n" for request in requests))

    def read_source(self, seconds_max: float = ANSWER_SECONDS_MAX) -> bytes:
        self.connection.settimeout(seconds_max)
        while b"\n" not in self._received:
            part = self.connection.recv(1 << 16)
            if not part:
                raise EOFError(f"the connection was closed, with {bytes(self._received)!r} left over")
            self._received += part
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line

    def half_close(self) -> None:
        """Send nothing more."""
        self.connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.connection.close()


class EtzelWebSocketClient(EtzelClient):
    """By WebSocket."""

    def __init__(self, address: Address, path: str = "/connect", *, compress: bool = False) -> None:
        super().__init__()
        self._opening = connect_websocket(
            f"ws://{address[0]}:{address[1]}{path}",
            compression="deflate" if compress else None,
            max_size=None,
            open_timeout=ANSWER_SECONDS_MAX,
            proxy=None,
        )
        try:
            self.websocket = self._opening.__enter__()
        except InvalidHandshake as fault:
            raise ConnectionError(str(fault)) from fault

    def send(self, *requests: Message) -> None:
        for request in requests:
            try:
                self.websocket.send(_source(request), text=True)
            except ConnectionClosed as closed:
                raise EOFError(str(closed)) from closed

    def read_source(self, seconds_max: float = ANSWER_SECONDS_MAX) -> bytes:
        try:
            frame = self.websocket.recv(seconds_max, decode=False)
        except ConnectionClosed as closed:
            raise EOFError(str(closed)) from closed
        assert isinstance(frame, bytes)
        return frame

    def close(self) -> None:
        self._opening.__exit__(None, None, None)


def _source(request: Message) -> bytes:
    if isinstance(request, dict):
        return json.dumps(request).encode()
    return request.encode() if isinstance(request, str) else request
