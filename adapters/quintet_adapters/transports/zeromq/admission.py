"""Who gets in: CURVE's listed keys, the limit of connections, and a count of who is there.

Every connection of both sockets asks here before its handshake ends (ZAP, RFC 27), also where no keys are set.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import zmq
from quintet_kit.logs import get_logger
from quintet_kit.metrics import Tally

from quintet_adapters.transports.zeromq.client_keys import ClientKeys
from quintet_adapters.transports.zeromq.sockets import close, on_readable

_ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"
_FRAMES_MIN: Final = 8
_CURVE: Final = b"CURVE"
_ADMITTED: Final = (b"200", b"OK")
_FULL: Final = (b"300", b"too many connections")
_UNKNOWN_KEY: Final = (b"400", b"unknown key")
_FAULTY: Final = (b"500", b"faulty request")
_EVENT: Final = struct.Struct("=hi")


class Door(Protocol):
    """A socket whose clients the doorkeeper lets in."""

    def call_when_open(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once clients can be served: at once, when they can be now."""


class Doorkeeper:
    """Answers what libzmq asks about each new connection. Make it before the sockets that listen."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        client_keys: ClientKeys | None,
        has_room: Callable[[], bool],
        refused: Tally,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._client_keys = client_keys
        self._has_room = has_room
        self._refused = refused
        self._doors: Mapping[bytes, Door] = {}
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ZAP_ENDPOINT)

    def open(self, doors: Mapping[bytes, Door]) -> None:
        """Begins to let clients in; `doors` by their sockets' domains."""
        self._doors = doors
        on_readable(self._loop, self._socket, self._read)
        self._read()

    def close(self) -> None:
        """Lets nobody in."""
        close(self._loop, self._socket)

    def _read(self) -> None:
        while not self._socket.closed:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._judge(frames)

    def _judge(self, frames: list[bytes]) -> None:
        asker, delimiter, _version, request, domain, *rest = [*frames, *[b""] * (_FRAMES_MIN - len(frames))]
        head = [asker, delimiter, _ZAP_VERSION, request]
        door = self._doors.get(domain)
        if door is None or len(frames) < _FRAMES_MIN:
            self._answer(head, _FAULTY)
        elif not self._knows(rest[2:]):
            get_logger().debug("client_refused", reason="unknown key")
            self._refuse(head, _UNKNOWN_KEY)
        elif not self._has_room():
            self._refuse(head, _FULL)
        else:
            door.call_when_open(lambda: self._answer(head, _ADMITTED))

    def _knows(self, mechanism: list[bytes]) -> bool:
        if self._client_keys is None:
            return True
        name, *credentials = mechanism
        return name == _CURVE and len(credentials) == 1 and credentials[0] in self._client_keys.read()

    def _refuse(self, head: list[bytes], verdict: tuple[bytes, bytes]) -> None:
        self._refused.count += 1
        self._answer(head, verdict)

    def _answer(self, head: list[bytes], verdict: tuple[bytes, bytes]) -> None:
        if not self._socket.closed:
            self._socket.send_multipart([*head, *verdict, b"", b""], zmq.NOBLOCK)
            self._loop.call_soon(self._read)


class Presence:
    """The connections of one socket."""

    def __init__(self, observed: zmq.Socket[bytes], opened: Tally, changed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._observed = observed
        self._opened = opened
        self._changed = changed
        self._descriptors: set[int] = set()
        endpoint = f"inproc://presence-{id(self)}"
        observed.monitor(endpoint, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._socket = observed.context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.LINGER, 0)
        # libzmq's own thread waits for room here.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(endpoint)
        on_readable(self._loop, self._socket, self.look)
        self._loop.call_soon(self.look)

    def __len__(self) -> int:
        return len(self._descriptors)

    def look(self) -> None:
        """Takes in what has happened."""
        while not self._socket.closed:
            try:
                event, _ = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(*_EVENT.unpack(event))

    def close(self) -> None:
        """Observes no longer."""
        if not self._observed.closed:
            self._observed.monitor(None, 0)
        close(self._loop, self._socket)

    def _take(self, event: int, descriptor: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._opened.count += 1
            self._descriptors.add(descriptor)
        else:
            self._descriptors.discard(descriptor)
        self._changed()
