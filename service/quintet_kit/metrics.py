"""Metrics declared once: name, kind, help and closed label sets in one class per process.

    class CoreMetrics(MetricSet):
        operations = Counting("quintet_core_operations_total", "Operations answered.", verb=VERBS, outcome=OUTCOMES)

    metrics = CoreMetrics(registry)
    metrics.operations.at("enqueue", "ok").inc()

All children exist from the start (a scrape shows zeros, never gaps) and `at` is one dictionary look-up; a label
value outside the declared set is a programmer's error and raises KeyError.

What is counted for every request is `Tallying` or `Distributing` instead: plain numbers that prometheus-client reads
when it is asked. Its own counters and histograms cost about 1.6 microseconds for each request between them; these a
fifth.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from typing import Generic, Self, TypeVar, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, of use to nobody here

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""For latencies of one operation: half a millisecond to ten seconds."""


def process_registry() -> CollectorRegistry:
    """A registry that already has what every process shows: `process_cpu_seconds_total`,
    `process_resident_memory_bytes`, `process_open_fds`, `process_start_time_seconds` and the like."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Tally:
    """Something that only grows; add to `count`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Distribution:
    """How often values fell below each of `bounds`, which ascend."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts one in, or some that are alike."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets and the sum, as prometheus_client wants them."""
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


T = TypeVar("T")
P = TypeVar("P", Counter, Gauge, Histogram)
Q = TypeVar("Q")


class Family(Generic[T]):
    """One metric of one process with a child for each combination of its label values."""

    def __init__(self, children: Mapping[tuple[str, ...], T]) -> None:
        self._children = children

    def at(self, *label_values: str) -> T:
        """The child with these label values, in the order declared; keep it where calls are hot."""
        return self._children[label_values]

    def items(self) -> Iterable[tuple[tuple[str, ...], T]]:
        """Every child with its label values."""
        return self._children.items()


class Declaration(ABC, Generic[T]):
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

    @abstractmethod
    def create(self, registry: CollectorRegistry) -> Family[T]:
        """Register this metric in a process' registry."""


class Client(Declaration[P]):
    """A metric that prometheus_client keeps."""

    def create(self, registry: CollectorRegistry) -> Family[P]:
        """Register this metric in a process' registry."""
        metric = self._metric(registry)
        return Family(
            {values: metric.labels(*values) if values else metric for values in product(*self.labels.values())}
        )

    @abstractmethod
    def _metric(self, registry: CollectorRegistry) -> P: ...


class Counting(Client[Counter]):
    """Something that only grows; its name ends in `_total`."""

    kind = "counter"

    def _metric(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.help, tuple(self.labels), registry=registry)


class Gauging(Client[Gauge]):
    """Something that goes up and down; `at(...).set_function` reads it at scrape time."""

    kind = "gauge"

    def _metric(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.help, tuple(self.labels), registry=registry)


class Observing(Client[Histogram]):
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


class Kept(Declaration[Q]):
    """A metric that is kept as plain numbers, and read when it is asked for."""

    def create(self, registry: CollectorRegistry, **labels: Sequence[str]) -> Family[Q]:
        """Register this metric in a process' registry; `labels` take the place of what was declared."""
        names = {**self.labels, **labels}
        children = {values: self._child() for values in product(*names.values())}
        registry.register(_Reader(self, tuple(names), children))
        return Family(children)

    @abstractmethod
    def _child(self) -> Q: ...

    @abstractmethod
    def read(self, labels: tuple[str, ...], children: Mapping[tuple[str, ...], Q]) -> Metric:
        """All children as prometheus_client exposes them."""


class _Reader(Generic[Q]):
    def __init__(self, declared: Kept[Q], labels: tuple[str, ...], children: Mapping[tuple[str, ...], Q]) -> None:
        self._declared = declared
        self._labels = labels
        self._children = children

    def collect(self) -> Iterator[Metric]:
        yield self._declared.read(self._labels, self._children)


