"""What one scenario measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of `values` (any order); 0.0 when there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(slots=True)
class Samples:
    """What a load wrote down inside its measured window; latencies in seconds."""

    seconds: float = 0.0
    operations: int = 0
    lifecycles: int = 0
    operation_latencies: list[float] = field(default_factory=list)
    lifecycle_latencies: list[float] = field(default_factory=list)
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the report. An operation is one request and its answer; a lifecycle is three (put, take, delete)."""

    scenario: str
    loops: int
    queues: int
    seconds: float
    lifecycles_per_s: float
    operations_per_s: float
    lifecycle_p50_us: float
    lifecycle_p99_us: float
    operation_p50_us: float
    operation_p99_us: float
    cpu_us_per_operation: Mapping[str, float]
    others_cpus: float
    """Processors that the rest of the machine kept busy meanwhile."""

    @classmethod
    def of(cls, scenario: str, loops: int, queues: int, samples: Samples, others_seconds: float) -> Measurement:
        operations = max(samples.operations, 1)
        return cls(
            scenario=scenario,
            loops=loops,
            queues=queues,
            seconds=samples.seconds,
            lifecycles_per_s=samples.lifecycles / samples.seconds,
            operations_per_s=samples.operations / samples.seconds,
            lifecycle_p50_us=percentile(samples.lifecycle_latencies, 50) * 1e6,
            lifecycle_p99_us=percentile(samples.lifecycle_latencies, 99) * 1e6,
            operation_p50_us=percentile(samples.operation_latencies, 50) * 1e6,
            operation_p99_us=percentile(samples.operation_latencies, 99) * 1e6,
            cpu_us_per_operation={name: used * 1e6 / operations for name, used in samples.cpu_seconds.items()},
            others_cpus=others_seconds / samples.seconds,
        )
