"""What clients saw of the rows of tables: recorded operations, and what each of them says about its row.

Clients record each operation before they send it and complete it when its answer comes; one that is never completed is
in doubt: it happened once, at any time after its invocation, or never. `violations` judges a whole history: rows by
`tests.support.linearizability`, versions across rows here.

Instants are epoch milliseconds taken from one monotonic clock, so that they compare with each other exactly and with
the deadlines that replies tell to within SLACK_MS. All clients of a history, and Redis, run on one machine.
"""

from __future__ import annotations

import enum
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

SLACK_MS = 10.0
"""By how much Redis's clock in whole milliseconds and ours may differ."""
_EPOCH_S = time.time() - time.monotonic()

RowName = tuple[str, bytes]
"""Table and key."""


def now_ms() -> float:
    """Epoch milliseconds; never steps."""
    return (_EPOCH_S + time.monotonic()) * 1000


class Verb(enum.Enum):
    """What a client asked for."""

    GET = "get"
    PUT = "put"
    DELETE = "delete"


class Ttl(enum.IntEnum):
    """What a put does to the deadline, as quintet.v1.TtlChange numbers it."""

    KEEP = 0
    SET = 1
    CLEAR = 2


class Outcome(enum.Enum):
    """What the client knows."""

    OK = "ok"
    NOT_FOUND = "not found"
    MISMATCH = "mismatch"
    """Of a version; nothing was changed."""
    REFUSED = "refused"
    """Surely not done, and says nothing about the row."""
    IN_DOUBT = "in doubt"


@dataclass(slots=True, eq=False)
class RowOperation:
    """One request about one row. `value` is what a put wrote, unique in the history, or what was found."""

    client: str
    verb: Verb
    row: RowName
    value: bytes = b""
    ttl: Ttl = Ttl.KEEP
    ttl_ms: int = 0
    expected_version: int | None = None
    """0: no row."""
    invoked_at: float = field(default_factory=now_ms)
    returned_at: float = math.inf
    outcome: Outcome = Outcome.IN_DOUBT
    version: int | None = None
    """What a put gave, or what was found. None: in doubt."""
    expires_at_ms: int | None = None
    """0: lives until deleted. None: in doubt."""
    created: bool | None = None
    """Of a put: whether there was no row. None: nobody told."""

    def done(
        self,
        outcome: Outcome = Outcome.OK,
        *,
        value: bytes | None = None,
        version: int | None = None,
        expires_at_ms: int | None = None,
        created: bool | None = None,
    ) -> None:
        """The answer has come."""
        self.returned_at = now_ms()
        self.outcome = outcome
        self.value = self.value if value is None else value
        self.version, self.expires_at_ms, self.created = version, expires_at_ms, created

    @property
    def sees(self) -> int | None:
        """The version that the row surely had when it happened."""
        if self.outcome is not Outcome.OK:
            return None
        return self.expected_version or None if self.verb is Verb.PUT else self.version

    @property
    def alters(self) -> bool:
        """Whether it may have changed the row."""
        return self.verb is not Verb.GET and self.outcome in (Outcome.OK, Outcome.IN_DOUBT)

    @property
    def sameness(self) -> tuple[object, ...]:
        """Equal for operations in doubt that do the same as far as anybody can tell."""
        return self.verb, self.expected_version, self.ttl

    def __str__(self) -> str:
        expected = "" if self.expected_version is None else f" if {self.expected_version}"
        lasting = f" {self.ttl.name} {self.ttl_ms}" if self.verb is Verb.PUT else ""
        return (
            f"{self.client} {self.verb.value} {self.row} {self.value!r}{lasting}{expected}: {self.outcome.value}"
            f" version {self.version}, expires {self.expires_at_ms}, created {self.created}"
            f" [{self.invoked_at:.1f}, {self.returned_at:.1f}]"
        )


class Row(NamedTuple):
    """A row as it may be. `value` and `version` None: of a put in doubt that nobody saw."""

    value: bytes | None
    version: int | None
    deadline: tuple[float, float] | None
    """No earlier and no later than; None: lives until deleted."""


SOME_DAY = (0.0, math.inf)
"""A deadline that nobody saw: of a put in doubt, which may have been sooner or later, it is taken for any. In the
history's favour, but so that all such puts are alike."""


class State(NamedTuple):
    """A row, the last version known to be written, and a time before which nothing happens any more."""

    row: Row | None = None
    version: int = 0
    now: float = 0.0


def after(state: State, operation: RowOperation) -> Iterator[State]:
    """What may be after `operation` took effect, as it was seen, next; nothing when it cannot have been next."""
    begun = max(state.now, operation.invoked_at)
    if begun > operation.returned_at:
        return
    row = state.row
    if row is None or row.deadline is None:
        yield from _effect(state._replace(now=begun), operation)
        return
    earliest, latest = row.deadline
    if begun - SLACK_MS < latest:
        yield from _effect(state._replace(now=begun), operation)
    if operation.returned_at >= earliest - SLACK_MS:
        yield from _effect(state._replace(row=None, now=max(begun, earliest - SLACK_MS)), operation)


def _effect(state: State, operation: RowOperation) -> Iterator[State]:
    row, expected = state.row, operation.expected_version
    as_expected = expected is None or (row is None if expected == 0 else row is not None and row.version == expected)
    match operation.outcome:
        case Outcome.MISMATCH:
            if not as_expected:
                yield state
        case Outcome.NOT_FOUND:
            if row is None:
                yield state
        case _ if not as_expected:
            pass
        case Outcome.IN_DOUBT | Outcome.OK if operation.verb is Verb.PUT:
            yield from _put(state, operation)
        case Outcome.IN_DOUBT:
            if row is not None:
                yield state._replace(row=None)
        case Outcome.OK:
            if row is not None and _is_seen(row, operation):
                yield state if operation.verb is Verb.GET else state._replace(row=None)


