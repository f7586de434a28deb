"""Metrics are named as Prometheus recommends: one prefix, base units last, counters end in `_total`."""

import re
from collections.abc import Iterator

import pytest
from quintet_adapters.metrics import AdapterMetricSet, ZmqKvMetricSet
from quintet_core.metrics import CoreMetrics
from quintet_kit.metrics import AnyDeclaration, declarations

RESERVED = ("_count", "_sum", "_bucket", "_created", "_info")
SCALED = {"ms", "us", "ns", "milliseconds", "minutes", "hours", "kb", "mb", "kib", "mib", "percent", "pct"}


def declared() -> Iterator[AnyDeclaration]:
    for metric_set in (CoreMetrics, AdapterMetricSet, ZmqKvMetricSet):
        yield from declarations(metric_set).values()


@pytest.mark.parametrize("metric", list(declared()), ids=lambda metric: metric.name)
class TestEveryMetric:
    """One declaration."""

    def test_has_a_name_of_ours(self, metric: AnyDeclaration) -> None:
        assert re.fullmatch(r"quintet(_[a-z]+)+", metric.name)

    def test_ends_in_total_if_it_only_grows_and_then_alone(self, metric: AnyDeclaration) -> None:
        assert metric.name.endswith("_total") == (metric.kind == "counter")

    def test_does_not_end_as_series_of_other_kinds_do(self, metric: AnyDeclaration) -> None:
        assert not metric.name.endswith(RESERVED)

    def test_is_in_base_units(self, metric: AnyDeclaration) -> None:
        assert not SCALED & set(metric.name.split("_"))

    def test_leaves_to_labels_what_labels_say(self, metric: AnyDeclaration) -> None:
        values = {value for values in metric.labels.values() for value in values}
        assert not values & set(metric.name.removesuffix("_total").split("_")[2:])

    def test_is_explained_in_a_sentence(self, metric: AnyDeclaration) -> None:
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert metric.help.endswith((".", ")"))