class Tallying(Kept[Tally]):
    """As Counting, for what is counted with every request."""

    kind = "counter"

    def _child(self) -> Tally:
        return Tally()

    def read(self, labels: tuple[str, ...], children: Mapping[tuple[str, ...], Tally]) -> Metric:
        """All children as prometheus_client exposes them."""
        family = CounterMetricFamily(self.name, self.help, labels=labels)
        for values, tally in children.items():
            family.add_metric(values, tally.count)
        return family


class Distributing(Kept[Distribution]):
    """As Observing, for what is observed with every request."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, /, buckets: Sequence[float] = SECONDS_BUCKETS, **labels: Sequence[str]
    ) -> None:
        super().__init__(name, help, **labels)
        self.buckets = tuple(buckets)

    def _child(self) -> Distribution:
        return Distribution(self.buckets)

    def read(self, labels: tuple[str, ...], children: Mapping[tuple[str, ...], Distribution]) -> Metric:
        """All children as prometheus_client exposes them."""
        family = HistogramMetricFamily(self.name, self.help, labels=labels)
        for values, distribution in children.items():
            buckets, total = distribution.read()
            family.add_metric(values, buckets, total)
        return family


Row = tuple[tuple[str, ...], float]
"""Label values, in the order declared, and what is measured there."""


class Rows:
    """What a `Listing` shows."""

    def __init__(self) -> None:
        self.read: Callable[[], Iterable[Row]] = tuple
        """Asked at each scrape. No label values twice, and not more of them than a scrape should bring."""


class Listing(Declaration[Rows]):
    """A metric whose label values are not known beforehand, such as names that users give: read at scrape time, from
    `at().read`. `labels` say in words what their values are."""

    def __init__(self, name: str, help: str, kind: str, /, **labels: str) -> None:
        super().__init__(name, help, **{label: (words,) for label, words in labels.items()})
        self.kind = kind

    def create(self, registry: CollectorRegistry) -> Family[Rows]:
        """Register this metric in a process' registry."""
        rows = Rows()
        registry.register(_Lister(self, rows))
        return Family({(): rows})

    def read(self, rows: Iterable[Row]) -> Metric:
        """All rows as prometheus_client exposes them."""
        family = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        metric = family(self.name, self.help, labels=tuple(self.labels))
        for values, measured in rows:
            metric.add_metric(values, measured)
        return metric


class _Lister:
    def __init__(self, declared: Listing, rows: Rows) -> None:
        self._declared = declared
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        yield self._declared.read(self._rows.read())


AnyDeclaration = Counting | Gauging | Observing | Tallying | Distributing | Listing


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


def series(metric_set: MetricSet) -> dict[str, float]:
    """What a process' metrics are now, as /metrics names each: those that are not 0, and no listings. Of a distribution
    only the buckets that hold something of their own."""
    found: dict[str, float] = {}
    for attribute, declaration in declarations(type(metric_set)).items():
        if isinstance(declaration, Listing):
            continue
        labels = tuple(declaration.labels)
        for values, child in metric_set.__dict__[attribute].items():
            named = dict(zip(labels, values, strict=False))
            for suffix, more, value in _samples(child):
                if value:
                    found[_named(declaration.name.removesuffix(suffix) + suffix, named | more)] = value
    return found


def _samples(child: object) -> Iterator[tuple[str, dict[str, str], float]]:
    """Suffix, labels of its own, value."""
    if isinstance(child, Tally):
        yield "", {}, child.count
    elif isinstance(child, Distribution):
        buckets, total = child.read()
        below = 0.0
        for bound, count in buckets:
            if count > below:
                yield "_bucket", {"le": bound}, count
            below = count
        yield "_count", {}, below
        yield "_sum", {}, total
    elif isinstance(child, Counter | Gauge | Histogram):
        for metric in child.collect():
            for sample in metric.samples:
                yield sample.name.removeprefix(metric.name), dict(sample.labels), sample.value


def _named(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name


def metrics_table(metric_set: type[MetricSet]) -> str:
    """A markdown table of every metric of a class: name, kind, labels with their values, meaning."""
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for declaration in declarations(metric_set).values():
        labels = "; ".join(f"`{label}`: {', '.join(values)}" for label, values in declaration.labels.items())
        cells = (f"`{declaration.name}`", declaration.kind, labels, declaration.help)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
