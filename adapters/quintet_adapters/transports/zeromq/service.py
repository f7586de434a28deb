"""The key-value database as a service: both sockets, who may use them, and their common end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq

from quintet_adapters.adapter import Adapter
from quintet_adapters.metrics import ZmqKvMetrics
from quintet_adapters.protocols.zmq_kv import ZmqKv, ZmqKvTerms
from quintet_adapters.transports.zeromq.admission import Doorkeeper, Presence
from quintet_adapters.transports.zeromq.client_keys import ClientKeys
from quintet_adapters.transports.zeromq.notifications import Notifications, Watch
from quintet_adapters.transports.zeromq.requests import SOCKET_OPTIONS, RequestLimits, Requests
from quintet_adapters.transports.zeromq.sockets import Address, address_of, listening

_REQUESTS: Final = b"requests"
_NOTIFICATIONS: Final = b"notifications"


@dataclass(frozen=True, slots=True)
class Curve:
    """CURVE on both sockets."""

    secret_key: bytes
    """Of the service, in Z85."""
    client_keys: Path
    """Directory with the public keys of those who get in."""


@dataclass(frozen=True, slots=True)
class ServiceTerms:
    """How the service is to be set up."""

    requests: Address
    notifications: Address
    protocol: ZmqKvTerms = field(default_factory=ZmqKvTerms)
    limits: RequestLimits = field(default_factory=RequestLimits)
    curve: Curve | None = None
    notifications_queued_max: int = 100_000
    """For each subscriber; beyond it, it misses some."""
    close_ms: int = 10_000
    """For clients to take what was sent, at the end."""


class ZmqKvListener:
    """One of the two ports."""

    def __init__(self, name: str, opened: zmq.Socket[bytes]) -> None:
        self.name = name
        self.address = address_of(opened)

    def stop_accepting(self) -> None:
        """Nothing: libzmq would close the connections with the port. Requests end when the adapter finishes."""


class ZmqKvService:
    """A member of the adapter: everything behind the two ports. Make it with `ZmqKvService.open`."""

    def __init__(self, adapter: Adapter, terms: ServiceTerms, new_watch: Callable[[], Watch]) -> None:
        self._adapter = adapter
        self._close_ms = terms.close_ms
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 64)
        keys = ClientKeys(terms.curve.client_keys) if terms.curve is not None else None
        self._doorkeeper = Doorkeeper(self._context, keys, self._has_room, adapter.metrics.refused)
        secret_key = terms.curve.secret_key if terms.curve is not None else None
        try:
            router = listening(self._context, zmq.ROUTER, terms.requests, _REQUESTS, secret_key, dict(SOCKET_OPTIONS))
            publisher = listening(
                self._context,
                zmq.PUB,
                terms.notifications,
                _NOTIFICATIONS,
                secret_key,
                {zmq.SNDHWM: terms.notifications_queued_max},
            )
        except OSError:
            self._doorkeeper.close()
            self._context.destroy(linger=0)
            raise
        self.listeners = (ZmqKvListener("zmq-kv", router), ZmqKvListener("zmq-kv-pub", publisher))
        metrics = ZmqKvMetrics(adapter.metrics.registry)
        protocol = ZmqKv(terms.protocol, adapter.metrics.requests)
        self._requests = Requests(adapter, metrics, protocol, router, terms.limits)
        self._notifications = Notifications(metrics, publisher, new_watch, adapter.connections_max)
        opened = adapter.metrics.opened
        self._clients = Presence(router, opened, lambda: None)
        self._subscribers = Presence(publisher, opened, self._count_subscribers)
        self._finishing: asyncio.Task[None] | None = None
        adapter.metrics.connections.set_function(lambda: float(self._connections))

    @classmethod
    def open(cls, adapter: Adapter, terms: ServiceTerms, new_watch: Callable[[], Watch]) -> ZmqKvService:
        """Listens on both ports and serves. Raises OSError when one cannot be had."""
        service = cls(adapter, terms, new_watch)
        service._requests.start()
        service._notifications.start()
        service._doorkeeper.open({_REQUESTS: service._requests, _NOTIFICATIONS: service._notifications})
        adapter.enlist(service)
        return service

    @property
    def _connections(self) -> int:
        return len(self._clients) + len(self._subscribers)

    def _has_room(self) -> bool:
        self._clients.look()
        self._subscribers.look()
        return self._connections <= self._adapter.connections_max

    def _count_subscribers(self) -> None:
        self._notifications.count_subscribers(len(self._subscribers))

    # From the adapter (see `quintet_adapters.adapter.Member`).

    def flush(self) -> None:
        """Nothing gathers."""

    def go_on(self) -> None:
        """`Requests` asks the session itself."""

    def session_connected(self) -> None:
        """Nothing waits for that."""

    def leases_lost(self) -> None:
        """There are none."""

    def finish(self) -> None:
        """Serves what has arrived, and closes when every reply has left."""
        if self._finishing is None:
            self._finishing = self._adapter.loop.create_task(self._finish())

    def abort(self) -> None:
        """Closes at once."""
        if self._finishing is not None:
            self._finishing.cancel()
        self._close_others()
        self._requests.close(0)
        self._notifications.abort()

    async def _finish(self) -> None:
        self._doorkeeper.close()
        await self._requests.finish()
        await self._notifications.close()
        self._close_others()
        self._requests.close(self._close_ms)
        await self._terminated()
        self._adapter.leave(self)

    def _close_others(self) -> None:
        self._doorkeeper.close()
        self._clients.close()
        self._subscribers.close()

    async def _terminated(self) -> None:
        """Waits until libzmq has sent everything, or the time for that has passed."""
        loop = self._adapter.loop
        terminated = asyncio.Event()

        def terminate() -> None:
            self._context.term()
            loop.call_soon_threadsafe(terminated.set)

        # A thread that a process which has to end now does not wait for.
        threading.Thread(target=terminate, name="zmq-term", daemon=True).start()
        await terminated.wait()
