"""Whether what clients saw of a row can have happened one after the other: Wing and Gong's search with Lowe's memory
of configurations that led nowhere, row by row (rows are linearizable together if each is).

A history is linearizable when its operations can be put in an order in which each is next to the row as the one before
left it, and none comes before one that had returned when it was invoked. Operations in doubt may be left out.

Four things keep the search short without changing its answer, all proved by comparison with brute force in
tests/unit/support/test_linearizability.py:
- writes with known versions come in the order of their versions;
- a version that somebody is still to see is not overwritten;
- an operation that leaves the row as it is, is taken at once where it fits;
- of operations in doubt that do the same, the first is tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.row_history import (
    Outcome,
    RowOperation,
    State,
    Ttl,
    Verb,
    after,
    resolved,
    versions_against_time,
)

CONFIGURATIONS_MAX = 500_000
"""Of one row. A search that needs more is given up, which is told apart from both answers."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is left to do, in which state. `window`: those that might be next; behind it all from `begin` on."""

    window: tuple[int, ...]
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
        self.farthest = self._opened((), 0, State())
        """The configuration with the least left to do that was found."""

    def succeeds(self) -> bool:
        """Whether the history is linearizable. Raises UndecidedError."""
        start = self.farthest
        seen, stack = {start}, [start]
        while stack:
            configuration = stack.pop()
            if self._is_over(configuration):
                return True
            if self._left(configuration) < self._left(self.farthest):
                self.farthest = configuration
            # The first of them is to be looked at first.
            following = [following for following in self._following(configuration) if following not in seen]
            seen.update(following)
            stack.extend(reversed(following))
            if len(seen) > CONFIGURATIONS_MAX:
                raise UndecidedError
        return False

    def _is_over(self, configuration: Configuration) -> bool:
        return configuration.begin == len(self.operations) and all(
            self.operations[index].outcome is Outcome.IN_DOUBT for index in configuration.window
        )

    def _left(self, configuration: Configuration) -> int:
        definite = (index for index in configuration.window if self.operations[index].outcome is not Outcome.IN_DOUBT)
        return len(self.operations) - configuration.begin + sum(1 for _ in definite)

    def _opened(self, window: tuple[int, ...], begin: int, state: State) -> Configuration:
        """Let in all that were invoked before any of the window's returned."""
        returned_at = min((self.operations[index].returned_at for index in window), default=float("inf"))
        grown = list(window)
        while begin < len(self.operations) and self.operations[begin].invoked_at <= returned_at:
            grown.append(begin)
            returned_at = min(returned_at, self.operations[begin].returned_at)
            begin += 1
        return Configuration(tuple(grown), begin, state)

    def _following(self, configuration: Configuration) -> list[Configuration]:
        found: list[Configuration] = []
        tried: set[object] = set()
        for index in self._in_order_of_trial(configuration.window):
            operation = self.operations[index]
            if operation.outcome is Outcome.IN_DOUBT:
                if operation.sameness in tried:
                    continue
                tried.add(operation.sameness)
            rest = tuple(other for other in configuration.window if other != index)
            for state in self._after(configuration, operation, rest):
                following = self._opened(rest, configuration.begin, state)
                if self._costs_nothing(configuration, operation, state):
                    return [following]
                found.append(following)
        return found

    def _costs_nothing(self, configuration: Configuration, operation: RowOperation, state: State) -> bool:
        """Whether whatever is possible in `configuration` is so behind `operation`, which led to `state`.

        All others in the window return after it was invoked, so that time passes for none of them; but a deadline that
        a put in doubt sets from then on is a later one.
        """
        if operation.alters or not _same_row(state, configuration.state):
            return False
        return state.now == configuration.state.now or not any(
            self.operations[index].outcome is Outcome.IN_DOUBT and self.operations[index].ttl is Ttl.SET
            for index in configuration.window
        )

    def _in_order_of_trial(self, window: Sequence[int]) -> list[int]:
        """Those that change nothing, then what surely happened by version, then what is in doubt."""

        def turn(index: int) -> tuple[int, float, int]:
            operation = self.operations[index]
            return operation.alters + (operation.outcome is Outcome.IN_DOUBT), operation.version or 0, index

        return sorted(window, key=turn)

    def _after(self, configuration: Configuration, operation: RowOperation, rest: tuple[int, ...]) -> Iterator[State]:
        if operation.outcome is Outcome.OK and self._comes_later(configuration, operation, rest):
            return
        for state in after(configuration.state, operation):
            if operation.outcome is Outcome.IN_DOUBT and state.row == configuration.state.row:
                continue  # It would not matter.
            if not _same_row(state, configuration.state) and self._is_still_seen(configuration, rest):
                continue
            yield state

    def _comes_later(self, configuration: Configuration, operation: RowOperation, rest: tuple[int, ...]) -> bool:
        if operation.verb is not Verb.PUT:
            return False
        lowest = min((_given(self.operations[index]) for index in rest), default=float("inf"))
        return _given(operation) > min(lowest, self._lowest[configuration.begin])

    def _is_still_seen(self, configuration: Configuration, rest: tuple[int, ...]) -> bool:
        row = configuration.state.row
        if row is None or row.version is None:
            return False
        if self._last_seen_by[row.version] >= configuration.begin:
            return True
        return any(self.operations[index].sees == row.version for index in rest)

    def report(self) -> str:
        """For a failed search: how far it came, and what could not be next."""
        left = sorted((*self.farthest.window, *range(self.farthest.begin, len(self.operations))))
        lines = [str(self.operations[index]) for index in left[:12]]
        return f"{self.farthest.state} after all but {self._left(self.farthest)}; left: " + "; ".join(lines)


def _given(operation: RowOperation) -> float:
    """The version that a put surely gave."""
    is_known = operation.verb is Verb.PUT and operation.outcome is Outcome.OK
    return operation.version if is_known and operation.version is not None else float("inf")


def _same_row(one: State, other: State) -> bool:
    """Whether the same row, or none, is there; a deadline may be better known."""
    if one.row is None or other.row is None:
        return one.row is other.row
    return one.row[:2] == other.row[:2] and one.row.version is not None


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
