"""Natural batching: whatever arrived while the last pipeline was in flight is the next pipeline, or, when that is much,
leaves at once as one more.

No timers: a lone operation leaves in the tick it came in. Operations are grouped by partition, one function call a
group. Operations of one owner take effect in the order they were submitted: groups are carried out in order, and an
operation never joins a group before the last one its owner has an operation in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import hiredis

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.limits import Limits
from quintet_core.storage.link import Link, LinkLostError, Reply
from quintet_core.storage.packing import CALL_HEAD_ARGUMENTS, call_head

OnAnswer = Callable[[Reply], None]

OPERATIONS_PER_CALL_MAX = 256
# Pipelines on their way at once. A second leaves only with many operations: then Redis works on one while the answers
# of the other are given out. With few it would be waste: each call costs a write to disk.
FLIGHTS_MAX = 2
OVERLAPPING_MIN = 100
BYTES_PER_CALL_MAX = 1 << 20
OPERATIONS_PER_FLUSH_MAX = 2000
BYTES_PER_FLUSH_MAX = 16 << 20
REPLY_HEAD = 4

_log = logging.getLogger(__name__)


class Ordered:
    """Something whose operations take effect in the order submitted: where its last one went."""

    __slots__ = ("flush", "group")

    def __init__(self) -> None:
        self.flush = -1
        self.group = -1


class Operation:
    """One call of a verb, packed: `arguments` many in `packed`. `on_answer` gets its answer or a Refusal, once."""

    __slots__ = ("arguments", "asks", "on_answer", "order", "packed", "partition")

    def __init__(
        self, partition: int, packed: tuple[int, bytes], on_answer: OnAnswer, order: Ordered | None = None
    ) -> None:
        self.partition = partition
        self.arguments, self.packed = packed
        self.on_answer = on_answer
        self.order = order
        self.asks = 0


class Observer(Protocol):
    """Who is told of what every pipeline brings back."""

    def on_batch(self, operations: int, calls: int, seconds: float) -> None:
        """A pipeline came back."""

    def on_clock(self, partition: int, now_ms: int, due_at_ms: int | None) -> None:
        """A partition's clock, and a time at which something in it falls due (None: nothing new)."""

    def on_woken(self, name_key: bytes, ready: int) -> None:
        """A queue that somebody waits for has this many ready jobs; 0: it was deleted."""


@dataclass(slots=True, eq=False)
class _Group:
    partition: int
    operations: list[Operation] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    arguments: int = CALL_HEAD_ARGUMENTS
    packed_bytes: int = 0
    relief: bool = False


class _Flight:
    """A pipeline on its way: how many of its calls are not answered yet, and what happens when that takes too long."""

    __slots__ = ("awaited", "calls", "operations", "sent_at", "watchdog")

    def __init__(self, groups: list[_Group], watchdog: asyncio.TimerHandle) -> None:
        self.awaited = self.calls = len(groups)
        self.operations = sum(len(group.operations) for group in groups)
        self.sent_at = perf_counter()
        self.watchdog = watchdog


# Errors that mean that the call was not carried out, for a reason that may pass.
_PASSING = ("LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MISCONF", "READONLY", "NOREPLICAS", "NOAUTH")
# Each carries out a thousand of what is due.
_ASKS_MAX = 1000


