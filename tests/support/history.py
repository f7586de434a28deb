"""What clients saw, and what can never be seen of a queue that keeps its promises.

Clients record each operation before they send it and complete it when its answer comes; an operation that is never
completed is in doubt: it may have happened or not. `violations` then judges the whole history, in which everything was
drained at the end: a drain takes and ends every job that is left.

Instants are seconds of one monotonic clock, so that all clients of a history run on one machine. What is uncertain is
judged in the queue's favour: a client holds a job from the moment it was told of it to the last moment that it surely
held it, and a job is surely there only when its put was acknowledged and nobody may have taken it.
"""

from __future__ import annotations

import enum
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

CLOCK_SLACK_S = 0.05
"""By how much a lease by duration may end early in the eyes of a client: two clocks, and whole milliseconds."""


class Verb(enum.Enum):
    """What a client asked for, whatever its protocol calls it."""

    PUT = "put"
    TAKE = "take"
    END = "end"
    """delete, ACK, acknowledge: the job is over."""
    RETURN = "return"
    """abort, release: the job goes back."""


class Outcome(enum.Enum):
    """What the client knows."""

    OK = "ok"
    EMPTY = "empty"
    """Nothing there: no-job, NO, NONE."""
    OVER = "over"
    """Of an end whose protocol does not tell more: the job is over, by this or by an earlier one."""
    REFUSED = "refused"
    """Surely not done, for a reason of the client's own."""
    IN_DOUBT = "in doubt"


@dataclass(slots=True, eq=False)
class Operation:
    """One request of one client. `queues` and `key` as far as the verb has them."""

    client: str
    verb: Verb
    queues: tuple[str, ...] = ()
    key: str = ""
    """What the payload of a put says, unique in the history; of a take: what was found."""
    rank: int | None = 0
    """None, of a take: its protocol does not tell."""
    job_id: int = 0
    lease_s: float | None = None
    """Of a take: how long the lease lasts; None: as long as the connection."""
    fenced: bool = False
    """Of an END or RETURN: it is done only under the lease that the client took."""
    invoked_at: float = field(default_factory=time.monotonic)
    returned_at: float = math.inf
    outcome: Outcome = Outcome.IN_DOUBT
    held_until: float = math.inf
    """Of a take: when its client last surely held the job; see `let_go`."""

    def done(self, outcome: Outcome, *, job_id: int = 0, key: str = "", rank: int | None = 0, queue: str = "") -> None:
        """The answer has come; for a put with the job's id, for a take with all that it tells of the job."""
        self.returned_at = time.monotonic()
        self.outcome = outcome
        self.job_id = job_id or self.job_id
        self.key = key or self.key
        if self.verb is Verb.TAKE:
            self.rank = rank
            self.queues = (queue,) if queue else self.queues

    def let_go(self, at: float | None = None) -> None:
        """Of a take: from now, or since `at`, the client does not count on the job any more. The first time counts."""
        self.held_until = min(self.held_until, time.monotonic() if at is None else at)

    @property
    def queue(self) -> str:
        """The one queue it is about."""
        return self.queues[0]

    @property
    def took(self) -> bool:
        """Whether it surely took a job."""
        return self.verb is Verb.TAKE and self.outcome is Outcome.OK

    @property
    def surely_held_until(self) -> float:
        """Of a take: the end of what the client could count on."""
        if self.lease_s is None:
            return self.held_until
        return min(self.held_until, self.invoked_at + self.lease_s - CLOCK_SLACK_S)

    def __str__(self) -> str:
        return (
            f"{self.client} {self.verb.value} job {self.job_id} {self.key!r} of {','.join(self.queues)}:"
            f" {self.outcome.value} [{self.invoked_at:.3f}, {self.returned_at:.3f}]"
        )


