"""A network that a test can break: stands between two parts and passes bytes on, until told otherwise.

with Proxy(folder / "core-proxy.sock", core.socket) as proxy:
    proxy.hold(Way.BACK)        # requests arrive, answers do not
    proxy.cut()                 # every connection is gone; new ones are taken
"""

from __future__ import annotations

import enum
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.clients import Address, reset

Place = Path | Address
"""A unix socket or a TCP address."""
_Pair = tuple[socket.socket, socket.socket]
_CHUNK_BYTES = 1 << 16


class Way(enum.Enum):
    """A direction, as who connects sees it."""

    THERE = enum.auto()
    BACK = enum.auto()


class Proxy:
    """Listens at `place` (a TCP port of 0 is any free one; then see `place`), and connects to `target`."""

    def __init__(self, place: Place, target: Place) -> None:
        self._target = target
        self._listener = _listen(place)
        self.place: Place = place if isinstance(place, Path) else self._listener.getsockname()
        self._pairs: set[_Pair] = set()
        self._changed = threading.Condition()
        self._held: set[Way] = set()
        self._waiting: dict[Way, int] = dict.fromkeys(Way, 0)
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, *ways: Way) -> None:
        """From now on bytes in these directions (default: both) do not arrive, and nobody is told."""
        with self._changed:
            self._held |= set(ways or Way)

    def release(self) -> None:
        """What was held arrives, late."""
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def wait_held(self, way: Way, seconds_max: float = 30.0) -> None:
        """Return once something is held on its way."""
        with self._changed:
            held = self._changed.wait_for(lambda: self._waiting[way] > 0, seconds_max)
        assert held, "nothing was sent"

    def cut(self) -> None:
        """Every connection breaks with what it carries; directions are free again for new ones."""
        with self._changed:
            pairs, self._pairs = self._pairs, set()
            for pair in pairs:
                for end in pair:
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                    reset(end)
            self._held.clear()
            self._changed.notify_all()

    def retarget(self, target: Place) -> None:
        """Whoever connects from now on reaches another part."""
        self._target = target

    def close(self) -> None:
        """Cut, and refuse from now on."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = _connect(self._target)
            except OSError:
                reset(near)
                continue
            pair = (near, far)
            with self._changed:
                self._pairs.add(pair)
            for source, sink, way in ((near, far, Way.THERE), (far, near, Way.BACK)):
                threading.Thread(target=self._pump, args=(pair, source, sink, way), daemon=True).start()

    def _pump(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, way: Way
    ) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if not self._may_pass(pair, way):
                    return
                sink.sendall(data)
        if self._may_pass(pair, way):
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _may_pass(self, pair: _Pair, way: Way) -> bool:
        """Waits while the direction is held; False when the connection was cut meanwhile."""
        with self._changed:
            self._waiting[way] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: way not in self._held or pair not in self._pairs)
            self._waiting[way] -= 1
            return pair in self._pairs


def _listen(place: Place) -> socket.socket:
    if isinstance(place, Path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(place))
        listener.listen(1024)
        return listener
    return socket.create_server(place, backlog=1024)


def _connect(place: Place) -> socket.socket:
    if isinstance(place, Path):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(place))
        return connection
    return socket.create_connection(place)
