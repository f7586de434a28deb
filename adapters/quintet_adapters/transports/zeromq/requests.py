"""The ROUTER: requests of all clients to the core, and their replies back.

Each request gets exactly one reply, in the order of its client's requests. libzmq gives no way to stop reading just
one client, so back-pressure has two steps. Replies that a client does not take wait here, whoever else is served
meanwhile; and when those waiting have grown to a limit, nobody is read until there is room again. Then a client that
has taken nothing for a long time loses the replies that wait for it.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import zmq
import zmq.backend
from quintet.v1.session_service_pb2 import SessionResult
from quintet_kit.logs import get_logger

from quintet_adapters.adapter import Adapter
from quintet_adapters.metrics import ZmqKvMetrics
from quintet_adapters.protocols.zmq_kv import STOPPING, TOO_MANY_FRAMES, Exchange, ZmqKv
from quintet_adapters.transports.zeromq.sockets import close, has_input, on_readable

SOCKET_OPTIONS: Final[dict[int, int]] = {
    # A full or absent client is said to be so, instead of its reply being dropped.
    zmq.ROUTER_MANDATORY: 1,
    # A client that comes back under its own identity takes the place of its dead connection.
    zmq.ROUTER_HANDOVER: 1,
    zmq.RCVHWM: 1000,
    zmq.SNDHWM: 1000,
}
_FRAMES_MAX: Final = 1024
_READS_MAX: Final = 256
"""Messages read in one turn of the event loop."""
_LAST_TURNS_MAX: Final = 200
_WAITING_MAX: Final = 16_384
"""Exchanges that have no reply yet, or stand behind such."""
_RETRY_S: Final = 0.01
_RETRIES_MAX: Final = 256
_REPLY_OVERHEAD_BYTES: Final = 200

# Why nothing is read.
_HOLD_SESSION: Final = 1
_HOLD_WAITING: Final = 2
_HOLD_UNREAD: Final = 4
_HOLD_END: Final = 8

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE) | _NOBLOCK


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What is kept for clients that do not read."""

    unread_bytes_max: int = 256 * 1024 * 1024
    """Replies that wait for clients to take them, all together."""
    unread_ms: int = 10_000
    """Past that limit, a client that has taken nothing for so long loses what waits for it."""
    peers_max: int = 10_000
    """Clients that are remembered without need."""


class Peer:
    """A client, as long as something is under way for it, and for a while after."""

    __slots__ = ("gave_up", "held", "identity", "is_creating", "moved_at", "owner", "unread", "waiting")

    def __init__(self, identity: bytes, owner: int) -> None:
        self.identity = identity
        self.owner = owner
        self.waiting: deque[Exchange] = deque()
        """Without a reply, or behind such; in the order of arrival."""
        self.is_creating = False
        """A table is being made, which may take the core several steps: what is behind must not overtake it."""
        self.held: deque[Exchange] = deque()
        """Behind that."""
        self.unread: deque[list[bytes]] = deque()
        """Replies that the client has no room for yet."""
        self.moved_at = 0.0
        """When the client last took one of them, or the first began to wait."""
        self.gave_up = False
        """Its unread replies were dropped, and it has taken none since."""