class Pipeline:
    """The one way of operations to Redis. Not connected: everything is refused at once with UNAVAILABLE."""

    def __init__(self, replica: bytes, observer: Observer, reply_timeout_s: float, limits: Limits) -> None:
        self._replica = replica
        self._observer = observer
        self._timeout_s = reply_timeout_s
        self._queued_max = limits.queued_operations_max
        self._queued_bytes_max = limits.queued_bytes_max
        self._link: Link | None = None
        self._queued: deque[Operation] = deque()
        self._queued_bytes = 0
        self._relieved: list[_Group] = []
        self._flights = 0
        self._flushes = 0
        self._scheduled = False
        self._loop = asyncio.get_running_loop()
        self.refusing: Refusal | None = refusal(Reason.UNAVAILABLE)

    @property
    def queued(self) -> int:
        """Operations that have not been sent yet."""
        return len(self._queued)

    def attach(self, link: Link) -> None:
        """Begin to send over a connection that is ready for operations."""
        self._link = link
        self.refusing = None

    def detach(self, why: Refusal) -> None:
        """Refuse everything queued and to come. What was sent is answered by the link as it goes."""
        self._link = None
        self.refusing = why
        queued, self._queued, self._queued_bytes = self._queued, deque(), 0
        relieved, self._relieved = self._relieved, []
        for operation in queued:
            _give(operation, why)
        for group in relieved:
            for operation in group.operations:
                _give(operation, why)

    def submit(self, operation: Operation) -> None:
        """Take an operation. Its answer never comes before this returns."""
        why = self.refusing
        if why is None and (len(self._queued) >= self._queued_max or self._queued_bytes >= self._queued_bytes_max):
            why = refusal(Reason.TOO_MANY_IN_FLIGHT)
        if why is not None:
            self._loop.call_soon(operation.on_answer, why)
            return
        self._queued.append(operation)
        self._queued_bytes += len(operation.packed)
        if not self._scheduled and self._may_send():
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def flush(self) -> None:
        """Send what was submitted, unless it has to wait: for whoever knows that no more comes now."""
        if self._may_send():
            self._flush()

    def _may_send(self) -> bool:
        waiting = len(self._queued)
        return (waiting > 0 or bool(self._relieved)) and (
            not self._flights or (self._flights < FLIGHTS_MAX and waiting >= OVERLAPPING_MIN)
        )

    def _flush(self) -> None:
        self._scheduled = False
        link = self._link
        if link is None or not self._may_send():
            return
        groups = self._relieved + self._gather()
        self._relieved = []
        self._flushes += 1
        self._flights += 1
        flight = _Flight(groups, self._loop.call_later(self._timeout_s, link.abort))
        link.send_all(self._pack(groups), [self._receiver(flight, group) for group in groups])

    def _gather(self) -> list[_Group]:
        queued, flush = self._queued, self._flushes
        groups: list[_Group] = []
        latest: dict[int, int] = {}
        total = 0
        for _ in range(min(len(queued), OPERATIONS_PER_FLUSH_MAX)):
            operation = queued.popleft()
            partition, order, packed = operation.partition, operation.order, operation.packed
            index = latest.get(partition, -1)
            if (
                index < 0
                or (order is not None and order.flush == flush and order.group > index)
                or _full(groups[index])
            ):
                index = latest[partition] = len(groups)
                groups.append(_Group(partition))
            if order is not None:
                order.flush, order.group = flush, index
            group = groups[index]
            group.operations.append(operation)
            group.packed.append(packed)
            group.arguments += operation.arguments
            group.packed_bytes += len(packed)
            total += len(packed)
            if total >= BYTES_PER_FLUSH_MAX:
                break
        self._queued_bytes -= total
        return groups

    def _pack(self, groups: list[_Group]) -> list[bytes]:
        packed: list[bytes] = []
        for group in groups:
            head = call_head("relief_v1" if group.relief else "batch_v1", group.partition, self._replica)
            packed += (b"*%d\r\n" % group.arguments, head, *group.packed)
        return packed

    def _receiver(self, flight: _Flight, group: _Group) -> Callable[[Reply], None]:
        return lambda reply: self._receive(flight, group, reply)

    def _receive(self, flight: _Flight, group: _Group, reply: Reply) -> None:
        flight.awaited -= 1
        if not flight.awaited:
            self._came_back(flight)
        if isinstance(reply, list):
            self._answer(group, reply)
        elif isinstance(reply, hiredis.ReplyError) and str(reply).startswith("OOM") and not group.relief and self._link:
            group.relief = True
            self._relieved.append(group)
        else:
            why = _refusal_for(reply)
            for operation in group.operations:
                _give(operation, why)
        self.flush()

    def _came_back(self, flight: _Flight) -> None:
        self._flights -= 1
        flight.watchdog.cancel()
        self._observer.on_batch(flight.operations, flight.calls, perf_counter() - flight.sent_at)

    def _answer(self, group: _Group, reply: list[Reply]) -> None:
        now, due, woken, deleted = reply[:REPLY_HEAD]
        again: list[Operation] = []
        self._observer.on_clock(group.partition, int(now), int(due) if due else None)
        for operation, answer in zip(group.operations, reply[REPLY_HEAD:], strict=True):
            if answer.__class__ is list and answer:
                head = answer[0]
                if head == b"!":
                    answer = _refused(answer)  # noqa: PLW2901
                elif head == b"a" and len(answer) == 1:
                    if self._may_ask_again(operation):
                        again.append(operation)
                        continue
                    answer = refusal(Reason.UNAVAILABLE, "more is due than can be carried out now")  # noqa: PLW2901
            _give(operation, answer)
        if again:
            # They did nothing yet, and go first in the next batch, in their order.
            self._queued.extendleft(reversed(again))
            self._queued_bytes += sum(len(operation.packed) for operation in again)
        for at in range(0, len(woken), 2):
            self._observer.on_woken(woken[at], woken[at + 1])
        for name_key in deleted:
            self._observer.on_woken(name_key, 0)

    def _may_ask_again(self, operation: Operation) -> bool:
        """More was due than one call may settle."""
        operation.asks += 1
        return operation.asks <= _ASKS_MAX and self._link is not None


def _give(operation: Operation, answer: Reply) -> None:
    try:
        operation.on_answer(answer)
    except Exception:
        # Ours, and one caller's alone: the others get their answers.
        _log.exception("answer_not_taken")


def _full(group: _Group) -> bool:
    return len(group.operations) >= OPERATIONS_PER_CALL_MAX or group.packed_bytes >= BYTES_PER_CALL_MAX


def _refused(answer: list[Reply]) -> Refusal:
    reason = Reason(answer[1])
    # The library handles ranks as bytes alone: its numbers are not exact enough.
    show = _shown_rank if reason is Reason.RANK_OUT_OF_RANGE else _shown
    metadata = {_shown(name): show(value) for name, value in zip(answer[2::2], answer[3::2], strict=True)}
    return refusal(reason, "", **metadata)


def _shown_rank(value: bytes) -> str:
    return str(int.from_bytes(value, "big") - 2**63)


def _shown(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _refusal_for(reply: Reply) -> Refusal:
    if isinstance(reply, LinkLostError):
        return refusal(Reason.UNAVAILABLE)
    text = str(reply)
    if text.startswith("OOM"):
        return refusal(Reason.MEMORY_FULL)
    if text.startswith("DAMAGED"):
        return refusal(Reason.DAMAGED, what=text)
    if text.startswith(_PASSING) or "Function not found" in text:
        return refusal(Reason.UNAVAILABLE, f"Redis refuses: {text.partition(' ')[0]}")
    return refusal(Reason.INTERNAL, what=text)
