"""One connection's life: bytes -> conversation -> session -> conversation -> bytes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol

from quintet.v1.session_service_pb2 import KeepLeases, SessionResult

from quintet_adapters.adapter import NO_OWNER, Adapter
from quintet_adapters.messages import Request, RequestMessage, is_in_doubt
from quintet_adapters.protocols.conversation import Conversation, End


class Wire(Protocol):
    """The transport beneath a connection."""

    def write(self, data: bytes) -> None:
        """Send, buffering what the client does not take yet."""

    def pause_reading(self) -> None:
        """Deliver no further bytes."""

    def resume_reading(self) -> None:
        """Deliver bytes again."""

    def linger(self) -> None:
        """After what was written: shut down sending, drop what comes for a bounded time, close."""

    def close(self) -> None:
        """After what was written, but within a bounded time: close."""

    def abort(self) -> None:
        """Close at once."""


# Why no further requests are taken; flags, as plain integers because they are looked at for every request.
_HOLD_SESSION: Final = 1
"""The session takes none for now."""
_HOLD_OUTPUT: Final = 2
"""The client does not read its answers."""
_HOLD_OWNER: Final = 4
"""The owner may hold a job that nobody knows of, or works on: that is settled first."""
_HOLD_SUBMITS: Final = _HOLD_SESSION | _HOLD_OWNER

_SETTLE_AGAIN_S: Final = 0.2


_RETRY_S: Final = 1.0
"""For what the core refuses while it can be reached: its store is away, say."""


def _without_wait(message: RequestMessage) -> RequestMessage:
    request = type(message)()
    request.MergeFrom(message)  # type: ignore[arg-type]
    request.wait_ms = 0  # type: ignore[union-attr]  # only what waits is cancelled
    return request


class Connection:
    """Drives one conversation. The transport calls `receive`, `receive_end`, `pause`, `resume` and `lost`."""

    __slots__ = (
        "_adapter",
        "_conversation",
        "_dirty",
        "_holds",
        "_idle_timer",
        "_in_flight",
        "_leases_in_flight",
        "_lost",
        "_opened_at",
        "_owner",
        "_parted",
        "_progress",
        "_progressed_at",
        "_reading",
        "_received",
        "_retrying",
        "_timer",
        "_wire",
    )

    def __init__(self, adapter: Adapter, wire: Wire, conversation: Conversation) -> None:
        self._adapter = adapter
        self._wire = wire
        self._conversation = conversation
        self._owner = NO_OWNER
        self._in_flight = 0
        self._leases_in_flight = 0
        self._holds = 0
        self._dirty = False
        self._reading = True
        self._parted = False
        self._lost = False
        self._received = 0
        self._retrying = False
        self._timer: asyncio.TimerHandle | None = None
        self._opened_at = 0.0
        if self._conversation.wake_after_ms is not None or self._conversation.lifetime_ms is not None:
            self._opened_at = adapter.loop.time()
            self._restart_timer()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._progress = self._conversation.progress
        self._progressed_at = 0.0
        if self._conversation.idle_ms is not None:
            self._progressed_at = adapter.loop.time()
            self._watch_idleness(self._conversation.idle_ms / 1000)

    # From the transport.

    def receive(self, data: bytes) -> None:
        """Bytes came from the client."""
        self._received += 1
        self._adapter.metrics.received_bytes.count += len(data)
        self._conversation.receive(data)
        if self._timer is not None or self._conversation.wake_after_ms is not None:
            self._restart_timer()
        self._act()

    def receive_end(self) -> None:
        """The client sends nothing more."""
        self._received += 1
        self._conversation.receive_end()
        self._act()

    def pause(self) -> None:
        """The client does not read its answers: take no further requests."""
        self._hold(_HOLD_OUTPUT)

    def resume(self) -> None:
        """The client reads again."""
        self._let_go(_HOLD_OUTPUT)

    def lost(self) -> None:
        """The transport is closed, by whomever."""
        self._lost = self._parted = True
        self._stop_timer()
        self._stop_watching()
        self._adapter.leave(self)
        if self._conversation.owner_leases:
            self._conversation.requests.clear()
            self._close_owner()
            return
        self._conversation.lose_client()
        self._submit()
        self._cancel_waits()
        self._settle_owner()

    # From the adapter.

    def flush(self) -> None:
        """Writes what has gathered, then parts if the conversation is over."""
        self._dirty = False
        if self._parted:
            return
        conversation = self._conversation
        output = conversation.output
        if output:
            data = output[0] if len(output) == 1 else b"".join(output)
            output.clear()
            self._adapter.metrics.sent_bytes.count += len(data)
            self._wire.write(data)
        if conversation.end is not None:
            self._part(conversation.end)

    def go_on(self) -> None:
        """The session takes requests again."""
        self._let_go(_HOLD_SESSION)

    def session_connected(self) -> None:
        """The core can be told of leases again, and asked again."""
        if self._holds & _HOLD_OWNER:
            self._settle_doubt()
        if self._retrying:
            self._retry()

    def leases_lost(self) -> None:
        """Closes the connection if its client works under a lease, or may be about to."""
        if self._conversation.owner_leases and (self._conversation.holds_leases or self._leases_in_flight):
            self._adapter.metrics.closed_for_lost_leases.count += 1
            self._conversation.end = End.CLOSE
            self.flush()

    def finish(self) -> None:
        """Takes nothing new, answers what is under way, closes."""
        self._conversation.finish()
        self._act()

    def abort(self) -> None:
        """Closes at once."""
        self._wire.abort()

    # Doing what the conversation says.

    def _act(self) -> None:
        conversation = self._conversation
        if conversation.requests:
            self._submit()
        if conversation.cancels:
            self._cancel_waits()
        if conversation.retries and not self._retrying:
            self._retry_later()
        if conversation.output or conversation.end is not None:
            if not self._in_flight:
                self.flush()
            elif not self._dirty:
                self._dirty = True
                self._adapter.flush_soon(self)
        if self._reading is not (conversation.wants_input and not self._holds):
            self._toggle_reading()
        if conversation.progress != self._progress:
            self._progress, self._progressed_at = conversation.progress, self._adapter.loop.time()

    def _submit(self) -> None:
        adapter, requests = self._adapter, self._conversation.requests
        session = adapter.session
        while requests and not self._holds & _HOLD_SUBMITS:
            if not session.writable:
                self._hold(_HOLD_SESSION)
                adapter.hold(self)
                return
            if self._owner == NO_OWNER:
                self._owner = adapter.take_owner(own=self._conversation.owner_leases)
            request = requests.popleft()
            request.started_at = adapter.loop.time()
            request.sent = request.takes_lease and session.connected
            self._in_flight += 1
            self._leases_in_flight += request.takes_lease
            # The session takes each verb with its own message, which the pair of verb and message guarantees.
            submit = adapter.submits[request.verb]
            request.sequence = submit(self._owner, request.message, partial(self._receive_result, request))  # type: ignore[operator]

    def _cancel_waits(self) -> None:
        cancels, requests = self._conversation.cancels, self._conversation.requests
        while cancels:
            request = cancels.popleft()
            if request in requests:
                request.message = _without_wait(request.message)
            else:
                self._adapter.session.cancel_wait(self._owner, request.sequence)

    def _receive_result(self, request: Request, result: SessionResult) -> None:
        adapter = self._adapter
        self._in_flight -= 1
        adapter.metrics.seconds[request.command].observe(adapter.loop.time() - request.started_at)
        if request.takes_lease:
            self._leases_in_flight -= 1
            if request.sent and not self._lost and result.HasField("failure") and is_in_doubt(result.failure):
                self._doubt_owner()
        elif request.ends_lease and not self._lost and result.HasField("failure"):
            self._hold(_HOLD_OWNER)
        if not (self._lost and self._conversation.owner_leases):
            self._conversation.receive_result(request, result)
        if self._lost:
            self._submit()
            self._settle_owner()
            return
        if self._holds & _HOLD_OWNER:
            self._settle_doubt()
        self._act()

    def _retry_later(self) -> None:
        self._retrying = True
        if self._adapter.session.connected:
            self._adapter.loop.call_later(_RETRY_S, self._retry)
        else:
            self._adapter.tell_connected(self)

    def _retry(self) -> None:
        self._retrying = False
        conversation = self._conversation
        if self._lost or self._parted:
            return
        conversation.requests.extend(conversation.retries)
        conversation.retries.clear()
        self._act()

    # Doubt: the owner may hold a job that nobody knows of (the answer to its dequeue was lost on the way) or that its
    # client has given up (what was to end the lease failed).

    def _doubt_owner(self) -> None:
        self._adapter.metrics.doubts.count += 1
        self._hold(_HOLD_OWNER)

    def _settle_doubt(self) -> None:
        """Once nothing is under way: a client without jobs gets a new owner, one with jobs keeps just these.

        The client's requests wait meanwhile: until the core and its store are back, at most as long as the session
        lives, for then a client with jobs is disconnected.
        """
        if self._in_flight or self._parted:
            return
        if not self._conversation.holds_leases:
            self._close_owner()
            self._let_go(_HOLD_OWNER)
        elif self._adapter.session.connected:
            self._in_flight += 1
            known = KeepLeases(ids=self._conversation.leased_ids)
            self._adapter.session.submit_keep_leases(self._owner, known, self._leases_kept)
        else:
            self._adapter.tell_connected(self)

    def _leases_kept(self, result: SessionResult) -> None:
        self._in_flight -= 1
        if not result.HasField("failure"):
            self._let_go(_HOLD_OWNER)
        elif is_in_doubt(result.failure):
            self._adapter.loop.call_later(_SETTLE_AGAIN_S, self._settle_doubt)
        else:
            self._conversation.finish()
            self._act()

    def _close_owner(self) -> None:
        if self._owner != NO_OWNER:
            self._adapter.session.close_owner(self._owner)
            self._owner = NO_OWNER

    def _settle_owner(self) -> None:
        """After the connection: once nothing is under way, the owner is free."""
        if not self._in_flight and not self._conversation.requests and self._owner != NO_OWNER:
            self._adapter.give_owner_back(self._owner)
            self._owner = NO_OWNER

    def _part(self, end: End) -> None:
        if self._parted:
            return
        self._parted = True
        self._stop_timer()
        self._stop_watching()
        if self._conversation.owner_leases:
            self._conversation.requests.clear()
            self._close_owner()
        if end is End.LINGER:
            self._wire.linger()
        else:
            self._wire.close()

    # Holding back.

    def _hold(self, reason: int) -> None:
        if not self._holds:
            self._conversation.hold()
        self._holds |= reason
        if self._reading:
            self._toggle_reading()

    def _let_go(self, reason: int) -> None:
        if not self._holds & reason:
            return
        self._holds &= ~reason
        if self._lost:
            self._submit()
            self._settle_owner()
        elif not self._holds:
            self._conversation.resume()
            self._act()
        elif self._conversation.requests:
            self._act()

    def _toggle_reading(self) -> None:
        if self._parted:
            return
        self._reading = not self._reading
        if self._reading:
            self._wire.resume_reading()
        else:
            self._wire.pause_reading()

    # Time.

    def _restart_timer(self) -> None:
        self._stop_timer()
        conversation, loop = self._conversation, self._adapter.loop
        waits_ms = []
        if conversation.wake_after_ms is not None:
            waits_ms.append(float(conversation.wake_after_ms))
        if conversation.lifetime_ms is not None:
            lived_ms = (loop.time() - self._opened_at) * 1000
            waits_ms.append(max(0.0, conversation.lifetime_ms - lived_ms))
        if waits_ms:
            self._timer = loop.call_later(min(waits_ms) / 1000, self._look_again, self._received, 2)

    def _look_again(self, received: int, turns: int) -> None:
        """A loop that was late reads what has come meanwhile before it decides that nothing came."""
        if turns:
            self._adapter.loop.call_soon(self._look_again, received, turns - 1)
        elif received == self._received and not self._parted:
            self._time_passed()

    def _time_passed(self) -> None:
        conversation = self._conversation
        lived_ms = (self._adapter.loop.time() - self._opened_at) * 1000
        if conversation.lifetime_ms is not None and lived_ms >= conversation.lifetime_ms:
            conversation.expire()
        else:
            conversation.wake()
        self._restart_timer()
        self._act()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Idleness is looked for once in a while, which costs nothing where things go on.

    def _watch_idleness(self, seconds: float) -> None:
        self._idle_timer = self._adapter.loop.call_later(seconds, self._look_for_idleness, 2)

    def _stop_watching(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _look_for_idleness(self, turns: int) -> None:
        """As with silence, a loop that was late reads what has come before it decides."""
        conversation, loop = self._conversation, self._adapter.loop
        if self._parted or conversation.idle_ms is None:
            return
        idle_s = conversation.idle_ms / 1000
        left_s = self._progressed_at + idle_s - loop.time()
        if not conversation.is_idle:
            self._watch_idleness(idle_s)
        elif left_s > 0:
            self._watch_idleness(left_s)
        elif turns:
            loop.call_soon(self._look_for_idleness, turns - 1)
        else:
            conversation.idle()
            self._watch_idleness(idle_s)
            self._act()