class History:
    """Operations in the order of invocation. Safe for threads."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def put(self, client: str, queue: str, key: str, rank: int = 0) -> Operation:
        """A put is about to be sent."""
        return self._add(Operation(client, Verb.PUT, (queue,), key, rank))

    def take(self, client: str, queues: Sequence[str], lease_s: float | None = None) -> Operation:
        """A take is about to be sent."""
        return self._add(Operation(client, Verb.TAKE, tuple(queues), lease_s=lease_s))

    def end(self, client: str, job_id: int, *, fenced: bool = False, key: str = "") -> Operation:
        """The end of a job is about to be sent; of one without an id, the key that was found."""
        return self._add(Operation(client, Verb.END, key=key, job_id=job_id, fenced=fenced))

    def give_back(self, client: str, job_id: int, *, fenced: bool = False, key: str = "") -> Operation:
        """The return of a job is about to be sent, likewise."""
        return self._add(Operation(client, Verb.RETURN, key=key, job_id=job_id, fenced=fenced))

    def _add(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def violations(self, *, to_tail: bool = False) -> list[str]:
        """Every broken promise, one line each; see the function."""
        return violations(self.operations, to_tail=to_tail)

    def summary(self) -> str:
        """How many operations ended in which way."""
        counts: dict[str, int] = defaultdict(int)
        for operation in self.operations:
            counts[f"{operation.verb.value} {operation.outcome.value}"] += 1
        return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


_ENDED = (Outcome.OK, Outcome.OVER)
"""After which a job is over."""
_MAY_END = (*_ENDED, Outcome.IN_DOUBT)


class _Jobs:
    """A history by job."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.puts: dict[str, Operation] = {}
        self.takes: dict[int, list[Operation]] = defaultdict(list)
        self.ends: dict[int, list[Operation]] = defaultdict(list)
        self.returns: dict[int, list[Operation]] = defaultdict(list)
        self.blind_takes: list[Operation] = []
        """Takes in doubt: each may have taken a job that nobody was told of."""
        operations = list(operations)
        _give_ids(operations)
        for operation in operations:
            self._sort_in(operation)
        for take in self.all_takes():
            if take.rank is None:
                take.rank = self.puts[take.key].rank if take.key in self.puts else 0

    def _sort_in(self, operation: Operation) -> None:
        match operation.verb:
            case Verb.PUT:
                assert operation.key not in self.puts, f"the test puts {operation.key!r} twice"
                self.puts[operation.key] = operation
            case Verb.TAKE if operation.took:
                self.takes[operation.job_id].append(operation)
            case Verb.TAKE if operation.outcome is Outcome.IN_DOUBT:
                self.blind_takes.append(operation)
            case Verb.END:
                self.ends[operation.job_id].append(operation)
            case Verb.RETURN:
                self.returns[operation.job_id].append(operation)
            case _:
                pass

    def all_takes(self) -> Iterator[Operation]:
        for takes in self.takes.values():
            yield from takes

    def ended(self, job_id: int, *outcomes: Outcome) -> list[Operation]:
        return [end for end in self.ends[job_id] if end.outcome in outcomes]


def _give_ids(operations: Sequence[Operation]) -> None:
    """To what was told without an id: that which others were told of the same key, else one of our own, below 0."""
    ids = {operation.key: operation.job_id for operation in operations if operation.key and operation.job_id}
    for operation in operations:
        if operation.key and not operation.job_id and operation.outcome is not Outcome.REFUSED:
            operation.job_id = ids.setdefault(operation.key, -1 - len(ids))


def violations(operations: Sequence[Operation], *, to_tail: bool = False) -> list[str]:
    """Every broken promise in a history that ends with a drain, one line each; none for a queue that keeps them.

    With `to_tail` jobs that come back may go behind those of their rank: the order among these is not judged then.
    """
    jobs = _Jobs(operations)
    judges = (
        _lost,
        _never_put,
        _put_twice,
        _repeated_ids,
        _handed_out_twice,
        _ended_twice,
        _came_back,
        _denied,
        partial(_out_of_order, place=_rank if to_tail else _place),
    )
    return [violation for judge in judges for violation in judge(jobs)]


def _lost(jobs: _Jobs) -> Iterator[str]:
    """An acknowledged job is ended by somebody, at the latest by the drain."""
    for put in jobs.puts.values():
        if put.outcome is Outcome.OK and not jobs.ended(put.job_id, *_MAY_END):
            yield f"lost: {put}"


def _never_put(jobs: _Jobs) -> Iterator[str]:
    """What is taken was put: the same key, id, queue and rank; a refused put never appears."""
    for take in jobs.all_takes():
        put = jobs.puts.get(take.key)
        if put is None:
            yield f"never put: {take}"
        elif put.outcome is Outcome.REFUSED:
            yield f"refused, but there: {put}; {take}"
        elif put.outcome is Outcome.OK and put.job_id != take.job_id:
            yield f"taken under another id: {put}; {take}"
        elif (put.queue, put.rank) != (take.queue, take.rank):
            yield f"changed: put into {put.queue} at {put.rank}, taken from {take.queue} at {take.rank}: {take}"


def _put_twice(jobs: _Jobs) -> Iterator[str]:
    """A put makes one job, one in doubt none or one."""
    ids: dict[str, set[int]] = defaultdict(set)
    for take in jobs.all_takes():
        ids[take.key].add(take.job_id)
    for key, found in ids.items():
        if len(found) > 1:
            yield f"put once, there {len(found)} times: {key!r} as {sorted(found)}"


