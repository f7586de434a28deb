"""What the Spark operator's manifests configure is what this Spark knows."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

BASE = Path(__file__).resolve().parents[2] / "spark-operator" / "manifests" / "base"
METRICS_PREFIX = "spark.metrics.conf."


def configured() -> dict[str, str]:
    """All of sparkConf, of every application."""
    conf: dict[str, str] = {}
    for name in ("archive", "rollup", "report"):
        spec: dict[str, Any] = yaml.safe_load((BASE / f"{name}.yaml").read_text())["spec"]
        conf |= spec.get("template", spec)["sparkConf"]
    return conf


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    java = spark.sparkContext._jvm
    # Settings of SQL are known once it has run.
    spark.range(1).count()
    return java


def is_known(jvm: Any, name: str) -> bool:
    return bool(jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(name) is not None)


@pytest.mark.parametrize("name", [name for name in configured() if not name.startswith(METRICS_PREFIX)])
def test_every_setting_is_one_of_sparks(jvm: Any, name: str) -> None:
    assert is_known(jvm, name)


def test_a_setting_that_is_not_is_found(jvm: Any) -> None:
    assert not is_known(jvm, "spark.sql.streaming.metricEnabled")


def test_the_metrics_sink_is_a_class_of_sparks(jvm: Any) -> None:
    conf = configured()
    sink = f"{METRICS_PREFIX}*.sink.prometheusServlet"
    assert jvm.java.lang.Class.forName(conf[f"{sink}.class"]).getSimpleName() == "PrometheusServlet"
    assert {name for name in conf if name.startswith(METRICS_PREFIX)} == {f"{sink}.class", f"{sink}.path"}
