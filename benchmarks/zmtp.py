"""As much of ZMTP (https://rfc.zeromq.org/spec/23/) as a client needs that speaks it over a socket of its own.

A libzmq context with a socket and a pipe for each of 500 clients costs more than what is measured; over a raw socket a
request is one write and an answer one read, as for the other protocols.
"""

from __future__ import annotations

import socket

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_GREETING_BYTES = 64
_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_MAX = 255


def greet(opened: socket.socket, socket_type: bytes) -> None:
    """Greeting and READY of both sides, mechanism NULL; `opened` blocks. Raises ConnectionError."""
    properties = b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    ready = b"\x05READY" + properties
    opened.sendall(_GREETING + bytes([_COMMAND, len(ready)]) + ready)
    greeting = _read(opened, _GREETING_BYTES)
    if greeting[0] != 0xFF or b"NULL" not in greeting:
        raise ConnectionError(f"no ZMTP peer without security: {greeting!r}")
    flags, length = _read(opened, 2)
    command = _read(opened, length)
    if flags != _COMMAND or not command.startswith(b"\x05READY"):
        raise ConnectionError(f"not ready: {command!r}")


def message(*frames: bytes) -> bytes:
    """A message on the wire."""
    return b"".join(_frame(frame, _MORE if index < len(frames) - 1 else 0) for index, frame in enumerate(frames))


def subscription(topic: bytes) -> bytes:
    """What a SUB socket sends for a topic."""
    return message(b"\x01" + topic)


def parse(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """The whole messages in `data`, each as its frames, and what is left over."""
    messages: list[list[bytes]] = []
    frames: list[bytes] = []
    at = rest = 0
    size = len(data)
    while at + 2 <= size:
        flags = data[at]
        if flags & _LONG:
            if at + 9 > size:
                break
            start = at + 9
            at = start + int.from_bytes(data[at + 1 : start], "big")
        else:
            start = at + 2
            at = start + data[at + 1]
        if at > size:
            break
        frames.append(data[start:at])
        if not flags & _MORE:
            messages.append(frames)
            frames = []
            rest = at
    return messages, data[rest:]


def _frame(data: bytes, flags: int) -> bytes:
    length = len(data)
    if length <= _SHORT_MAX:
        return bytes([flags, length]) + data
    return bytes([flags | _LONG]) + length.to_bytes(8, "big") + data


def _read(opened: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = opened.recv(length - len(data))
        if not more:
            raise ConnectionError("the peer closed the connection")
        data += more
    return data
