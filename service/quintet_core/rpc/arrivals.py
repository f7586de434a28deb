"""How long operations of a session take, at the cost of one reading of the clock for many of them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

Count = Callable[[str, int, float], None]
"""Told of operations answered: their verb, how many, and the seconds from their arrival to their answer."""


class Arrival(dict[str, int]):
    """A request that came: when, and how many of its operations were answered since they were counted last, by verb."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        super().__init__()
        self.at = perf_counter()


class Arrivals:
    """What was answered, until the answers are about to be written."""

    __slots__ = ("_answered", "_count")

    def __init__(self, count: Count) -> None:
        self._count = count
        self._answered: list[Arrival] = []

    def answered(self, arrival: Arrival, verb: str) -> None:
        """An operation was answered."""
        if not arrival:
            self._answered.append(arrival)
        arrival[verb] = arrival.get(verb, 0) + 1

    def count(self) -> None:
        """The answers are about to be written."""
        if not self._answered:
            return
        answered, self._answered = self._answered, []
        now = perf_counter()
        for arrival in answered:
            seconds = now - arrival.at
            for verb, times in arrival.items():
                self._count(verb, times, seconds)
            arrival.clear()
