"""Etzel: PUB, FET, ACK, as lines of TCP and as text frames of a WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Callable

from benchmarks.tongues import GREETING_BYTES_MAX, PAYLOAD_BYTES, ThreeSteps, UnexpectedAnswerError

_UID = b'"uid":"'
_NO_MASK = bytes(4)
_SHORT_MAX = 125
_TEXT_FRAME = 0x81
_UPGRADE = (
    b"GET /connect HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def line(text: bytes) -> bytes:
    """A request as a line."""
    return text + b"\n"


def masked_frame(text: bytes) -> bytes:
    """A request as a client's text frame. Its mask is zero: the server unmasks all the same, we need not mask."""
    length = len(text)
    head = bytes([_TEXT_FRAME, 0x80 | length]) if length <= _SHORT_MAX else b"\x81\xfe" + length.to_bytes(2, "big")
    return head + _NO_MASK + text


class EtzelLines(ThreeSteps):
    """Over TCP lines."""

    def __init__(self, queue: str, packed: Callable[[bytes], bytes] = line) -> None:
        self._name = queue.encode()
        self._packed = packed
        message = b'"' + b"x" * (PAYLOAD_BYTES - 2) + b'"'
        self.put = packed(b'{"cmd":"PUB","qname":"%b","message":%b}' % (self._name, message))
        self.take = packed(b'{"cmd":"FET","qname":"%b"}' % self._name)

    def is_put(self, answer: bytes) -> bool:
        return self._is(answer, b'"cmd":"ok"')

    def is_taken(self, answer: bytes) -> bool:
        return self._is(answer, b'"cmd":"msg"')

    def is_deleted(self, answer: bytes) -> bool:
        return self._is(answer, b'"cmd":"okack"')

    def delete(self, taken: bytes) -> bytes:
        start = taken.index(_UID) + len(_UID)
        uid = taken[start : taken.index(b'"', start)]
        return self._packed(b'{"cmd":"ACK","qname":"%b","uid":"%b"}' % (self._name, uid))

    def _is(self, answer: bytes, wanted: bytes) -> bool:
        if not self._is_whole(answer):
            return False
        if wanted not in answer:
            raise UnexpectedAnswerError(answer)
        return True

    def _is_whole(self, answer: bytes) -> bool:
        return answer.endswith(b"\n")


class EtzelWebSocket(EtzelLines):
    """Over a WebSocket."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, masked_frame)

    def greet(self, opened: socket.socket) -> None:
        """The opening hand-shake."""
        opened.sendall(_UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            data = opened.recv(GREETING_BYTES_MAX)
            answer += data
            if not data or not answer.startswith(b"HTTP/1.1 101 "):
                raise UnexpectedAnswerError(answer)

    def _is_whole(self, answer: bytes) -> bool:
        if len(answer) < 2:
            return False
        if answer[0] != _TEXT_FRAME:
            raise UnexpectedAnswerError(answer)
        if answer[1] <= _SHORT_MAX:
            return len(answer) == 2 + answer[1]
        return len(answer) >= 4 and len(answer) == 4 + int.from_bytes(answer[2:4], "big")
