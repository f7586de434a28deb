"""One client's conversation in some protocol: bytes and results in; requests and bytes out.

A conversation knows no socket, no clock and no core. Its driver (`quintet_adapters.connection`) calls an input method,
then looks at the outputs, which are plain attributes. A peer's fault becomes output and never raises; what raises is
our fault.

Inputs                                  Outputs
    receive(data)                           requests        to be submitted, in this order
    receive_end()                           cancels         waits to be ended
    receive_result(request, result)         output          bytes for the client
    wake()   (wake_after_ms passed)         end             set when the conversation is over
    expire() (lifetime_ms passed)           wake_after_ms   when to call `wake`
    idle()   (idle_ms without progress)     progress        grows with each whole packet and answer
    hold() / resume()                       wants_input     whether to go on reading
                                            retries         to be submitted again when the core can be reached
    lose_client()                           leased_ids      jobs that the client works on under owner leases
    finish()
"""

from __future__ import annotations

import abc
import enum
from collections import deque
from collections.abc import Callable, Collection
from typing import ClassVar

from quintet.v1.session_service_pb2 import SessionResult

from quintet_adapters.messages import CommandCounts, Request


class End(enum.Enum):
    """How to part from the client, once `output` is written."""

    CLOSE = enum.auto()
    LINGER = enum.auto()
    """Shut down sending, read and drop what still comes for a bounded time, then close."""


class Conversation(abc.ABC):
    """Base of every protocol; see the module's table."""

    owner_leases: ClassVar[bool]
    """Leases are bound to the connection: its owner is closed with it."""
    commands: ClassVar[tuple[str, ...]]
    """The protocol's words, for metrics."""

    def __init__(self, counts: CommandCounts) -> None:
        self.counts = counts
        self.requests: deque[Request] = deque()
        self.cancels: deque[Request] = deque()
        self.retries: deque[Request] = deque()
        self.output: list[bytes] = []
        self.end: End | None = None
        self.wake_after_ms: int | None = None
        """Milliseconds without a byte from the client after which to call `wake`; None: never."""
        self.lifetime_ms: int | None = None
        """Milliseconds from the start after which to call `expire`; None: never."""
        self.idle_ms: int | None = None
        """Milliseconds without progress after which to call `idle`, while `is_idle`; None: never. Never changed."""
        self.progress = 0
        """How many whole packets and answers there were; kept where `idle_ms` is set."""
        self.wants_input = True

    @property
    def leased_ids(self) -> Collection[int]:
        """Jobs that the client works on under leases of its owner."""
        return ()

    @property
    def holds_leases(self) -> bool:
        """Whether there are any."""
        return bool(self.leased_ids)

    @property
    def is_idle(self) -> bool:
        """Whether it is the client's turn: nothing that it asked for is under way."""
        return True

    @abc.abstractmethod
    def receive(self, data: bytes) -> None:
        """Some bytes came; how they are split carries no meaning."""

    @abc.abstractmethod
    def receive_end(self) -> None:
        """The client sends nothing more; it may still read."""

    @abc.abstractmethod
    def receive_result(self, request: Request, result: SessionResult) -> None:
        """The result of one of `requests`; each gets exactly one, in any order."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Take nothing new, answer what is under way, then end. Idempotent."""

    def lose_client(self) -> None:  # noqa: B027 - most protocols have nothing to undo
        """The client is known to be gone: nothing written from now on arrives."""

    def wake(self) -> None:  # noqa: B027
        """`wake_after_ms` passed without a byte."""

    def expire(self) -> None:  # noqa: B027
        """`lifetime_ms` passed."""

    def idle(self) -> None:  # noqa: B027
        """`idle_ms` passed without progress."""

    def hold(self) -> None:  # noqa: B027
        """Take no further requests from what was received, until `resume`."""

    def resume(self) -> None:  # noqa: B027
        """Go on after `hold`."""


Converse = Callable[[], Conversation]
"""Makes the conversation of a new connection."""
