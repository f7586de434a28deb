"""Metrics declared once: name, kind, help and closed label sets in one class per process.

    class CoreMetrics(MetricSet):
        operations = Counting("quintet_core_operations_total", "Operations answered.", verb=VERBS, outcome=OUTCOMES)

    metrics = CoreMetrics(registry)
    metrics.operations.at("enqueue", "ok").inc()

All children exist from the start (a scrape shows zeros, never gaps) and `at` is one dictionary look-up; a label
value outside the declared set is a programmer's error and raises KeyError.
"""

from collections.abc import Sequence
from itertools import product
from typing import Generic, Self, TypeVar, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, of use to nobody here

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""For latencies of one operation: half a millisecond to ten seconds."""

T = TypeVar("T", Counter, Gauge, Histogram)


class Family(Generic[T]):
    """One metric of one process with a child for each combination of its label values."""

    def __init__(self, metric: T, label_sets: Sequence[Sequence[str]]) -> None:
        self._children: dict[tuple[str, ...], T] = {
            values: metric.labels(*values) if values else metric for values in product(*label_sets)
        }

    def at(self, *label_values: str) -> T:
        """The child with these label values, in the order declared; keep it where calls are hot."""
        return self._children[label_values]


class Declaration(Generic[T]):
    """What a metric is; turns into a `Family` on an instance of its `MetricSet`."""

    kind = ""

    def __init__(self, name: str, help: str, /, **labels: Sequence[str]) -> None:
        self.name = name
        self.help = help
        self.labels = {label: tuple(values) for label, values in labels.items()}

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: "MetricSet", owner: type) -> Family[T]: ...
    def __get__(self, instance: "MetricSet | None", owner: type) -> Self | Family[T]:
        if instance is None:
            return self
        family: Family[T] = instance.__dict__[self._attribute]
        return family

    def create(self, registry: CollectorRegistry) -> Family[T]:
        """Register this metric in a process' registry."""
        return Family(self._metric(registry), tuple(self.labels.values()))

    def _metric(self, registry: CollectorRegistry) -> T:
        raise NotImplementedError


class Counting(Declaration[Counter]):
    """Something that only grows; its name ends in `_total`."""

    kind = "counter"

    def _metric(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.help, tuple(self.labels), registry=registry)


class Gauging(Declaration[Gauge]):
    """Something that goes up and down; `at(...).set_function` reads it at scrape time."""

    kind = "gauge"

    def _metric(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.help, tuple(self.labels), registry=registry)


class Observing(Declaration[Histogram]):
    """A distribution; `buckets` are upper bounds in the unit the name ends with."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        /,
        buckets: Sequence[float] = SECONDS_BUCKETS,
        **labels: Sequence[str],
    ) -> None:
        super().__init__(name, help, **labels)
        self.buckets = tuple(buckets)

    def _metric(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.help, tuple(self.labels), registry=registry, buckets=self.buckets)


AnyDeclaration = Counting | Gauging | Observing


class MetricSet:
    """Base of a process' metrics: an instance registers everything its class declares."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        for attribute, declaration in declarations(type(self)).items():
            self.__dict__[attribute] = declaration.create(registry)


def declarations(metric_set: type[MetricSet]) -> dict[str, AnyDeclaration]:
    """Everything a class and its bases declare, by attribute, bases first."""
    found: dict[str, AnyDeclaration] = {}
    for owner in reversed(metric_set.__mro__):
        found.update({key: value for key, value in vars(owner).items() if isinstance(value, AnyDeclaration)})
    return found


def metrics_table(metric_set: type[MetricSet]) -> str:
    """A markdown table of every metric of a class: name, kind, labels with their values, meaning."""
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for declaration in declarations(metric_set).values():
        labels = "; ".join(f"`{label}`: {', '.join(values)}" for label, values in declaration.labels.items())
        cells = (f"`{declaration.name}`", declaration.kind, labels, declaration.help)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
