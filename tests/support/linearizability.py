"""Whether what clients saw of a row can have happened one after the other: Wing and Gong's search with Lowe's memory
of configurations that led nowhere, row by row (rows are linearizable together if each is).

A history is linearizable when its operations can be put in an order in which each is next to the row as the one before
left it, and none comes before one that had returned when it was invoked. Operations in doubt may be left out.

Some things keep the search short without changing its answer, as is proved by comparison with brute force in
tests/unit/support/test_linearizability.py:
- writes with known versions come in the order of their versions;
- a version that somebody is still to see is not overwritten;
- an operation that leaves the row as it is, is taken at once where it fits;
- of operations in doubt that do the same, the first is tried;
- where as much was possible before, nothing is looked for again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.support.row_history import (
    Outcome,
    Row,
    RowOperation,
    State,
    Verb,
    after,
    resolved,
    versions_against_time,
)

CONFIGURATIONS_MAX = 500_000
"""Of one row. A search that needs more is given up, which is told apart from both answers."""


class Configuration(NamedTuple):
    """What is left to do, in which state.

    `certain`: what surely happened and might be next; `doubtful`: what is in doubt and might be, as bits; behind both
    all operations from `begin` on.
    """

    certain: tuple[int, ...]
    doubtful: int
    begin: int
    state: State


class UndecidedError(Exception):
    """The search was given up."""


class Search:
    """The search of one row's history, beginning without a row."""

    def __init__(self, operations: Iterable[RowOperation]) -> None:
        self.operations = sorted(resolved(operations), key=lambda operation: operation.invoked_at)
        self._last_seen_by: dict[int, int] = defaultdict(lambda: -1)
        for index, operation in enumerate(self.operations):
            if operation.sees is not None:
                self._last_seen_by[operation.sees] = index
        # The lowest version that is given from each index on.
        self._lowest = [float("inf")]
        for operation in reversed(self.operations):
            self._lowest.append(min(self._lowest[-1], _given(operation)))
        self._lowest.reverse()
        self._looked_at: dict[tuple[tuple[int, ...], int, Row | None, int], list[tuple[float, int]]] = defaultdict(list)
        self.configurations = 0
        self.farthest = self._opened((), 0, 0, State())
        """The configuration with the least left to do that was found."""

    def succeeds(self) -> bool:
        """Whether the history is linearizable. Raises UndecidedError."""
        stack = [iter((self.farthest,))]
        while stack:
            configuration = next(stack[-1], None)
            if configuration is None:
                stack.pop()
            elif self._is_new(configuration):
                if not self._left(configuration):
                    return True
                if self._left(configuration) < self._left(self.farthest):
                    self.farthest = configuration
                stack.append(self._following(configuration))
        return False

    def _is_new(self, configuration: Configuration) -> bool:
        """Whether nothing was looked at from where as much is possible: the same to do in the same state, no later, and
        no less in doubt, of which nothing has to be done."""
        certain, doubtful, begin, state = configuration
        looked_at = self._looked_at[(certain, begin, state.row, state.version)]
        if any(now <= state.now and remaining & doubtful == doubtful for now, remaining in looked_at):
            return False
        looked_at.append((state.now, doubtful))
        self.configurations += 1
        if self.configurations > CONFIGURATIONS_MAX:
            raise UndecidedError
        return True

    def _left(self, configuration: Configuration) -> int:
        """How much has to be done still; what is in doubt counts until it might be next."""
        return len(self.operations) - configuration.begin + len(configuration.certain)

    def _opened(self, certain: tuple[int, ...], doubtful: int, begin: int, state: State) -> Configuration:
        """Let in all that were invoked before any that might be next returned."""
        returned_at = min((self.operations[index].returned_at for index in certain), default=float("inf"))
        while begin < len(self.operations) and self.operations[begin].invoked_at <= returned_at:
            if self.operations[begin].outcome is Outcome.IN_DOUBT:
                doubtful |= 1 << begin
            else:
                certain = (*certain, begin)
                returned_at = min(returned_at, self.operations[begin].returned_at)
            begin += 1
        return Configuration(certain, doubtful, begin, state)

    def _following(self, configuration: Configuration) -> Iterator[Configuration]:
        certain, doubtful, begin, before = configuration
        for index in sorted(certain, key=self._turn):
            operation = self.operations[index]
            rest = tuple(other for other in certain if other != index)
            for state in self._after(configuration, operation, rest):
                yield self._opened(rest, doubtful, begin, state)
                if not operation.alters and state.row == before.row:
                    return
        tried: set[object] = set()
        for index in _bits(doubtful):
            operation = self.operations[index]
            if operation.sameness not in tried:
                tried.add(operation.sameness)
                for state in self._after(configuration, operation, certain):
                    if state.row != before.row:
                        yield Configuration(certain, doubtful & ~(1 << index), begin, state)

    def _turn(self, index: int) -> tuple[bool, int, int]:
        """What changes nothing comes first, then by version."""
        operation = self.operations[index]
        return operation.alters, operation.version or 0, index

    def _after(self, configuration: Configuration, operation: RowOperation, rest: tuple[int, ...]) -> Iterator[State]:
        if self._comes_later(configuration, operation, rest):
            return
        for state in after(configuration.state, operation):
            if state.row == configuration.state.row or not self._is_still_seen(configuration, rest):
                yield state

    def _comes_later(self, configuration: Configuration, operation: RowOperation, rest: tuple[int, ...]) -> bool:
        given = _given(operation)
        if given == float("inf"):
            return False
        lowest = min((_given(self.operations[index]) for index in rest), default=float("inf"))
        return given > min(lowest, self._lowest[configuration.begin])

    def _is_still_seen(self, configuration: Configuration, rest: tuple[int, ...]) -> bool:
        row = configuration.state.row
        if row is None or row.version is None:
            return False
        if self._last_seen_by[row.version] >= configuration.begin:
            return True
        return any(self.operations[index].sees == row.version for index in rest)

    def report(self) -> str:
        """For a failed search: how far it came, and what could not be next."""
        left = [*self.farthest.certain, *range(self.farthest.begin, len(self.operations))]
        lines = [str(self.operations[index]) for index in left[:12]]
        return f"{self.farthest.state} after all but {self._left(self.farthest)}; left: " + "; ".join(lines)


def _given(operation: RowOperation) -> float:
    """The version that a put surely gave."""
    is_known = operation.verb is Verb.PUT and operation.outcome is Outcome.OK
    return operation.version if is_known and operation.version is not None else float("inf")


def _bits(number: int) -> Iterator[int]:
    """The places of its ones, from the lowest."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def violations(operations: Sequence[RowOperation]) -> list[str]:
    """Every row of one partition that cannot have been as it was seen, and every version against the time."""
    wrong = versions_against_time(operations)
    rows: dict[tuple[str, bytes], list[RowOperation]] = defaultdict(list)
    for operation in operations:
        rows[operation.row].append(operation)
    for name, of_row in rows.items():
        search = Search(of_row)
        try:
            if not search.succeeds():
                wrong.append(f"not linearizable: {name}: {search.report()}")
        except UndecidedError:
            wrong.append(f"undecided: {name}: {search.report()}")
    return wrong
