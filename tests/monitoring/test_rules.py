"""Configurations and rules are as Prometheus wants them; each alert comes when it should, and only then."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring import ALERT_FILE, MONITORING, ROOT, RUNBOOKS, alerts, read_yaml, rules

CASES = sorted((ROOT / "tests/monitoring/rules").glob("*.yml"))
KUBERNETES = MONITORING / "prometheus-kubernetes.yml"
ALERTS = alerts()
RECORDING = MONITORING / "rules/recording.yml"
RECORDED = [rule["record"] for rule in rules() if "record" in rule]

Case = dict[str, Any]


def promtool(*arguments: object) -> None:
    ended = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def cases_by_alert(path: Path) -> dict[str, list[Case]]:
    """A file's cases; each looks at the one alert that its name begins with."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in read_yaml(path)["tests"]:
        found[case["name"].partition(":")[0]].append(case)
    return found


def alone(folder: Path, alert: str, cases: Sequence[Case]) -> Path:
    """A file of cases of one alert, with its rule as it is committed and what that one stands on.

    All the other rules, evaluated along every 15 seconds of hours, would be nearly all of the work.
    """
    groups = [
        {**group, "rules": [rule for rule in group["rules"] if rule["alert"] == alert]}
        for group in read_yaml(ALERT_FILE)["groups"]
    ]
    rule_file = folder / f"{alert}.rules.yml"
    rule_file.write_text(yaml.safe_dump({"groups": [group for group in groups if group["rules"]]}))
    below = [str(RECORDING)] if any(name in ALERTS[alert]["expr"] for name in RECORDED) else []
    document = {"rule_files": [*below, str(rule_file)], "evaluation_interval": "15s", "tests": list(cases)}
    path = folder / f"{alert}.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", MONITORING / "prometheus.yml")


def test_the_configuration_for_kubernetes_is_valid(tmp_path: Path) -> None:
    """Debian builds Prometheus without its discovery by Kubernetes: something else stands in for that one line."""
    (tmp_path / "rules").symlink_to(MONITORING / "rules")
    text = KUBERNETES.read_text().replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []")
    assert "kubernetes_sd_configs" not in text
    (tmp_path / "prometheus.yml").write_text(text)
    promtool("check", "config", tmp_path / "prometheus.yml")


@pytest.mark.parametrize("path", sorted((MONITORING / "rules").glob("*.yml")), ids=lambda path: path.name)
def test_rules_are_valid(path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", path)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_come_when_they_should_and_only_then(tmp_path: Path, path: Path) -> None:
    promtool("test", "rules", *(alone(tmp_path, alert, cases) for alert, cases in cases_by_alert(path).items()))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_are_of_the_rules_as_they_are_committed(path: Path) -> None:
    """So that `promtool test rules`, told a file of them, does what these tests do."""
    document = read_yaml(path)
    assert {(path.parent / each).resolve() for each in document["rule_files"]} == {ALERT_FILE, RECORDING}
    assert document["evaluation_interval"] == "15s"
    for alert, cases in cases_by_alert(path).items():
        assert {look["expr"] for case in cases for look in case["promql_expr_test"]} == {
            f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        }


def test_each_alert_is_seen_to_come_and_to_stay_away() -> None:
    seen: dict[str, set[bool]] = defaultdict(set)
    for path in CASES:
        for look in (look for case in read_yaml(path)["tests"] for look in case["promql_expr_test"]):
            (name,) = re.findall(r'alertname="(\w+)"', look["expr"])
            seen[name].add(bool(look["exp_samples"]))
    assert seen == {name: {True, False} for name in ALERTS}


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
class TestEveryAlert:
    """One rule."""

    def test_says_how_bad_it_is(self, alert: dict[str, Any]) -> None:
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}

    def test_says_what_is_wrong_in_a_line_and_then_in_full(self, alert: dict[str, Any]) -> None:
        assert "\n" not in alert["annotations"]["summary"]
        assert len(alert["annotations"]["description"]) > len("It is broken.")

    def test_has_its_page(self, alert: dict[str, Any]) -> None:
        page = f"docs/runbooks/{alert['alert']}.md"
        assert alert["annotations"]["runbook_url"] == "{{ $externalLabels.quintet_docs }}" + page
        assert (RUNBOOKS / f"{alert['alert']}.md").exists()


def test_the_address_of_pages_is_put_before_them_where_it_is_known(tmp_path: Path) -> None:
    """All of one alert, labels and texts, as it comes out."""
    (tmp_path / "rules").symlink_to(MONITORING / "rules")
    expected = {
        "exp_labels": {"severity": "warning", "job": "quintet-adapter", "adapter": "etzel", "instance": "e:1"},
        "exp_annotations": {
            "summary": "e:1 does not answer",
            "description": "Prometheus could not scrape quintet-adapter (etzel) at e:1 for 2 minutes.",
            "runbook_url": "https://pages/docs/runbooks/QuintetScrapeDown.md",
        },
    }
    case = {
        "interval": "15s",
        "external_labels": {"quintet_docs": "https://pages/"},
        "input_series": [{"series": 'up{job="quintet-adapter",adapter="etzel",instance="e:1"}', "values": "0x20"}],
        "alert_rule_test": [{"alertname": "QuintetScrapeDown", "eval_time": "3m", "exp_alerts": [expected]}],
    }
    document = {"rule_files": ["rules/alerts.yml"], "evaluation_interval": "15s", "tests": [case]}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", tmp_path / "case.yml")


def test_what_is_recorded_is_named_by_level_metric_and_operation() -> None:
    for rule in rules():
        assert "alert" in rule or re.fullmatch(r"[a-z_]+:quintet_\w+:\w*rate(5m|1h)", rule["record"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_texts_of_alerts_that_came_are_whole(tmp_path: Path, path: Path) -> None:
    """Cases in which alerts fire are asked for none: promtool shows what came instead."""
    files: dict[str, Path] = {}
    for name, cases in cases_by_alert(path).items():
        fires = [(case, look) for case in cases for look in case.pop("promql_expr_test") if look["exp_samples"]]
        if fires:
            case, look = fires[0]
            case["alert_rule_test"] = [{"alertname": name, "eval_time": look["eval_time"], "exp_alerts": []}]
            files[name] = alone(tmp_path, name, [case])
    shown = subprocess.run(["promtool", "test", "rules", *files.values()], capture_output=True, text=True)
    came = shown.stdout + shown.stderr
    assert {name for name in files if f'runbook_url="docs/runbooks/{name}.md"' not in came} == set()
    for broken in ("error expanding", "%!", "<no value>", "{{", "NaN"):
        assert broken not in came