def _is_seen(row: Row, operation: RowOperation) -> bool:
    same = (row.value, row.version) == (operation.value, operation.version)
    return same and _may_expire_at(row.deadline, operation.expires_at_ms)


def _may_expire_at(deadline: tuple[float, float] | None, expires_at_ms: int | None) -> bool:
    if deadline is None or not expires_at_ms:
        return deadline is None and expires_at_ms == 0
    return deadline[0] - SLACK_MS <= expires_at_ms <= deadline[1] + SLACK_MS


def _put(state: State, put: RowOperation) -> Iterator[State]:
    """`put` with a version is known to have happened."""
    row, told = state.row, put.expires_at_ms
    if put.created is not None and put.created is not (row is None):
        return
    if put.version is None:
        kept = row.deadline if row is not None else None
        deadlines = {Ttl.KEEP: kept, Ttl.SET: SOME_DAY, Ttl.CLEAR: None}
        yield state._replace(row=Row(None, None, deadlines[put.ttl]))
        return
    if put.version <= state.version:
        return
    if put.ttl is Ttl.SET:
        # The deadline tells when it was.
        legal = told is not None and state.now <= told - put.ttl_ms + SLACK_MS
    else:
        kept = row.deadline if row is not None and put.ttl is Ttl.KEEP else None
        legal = _may_expire_at(kept, told)
    if legal:
        yield State(Row(put.value, put.version, (told, told) if told else None), put.version, state.now)


def resolved(operations: Iterable[RowOperation]) -> list[RowOperation]:
    """The operations of one row with what others tell about those in doubt; without those that say nothing.

    A put in doubt whose value was seen happened, and before the first one that saw it returned. A put that set a
    deadline happened when the deadline says.
    """
    saying = [
        operation
        for operation in operations
        if operation.outcome is not Outcome.REFUSED
        and not (operation.outcome is Outcome.IN_DOUBT and operation.verb is Verb.GET)
    ]
    seen: dict[bytes, RowOperation] = {}
    for operation in saying:
        if operation.verb is not Verb.PUT and operation.outcome is Outcome.OK:
            first = seen.setdefault(operation.value, operation)
            if operation.returned_at < first.returned_at:
                seen[operation.value] = operation
    return [_timed(_told(operation, seen.get(operation.value))) for operation in saying]


def _told(operation: RowOperation, seen: RowOperation | None) -> RowOperation:
    if operation.verb is not Verb.PUT or operation.outcome is not Outcome.IN_DOUBT or seen is None:
        return operation
    return replace(
        operation,
        outcome=Outcome.OK,
        returned_at=seen.returned_at,
        version=seen.version,
        expires_at_ms=seen.expires_at_ms,
    )


def _timed(operation: RowOperation) -> RowOperation:
    if operation.verb is not Verb.PUT or operation.ttl is not Ttl.SET or not operation.expires_at_ms:
        return operation
    at = operation.expires_at_ms - operation.ttl_ms
    return replace(
        operation,
        invoked_at=max(operation.invoked_at, at - SLACK_MS),
        returned_at=min(operation.returned_at, at + SLACK_MS),
    )


class RowHistory:
    """Operations in the order of invocation. Safe for threads."""

    def __init__(self) -> None:
        self.operations: list[RowOperation] = []

    def get(self, client: str, row: RowName) -> RowOperation:
        """A get is about to be sent."""
        return self._add(RowOperation(client, Verb.GET, row))

    def put(
        self,
        client: str,
        row: RowName,
        value: bytes,
        ttl: Ttl = Ttl.KEEP,
        ttl_ms: int = 0,
        expected_version: int | None = None,
    ) -> RowOperation:
        """A put is about to be sent."""
        return self._add(RowOperation(client, Verb.PUT, row, value, ttl, ttl_ms, expected_version))

    def delete(self, client: str, row: RowName, expected_version: int | None = None) -> RowOperation:
        """A delete is about to be sent."""
        return self._add(RowOperation(client, Verb.DELETE, row, expected_version=expected_version))

    def _add(self, operation: RowOperation) -> RowOperation:
        self.operations.append(operation)
        return operation

    def rows(self) -> dict[RowName, list[RowOperation]]:
        """The operations of each row."""
        found: dict[RowName, list[RowOperation]] = defaultdict(list)
        for operation in self.operations:
            found[operation.row].append(operation)
        return found

    def summary(self) -> str:
        """How many operations ended in which way."""
        counts = Counter(f"{operation.verb.value} {operation.outcome.value}" for operation in self.operations)
        return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def versions_against_time(operations: Sequence[RowOperation]) -> list[str]:
    """Versions of one partition that are not unique, or fall while time passes; one line each.

    A put that was answered before another was sent has the lower version, whatever their rows.
    """
    puts = [put for put in operations if put.verb is Verb.PUT and put.outcome is Outcome.OK]
    wrong: list[str] = []
    latest: RowOperation | None = None  # Of those that returned so far, the one with the highest version.
    returned = iter(sorted(puts, key=lambda put: put.returned_at))
    ahead = next(returned, None)
    for put in sorted(puts, key=lambda put: put.invoked_at):
        while ahead is not None and ahead.returned_at < put.invoked_at:
            if latest is None or (ahead.version or 0) > (latest.version or 0):
                latest = ahead
            ahead = next(returned, None)
        if latest is not None and (latest.version or 0) >= (put.version or 0):
            wrong.append(f"version fell: {latest}; {put}")
    counts = Counter(put.version for put in puts)
    return wrong + [f"version given twice: {put}" for put in puts if counts[put.version] > 1]
