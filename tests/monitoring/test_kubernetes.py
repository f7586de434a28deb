"""The configuration for Kubernetes picks the right pods and gives them the right labels: a real Prometheus relabels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring import MONITORING, read_yaml
from tests.support.prometheus import Prometheus, running

Labels = dict[str, str]


def pod(name: str, port: str, number: int, *, phase: str = "Running", **labels: str) -> dict[str, Any]:
    """A pod's port as discovery tells of it. Nobody listens there."""
    told = {
        "__meta_kubernetes_namespace": "production",
        "__meta_kubernetes_pod_name": name,
        "__meta_kubernetes_pod_phase": phase,
        "__meta_kubernetes_pod_container_port_name": port,
        "__meta_kubernetes_pod_container_port_number": str(number),
        **{f"__meta_kubernetes_pod_label_{label}": value for label, value in labels.items()},
    }
    return {"targets": [f"127.0.0.1:{number}"], "labels": told}


def part(component: str, port: str = "metrics", number: int = 1, **more: Any) -> dict[str, Any]:
    """A pod of ours."""
    labels = {
        "app_kubernetes_io_name": "quintet",
        "app_kubernetes_io_instance": "blue",
        "app_kubernetes_io_component": component,
    }
    return pod(f"{component}-0", port, number, **labels, **more)


def driver(application: str, number: int = 4040, **more: Any) -> dict[str, Any]:
    """A driver, as the Spark operator labels it."""
    labels = {"spark_role": "driver", "sparkoperator_k8s_io_app_name": application}
    return pod(f"{application}-driver", "spark-ui", number, **labels, **more)


PODS = [
    part("core"),
    part("core", port="grpc", number=2),
    part("core", phase="Failed"),
    part("etzel"),
    part("unheard-of"),
    driver("quintet-archive", app_kubernetes_io_instance="blue"),
    driver("quintet-archive", number=7078),
    driver("quintet-report", phase="Succeeded"),
    driver("somebody-elses"),
    pod("redis-0", "metrics", 9121, app_kubernetes_io_name="redis"),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that was told of these pods by hand: Debian's knows no Kubernetes."""
    folder: Path = tmp_path_factory.mktemp("kubernetes")
    (folder / "rules").symlink_to(MONITORING / "rules")
    document = read_yaml(MONITORING / "prometheus-kubernetes.yml")
    for job in document["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["static_configs"] = PODS
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    with running(folder / "prometheus.yml") as prometheus:
        yield prometheus


def test_pods_are_picked_and_labelled(prometheus: Prometheus) -> None:
    prometheus.wait("targets", lambda: prometheus.ask("targets")["activeTargets"])
    found: list[Labels] = [target["labels"] for target in prometheus.ask("targets")["activeTargets"]]
    ours = {"installation": "blue", "kubernetes_namespace": "production"}
    spark = {"application": "quintet-archive", "instance": "quintet-archive-driver", **ours}
    expected = [
        {"job": "quintet-adapter", "adapter": "etzel", "instance": "etzel-0", **ours},
        {"job": "quintet-core", "instance": "core-0", **ours},
        {"job": "quintet-spark-driver", **spark},
        {"job": "quintet-spark-executors", **spark},
    ]
    assert sorted(found, key=lambda labels: labels["job"]) == expected


def test_drivers_are_asked_where_they_answer(prometheus: Prometheus) -> None:
    prometheus.wait("targets", lambda: prometheus.ask("targets")["activeTargets"])
    asked = {target["labels"]["job"]: target["scrapeUrl"] for target in prometheus.ask("targets")["activeTargets"]}
    assert asked["quintet-core"].endswith(":1/metrics")
    assert asked["quintet-spark-driver"].endswith(":4040/metrics/prometheus/")
    assert asked["quintet-spark-executors"].endswith(":4040/metrics/executors/prometheus")
