"""How long and on what to measure, what was measured, and how one scenario is."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from benchmarks.measurement import Measurement, Samples
from benchmarks.processes import CpuMeter
from benchmarks.stack import Stack


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and on what to measure."""

    directory: Path
    warm_up_seconds: float
    seconds: float
    loops: tuple[int, ...]
    queues: int
    wide_queues: int
    pending_jobs: tuple[int, ...]
    rounds: int = 1
    only: tuple[str, ...] = ()

    def wants(self, scenario: str) -> bool:
        """Whether the scenario was asked for."""
        return not self.only or any(word.lower() in scenario.lower() for word in self.only)


@dataclass(slots=True)
class Results:
    """What was measured so far; `announce` is told what is about to be."""

    announce: Callable[[str], None]
    measurements: list[Measurement] = field(default_factory=list)
    pending_job_bytes: dict[int, float] = field(default_factory=dict)
    """Redis memory for each pending job beyond its payload, by the number of jobs."""
    failures: list[str] = field(default_factory=list)
    """What ended a scenario before its time."""

    def medians(self) -> list[Measurement]:
        """Of the rounds of each scenario the one in the middle by throughput, in the order measured."""
        rounds: dict[tuple[str, int, int], list[Measurement]] = {}
        for m in self.measurements:
            rounds.setdefault((m.scenario, m.loops, m.queues), []).append(m)
        return [sorted(found, key=lambda m: m.operations_per_s)[len(found) // 2] for found in rounds.values()]

    def find(self, scenario: str, loops: int, queues: int = 1) -> Measurement | None:
        """The median round of a scenario."""
        return next((m for m in self.medians() if (m.scenario, m.loops, m.queues) == (scenario, loops, queues)), None)


class AnyLoad(Protocol):
    """What makes the requests of a scenario."""

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run; what happens in the first `warm_up_seconds` is not counted."""
        ...


class Bench:
    """What the scenarios of one run share: the plan, the stack that is measured, and where the results go."""

    def __init__(self, plan: Plan, stack: Stack | None, results: Results) -> None:
        self.plan = plan
        self.stack = stack
        self.results = results
        self.names: Iterator[str] = (f"bench-{number}" for number in count())
        """Of queues and tables, no two alike."""
        self._begun = ""

    def begins(self, scenario: str, loops: int, queues: int = 1) -> bool:
        """Whether the scenario is to be measured; if so, it is announced, and Redis is quiet."""
        if not self.plan.wants(scenario):
            return False
        self._begun = f"{scenario}, {loops} loops, {queues} queues"
        self.results.announce(self._begun)
        if self.stack:
            self.stack.wait_until_quiet()
        return True

    def take_down(self, scenario: str, loops: int, load: AnyLoad, meter: CpuMeter, queues: int = 1) -> None:
        """Run the load, and keep what it measured."""
        samples = load.run(self.plan.warm_up_seconds, self.plan.seconds, meter)
        self.results.measurements.append(Measurement.of(scenario, loops, queues, samples, meter.others_seconds))

    def fail(self, error: Exception) -> None:
        """The scenario that began last ended with an error; the others are measured all the same."""
        self.results.failures.append(f"{self._begun}: {error!r}")
        self.results.announce("".join(traceback.format_exception(error)))


_Method = TypeVar("_Method", bound=Callable[..., None])


def scenario(method: _Method) -> _Method:
    """Makes a method of an object with a `_bench` a scenario: its errors are kept, and end nothing else."""

    @wraps(method)
    def attempt(scenarios: Any, *arguments: Any, **named: Any) -> None:
        try:
            method(scenarios, *arguments, **named)
        except Exception as error:
            scenarios._bench.fail(error)

    return cast(_Method, attempt)