class Requests:
    """All clients of the socket together."""

    def __init__(
        self,
        adapter: Adapter,
        metrics: ZmqKvMetrics,
        protocol: ZmqKv,
        opened: zmq.Socket[bytes],
        limits: RequestLimits,
    ) -> None:
        session = adapter.session
        self._loop = adapter.loop
        self._session = session
        self._metrics = adapter.metrics
        self._protocol = protocol
        self._socket = opened
        self._limits = limits
        self._submits: dict[str, Callable[..., int]] = {
            "create_table": session.submit_create_table,
            "delete_table": session.submit_delete_table,
            "put_row": session.submit_put_row,
            "delete_row": session.submit_delete_row,
            "get_row": session.submit_get_row,
        }
        # Without pyzmq's checks of arguments, which cost more than the call.
        self._recv: Callable[[int, bool], Any] = opened.recv
        self._send: Callable[[bytes, int], object] = zmq.backend.Socket.send.__get__(opened)
        self._undeliverable = metrics.undeliverable
        self._peers: dict[bytes, Peer] = {}
        self._peers_max = limits.peers_max
        self._spare_owners: list[int] = []
        self._waiting = 0
        self._clogged: dict[bytes, Peer] = {}
        self._unread_bytes = 0
        self._retries: asyncio.TimerHandle | None = None
        self._holds = 0
        self._looking = False
        self._quiet = asyncio.Event()

    def start(self) -> None:
        """Begins to read."""
        on_readable(self._loop, self._socket, self._read)
        self._look_soon()

    def call_when_open(self, callback: Callable[[], None]) -> None:
        """The doorkeeper's: requests are answered at any time."""
        callback()

    # Requests.

    def _look_soon(self) -> None:
        """After anything that may have taken in what the socket's descriptor had to tell."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if not self._socket.closed and has_input(self._socket):
            self._read()

    def _read(self) -> None:
        if self._holds:
            has_input(self._socket)  # lest the descriptor stay readable
            return
        recv, session = self._recv, self._session
        for _ in range(_READS_MAX):
            if not session.writable:
                self._holds |= _HOLD_SESSION
                session.on_writable(lambda: self._let_go(_HOLD_SESSION))
                return
            try:
                frame = recv(_NOBLOCK, False)
            except zmq.Again:
                return
            self._receive(frame.bytes, self._rest(frame))
            if self._holds:
                return
        self._look_soon()

    def _rest(self, frame: Any) -> list[bytes]:
        """What follows the routing frame; of a message with too many frames, one more than there may be."""
        recv = self._recv
        frames: list[bytes] = []
        while frame.more:
            frame = recv(_NOBLOCK, False)
            if len(frames) <= _FRAMES_MAX:
                frames.append(frame.bytes)
        return frames

    def _receive(self, identity: bytes, frames: list[bytes]) -> None:
        self._metrics.received_bytes.count += sum(map(len, frames))
        peer = self._peers.get(identity) or self._meet(identity)
        if len(frames) > _FRAMES_MAX:
            exchange = self._protocol.refuse_unread(frames, TOO_MANY_FRAMES)
        else:
            exchange = self._protocol.read(frames)
        if exchange.reply is not None and not peer.waiting:
            self._reply(peer, exchange.reply)
            self._look_soon()
            return
        exchange.peer = peer
        peer.waiting.append(exchange)
        self._waiting += 1
        if self._waiting >= _WAITING_MAX:
            self._holds |= _HOLD_WAITING
        if exchange.message is not None:
            if peer.is_creating:
                exchange.message = copy(exchange.message)
                peer.held.append(exchange)
            else:
                self._submit(peer, exchange)

    def _submit(self, peer: Peer, exchange: Exchange) -> None:
        if exchange.verb == "create_table":
            peer.is_creating = True
        exchange.started_at = self._loop.time()
        self._submits[exchange.verb](peer.owner, exchange.message, partial(self._receive_result, exchange, peer))

    def _created(self, peer: Peer) -> None:
        peer.is_creating = False
        while peer.held and not peer.is_creating:
            self._submit(peer, peer.held.popleft())

    def _meet(self, identity: bytes) -> Peer:
        if len(self._peers) >= self._peers_max:
            self._forget_idle()
        owner = self._spare_owners.pop() if self._spare_owners else self._session.new_owner()
        peer = self._peers[identity] = Peer(identity, owner)
        return peer

    def _forget_idle(self) -> None:
        idle = [peer for peer in self._peers.values() if not peer.waiting and not peer.unread]
        for peer in idle:
            del self._peers[peer.identity]
            self._spare_owners.append(peer.owner)
        self._peers_max = max(self._limits.peers_max, 2 * len(self._peers))

    # Replies.

    def _receive_result(self, exchange: Exchange, peer: Peer, result: SessionResult) -> None:
        self._protocol.answer(exchange, result)
        self._metrics.seconds[exchange.command].observe(self._loop.time() - exchange.started_at)
        if exchange.verb == "create_table":
            self._created(peer)
        waiting = peer.waiting
        while waiting and (reply := waiting[0].reply) is not None:
            waiting.popleft()
            self._waiting -= 1
            self._reply(peer, reply)
        self._look_soon()
        if self._holds:
            self._results_came()

    def _results_came(self) -> None:
        if self._holds & _HOLD_WAITING and self._waiting <= _WAITING_MAX // 2:
            self._let_go(_HOLD_WAITING)
        self._tell_quiet()

    def _reply(self, peer: Peer, reply: list[bytes]) -> None:
        if self._socket.closed:
            self._undeliverable.count += 1
        elif peer.unread or not self._send_now(peer, reply):
            self._keep(peer, reply)

    def _send_now(self, peer: Peer, reply: list[bytes]) -> bool:
        """False: the client has no room for it now."""
        send = self._send
        try:
            send(peer.identity, _MORE)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._undeliverable.count += 1
            return True
        for frame in reply[:-1]:
            send(frame, _MORE)
        send(reply[-1], _NOBLOCK)
        self._metrics.sent_bytes.count += sum(map(len, reply))
        peer.gave_up = False
        return True

    # Clients that do not read.

    def _keep(self, peer: Peer, reply: list[bytes]) -> None:
        if peer.gave_up:
            self._undeliverable.count += 1
            return
        if not peer.unread:
            peer.moved_at = self._loop.time()
            self._clogged[peer.identity] = peer
        peer.unread.append(reply)
        self._unread_bytes += _cost_of(reply)
        if self._unread_bytes > self._limits.unread_bytes_max:
            self._holds |= _HOLD_UNREAD
        if self._retries is None:
            self._retries = self._loop.call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retries = None
        if self._socket.closed:
            return
        for peer in list(islice(self._clogged.values(), _RETRIES_MAX)):
            del self._clogged[peer.identity]
            self._send_unread(peer)
            if peer.unread:
                self._clogged[peer.identity] = peer
        if self._holds & _HOLD_UNREAD:
            self._make_room()
        if self._clogged:
            self._retries = self._loop.call_later(_RETRY_S, self._retry)
        self._look_soon()
        self._tell_quiet()

    def _send_unread(self, peer: Peer) -> None:
        unread = peer.unread
        while unread and self._send_now(peer, unread[0]):
            self._unread_bytes -= _cost_of(unread.popleft())
            peer.moved_at = self._loop.time()

    def _make_room(self) -> None:
        too_old = self._loop.time() - self._limits.unread_ms / 1000
        if self._unread_bytes > self._limits.unread_bytes_max:
            for peer in [peer for peer in self._clogged.values() if peer.moved_at <= too_old]:
                self._give_up(peer)
        if self._unread_bytes <= self._limits.unread_bytes_max:
            self._let_go(_HOLD_UNREAD)

    def _give_up(self, peer: Peer) -> None:
        get_logger().warning("replies_dropped", replies=len(peer.unread), reason="the client does not read")
        self._undeliverable.count += len(peer.unread)
        self._unread_bytes -= sum(map(_cost_of, peer.unread))
        peer.unread.clear()
        peer.gave_up = True
        del self._clogged[peer.identity]

    def _let_go(self, reason: int) -> None:
        self._holds &= ~reason
        if not self._holds:
            self._look_soon()

    # The end.

    async def finish(self) -> None:
        """Serves what has arrived, waits until all replies are on their way, refuses what came meanwhile."""
        for _ in range(_LAST_TURNS_MAX):
            if not has_input(self._socket):
                break
            self._read()
            await asyncio.sleep(0)
        self._holds |= _HOLD_END
        self._tell_quiet()
        await self._quiet.wait()
        for _ in range(_LAST_TURNS_MAX * _READS_MAX):
            if not self._refuse_one():
                return

    def close(self, linger_ms: int) -> None:
        """Closes the socket; replies on their way have `linger_ms` to leave."""
        self._holds |= _HOLD_END
        close(self._loop, self._socket, linger_ms)

    def _refuse_one(self) -> bool:
        try:
            frame = self._recv(_NOBLOCK, False)
        except zmq.Again:
            return False
        identity, frames = frame.bytes, self._rest(frame)
        peer = self._peers.get(identity) or self._meet(identity)
        reply = self._protocol.refuse_unread(frames, STOPPING).reply
        assert reply is not None
        if not self._send_now(peer, reply):
            self._undeliverable.count += 1
        return True

    def _tell_quiet(self) -> None:
        if self._holds & _HOLD_END and not self._waiting and not self._clogged:
            self._quiet.set()


def _cost_of(reply: list[bytes]) -> int:
    return _REPLY_OVERHEAD_BYTES + sum(map(len, reply))
