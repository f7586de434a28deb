"""A real Prometheus, with the configuration that is committed, finds in a running Quintet what the pages promise."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from math import prod
from pathlib import Path

import pytest
from quintet_adapters.protocols.etzel import Etzel
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_adapters.protocols.taskflux import TaskFlux
from quintet_adapters.protocols.text_queue import TextQueue
from quintet_adapters.protocols.zmq_kv import ZmqKv
from quintet_cli.up.settings import UpSettings

from tests.monitoring.conftest import Watched
from tests.support.dashboards import FILES, Panel, panels, substituted, variables
from tests.support.every_protocol import NAMESPACE, QUEUE
from tests.support.monitoring import ROOT, alerts
from tests.support.prometheus import DEFAULT_PORTS, documented, targets_of
from tests.support.up import ask

pytestmark = pytest.mark.timeout(600)

DOCUMENTED = documented(ROOT / "docs/metrics.md")
NAMES = [name for name, _, _ in DOCUMENTED]
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
COMMANDS = {
    "text-queue": TextQueue.commands,
    "job-centre": JobCentre.commands,
    "taskflux": TaskFlux.commands,
    "zmq-kv": ZmqKv.commands,
    "etzel": Etzel.commands,
}
TARGETS = {"instance", "job", "installation", "adapter"}
LIST = r"[a-z_]+(, [a-z_]+)+"


def test_targets_are_where_up_listens_by_default() -> None:
    first = UpSettings.model_fields["metrics_port"].default
    assert targets_of("quintet-core") == [f"127.0.0.1:{first}"]
    assert targets_of("quintet-adapter") == [f"127.0.0.1:{first + place}" for place in range(1, 6)]


def test_every_part_is_scraped(watched: Watched) -> None:
    found = {(each["metric"]["job"], each["metric"].get("adapter", "")) for each in watched.prometheus.query("up == 1")}
    ours = {("quintet-core", ""), *(("quintet-adapter", name) for name in DEFAULT_PORTS if name != "core")}
    assert found == ours | {("quintet-spark-driver", ""), ("quintet-spark-executors", "")}


@pytest.mark.parametrize(("name", "kind", "labels"), DOCUMENTED, ids=NAMES)
def test_every_documented_series_is_there(watched: Watched, name: str, kind: str, labels: dict[str, str]) -> None:
    prometheus = watched.prometheus
    for suffix in SUFFIXES.get(kind, ("",)):
        prometheus.wait_series(name + suffix)
        found = prometheus.series(name + suffix)
        for each in found:
            # A label that is empty is none: there is a queue whose name is.
            told = set(each) - TARGETS - {"__name__", "le"}
            assert told == set(labels) or told | {"queue"} == set(labels)
        for label, values in labels.items():
            if re.fullmatch(LIST, values):
                assert {each[label] for each in found} == set(values.split(", ")), label
    (type_told,) = {each["type"] for each in prometheus.ask("targets/metadata", metric=name)}
    assert type_told == kind


@pytest.mark.parametrize(("name", "kind", "labels"), DOCUMENTED, ids=NAMES)
def test_values_of_labels_are_there_in_every_combination(
    watched: Watched, name: str, kind: str, labels: dict[str, str]
) -> None:
    closed = [label for label, values in labels.items() if re.fullmatch(LIST, values)]
    combined = prod(len(labels[label].split(", ")) for label in closed)
    by = ", ".join((*TARGETS, *(set(labels) - set(closed))))
    suffix = "_count" if kind == "histogram" else ""
    counted = watched.prometheus.query(f"count by ({by}) ({name}{suffix})")
    assert {each["value"][1] for each in counted} == {str(combined)}


@pytest.mark.parametrize("adapter", COMMANDS)
def test_commands_are_those_of_the_protocol(watched: Watched, adapter: str) -> None:
    of_adapter = f'quintet_adapter_requests_total{{adapter="{adapter}"}}'
    outcomes = ("ok", "empty", "refused", "unavailable", "failed")
    found = {(each["command"], each["outcome"]) for each in watched.prometheus.series(of_adapter)}
    assert found == set(product(COMMANDS[adapter], outcomes))


@pytest.mark.parametrize("adapter", COMMANDS)
def test_what_clients_did_is_counted(watched: Watched, adapter: str) -> None:
    done = f'sum(quintet_adapter_requests_total{{adapter="{adapter}", outcome="ok"}}) > 2'
    watched.prometheus.wait_series(done)


def test_nothing_of_ours_is_undocumented(watched: Watched) -> None:
    names: list[str] = watched.prometheus.ask("label/__name__/values")
    expected = {name + suffix for name, kind, _ in DOCUMENTED for suffix in SUFFIXES.get(kind, ("",))}
    assert {name for name in names if name.startswith("quintet_")} == expected


@pytest.mark.parametrize("part", DEFAULT_PORTS)
def test_promtool_finds_nothing_to_complain_of(watched: Watched, part: str) -> None:
    head, _, body = ask(watched.up.address(part, "metrics"), b"GET /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    ended = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True)
    complaints = [line for line in ended.stderr.decode().splitlines() if line.startswith("quintet_")]
    assert complaints == []


def test_rules_are_loaded_and_evaluated(watched: Watched) -> None:
    def judged() -> bool:
        groups = watched.prometheus.ask("rules")["groups"]
        return all(rule["health"] != "unknown" for group in groups for rule in group["rules"])

    watched.prometheus.wait("every rule evaluated", judged)
    found = [rule for group in watched.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in found if rule["type"] == "alerting"} == set(alerts())
    assert [rule["name"] for rule in found if rule["health"] != "ok" or rule.get("lastError")] == []


def test_a_system_that_is_well_raises_no_alarm(watched: Watched) -> None:
    assert watched.prometheus.query('ALERTS{severity="critical"}') == []
    assert watched.prometheus.query('ALERTS{alertstate="firing"}') == []


@pytest.mark.parametrize("name", alerts())
def test_what_alerts_look_at_is_there(watched: Watched, name: str) -> None:
    """An alert on a series that does not exist would never come."""
    series = r"[a-z_]+:quintet_[a-z_]+:[a-z0-9_]+|\b(?:quintet|process)_[a-z_]+"
    for each in sorted(set(re.findall(series, alerts()[name]["expr"]))):
        watched.prometheus.wait_series(each)


SHOWN = {"installation": ".*", "namespace": NAMESPACE, "queue": QUEUE, "table": ".*", "adapter": ".*"}
"""What a person has chosen who looks at dashboards."""


@pytest.mark.parametrize("panel", list(panels()), ids=str)
def test_panels_show_something(watched: Watched, panel: Panel) -> None:
    """Every query is understood. Some show trouble only: of each panel, one at least shows something."""
    prometheus = watched.prometheus
    queries = [substituted(query, SHOWN) for query in panel.queries]
    prometheus.wait(str(panel), lambda: any(prometheus.query(query) for query in queries))
    quiet = [query for query in queries if not prometheus.query(query) and not query.rstrip().endswith("> 0")]
    assert quiet == []
    for query in queries:
        prometheus.query_range(query)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_variables_have_values_to_choose_from(watched: Watched, path: Path) -> None:
    for name, variable in variables(path).items():
        if variable["type"] == "query":
            (found,) = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"])
            selector, label = substituted(found[0], SHOWN), found[1]
            values = watched.prometheus.ask(f"label/{label}/values", **{"match[]": selector.removesuffix("{}")})
            assert values, name