def _repeated_ids(jobs: _Jobs) -> Iterator[str]:
    """An id is one job's for ever."""
    keys: dict[int, set[str]] = defaultdict(set)
    for put in jobs.puts.values():
        if put.outcome is Outcome.OK:
            keys[put.job_id].add(put.key)
    for take in jobs.all_takes():
        keys[take.job_id].add(take.key)
    for job_id, found in keys.items():
        if len(found) > 1:
            yield f"one id for several jobs: {job_id} for {sorted(found)}"


def _handed_out_twice(jobs: _Jobs) -> Iterator[str]:
    """While a client surely holds a job nobody else is told of it."""
    for takes in jobs.takes.values():
        in_order = sorted(takes, key=lambda take: take.returned_at)
        for at, first in enumerate(in_order):
            for second in in_order[at + 1 :]:
                if second.returned_at < first.surely_held_until:
                    yield f"handed out twice: {first}, held until {first.surely_held_until:.3f}; {second}"


def _ended_twice(jobs: _Jobs) -> Iterator[str]:
    """A job ends once."""
    for ends in jobs.ends.values():
        successes = [end for end in ends if end.outcome is Outcome.OK]
        if len(successes) > 1:
            yield "ended twice: " + "; ".join(map(str, successes))


def _came_back(jobs: _Jobs) -> Iterator[str]:
    """A job that was ended is never handed out again."""
    for job_id, takes in jobs.takes.items():
        over_at = min((end.returned_at for end in jobs.ended(job_id, *_ENDED)), default=math.inf)
        for take in takes:
            if take.invoked_at > over_at:
                yield f"came back after its end at {over_at:.3f}: {take}"


def _denied(jobs: _Jobs) -> Iterator[str]:
    """Who surely holds a job may end it or give it back, unless somebody else may have ended it."""
    for job_id, takes in jobs.takes.items():
        for deed in (*jobs.ends[job_id], *jobs.returns[job_id]):
            if deed.outcome in _MAY_END:
                continue
            if _holds_throughout(takes, deed) and not _may_be_over(jobs, job_id, deed):
                yield f"denied to its holder: {deed}"


def _holds_throughout(takes: Sequence[Operation], deed: Operation) -> bool:
    """Whether the client held the job when it was told no: of its own holdings the last one before counts.

    The deed itself ended what the client counts on, so only the end of a lease by duration matters.
    """
    own = [take for take in takes if take.client == deed.client and take.returned_at <= deed.invoked_at]
    if not own:
        return False
    take = max(own, key=lambda take: take.returned_at)
    if take.held_until < deed.invoked_at - CLOCK_SLACK_S:
        return False
    return take.lease_s is None or deed.returned_at < take.invoked_at + take.lease_s - CLOCK_SLACK_S


def _may_be_over(jobs: _Jobs, job_id: int, deed: Operation) -> bool:
    """Whether another deed may have ended the lease or the job before this one was carried out."""
    others = (*jobs.ended(job_id, *_MAY_END), *jobs.returns[job_id])
    return any(other is not deed and other.invoked_at < deed.returned_at for other in others)


def _out_of_order(jobs: _Jobs, place: Callable[[Operation], tuple[int, ...]]) -> Iterator[str]:
    """Within a queue the best job comes first: the lowest rank, then the lowest id.

    Judged for jobs that were surely there, and up to the first take in doubt of their queue.
    """
    blind_from: dict[str, float] = defaultdict(lambda: math.inf)
    for blind in jobs.blind_takes:
        for queue in blind.queues:
            blind_from[queue] = min(blind_from[queue], blind.invoked_at)
    gone_from = {
        put.job_id: min(
            (deed.invoked_at for deed in (*jobs.takes[put.job_id], *jobs.ends[put.job_id])), default=math.inf
        )
        for put in jobs.puts.values()
    }
    by_queue: dict[str, list[Operation]] = defaultdict(list)
    for put in jobs.puts.values():
        if put.outcome is Outcome.OK:
            by_queue[put.queue].append(put)
    for take in jobs.all_takes():
        if take.returned_at >= blind_from[take.queue]:
            continue
        for put in by_queue[take.queue]:
            was_there = put.returned_at < take.invoked_at and gone_from[put.job_id] > take.returned_at
            if was_there and place(put) < place(take):
                yield f"overtaken: {put}; {take}"


def drained_out_of_order(taken: Sequence[Operation], *, to_tail: bool = False) -> list[str]:
    """For the takes of one queue by one client alone, in order: ranks, then, unless `to_tail`, ids rise."""
    return [
        f"drained out of order: {first}; {second}"
        for first, second in pairwise(taken)
        if (_rank(first) > _rank(second) if to_tail else _place(first) >= _place(second))
    ]


def _rank(operation: Operation) -> tuple[int]:
    assert operation.rank is not None
    return (operation.rank,)


def _place(operation: Operation) -> tuple[int, int]:
    return *_rank(operation), operation.job_id
