"""Dashboards are complete, readable, and as Grafana wants them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.__main__ import generate
from tests.support.dashboards import FILES, Panel, panels, read, substituted, variables
from tests.support.monitoring import MONITORING, RUNBOOKS, alerts, read_yaml

NAMES = ["quintet-overview", "quintet-pipeline", "quintet-protocols", "quintet-queue", "quintet-tables"]
UNITS = {value for value in vars(units).values() if isinstance(value, str)}
WIDTH = 24


def test_there_are_these() -> None:
    assert [path.stem for path in FILES] == NAMES


def test_files_are_what_the_code_gives_today(tmp_path: Path) -> None:
    generate(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestEveryDashboard:
    """One file."""

    def test_is_read_and_written_by_grafanas_own_types(self, path: Path) -> None:
        again = json.loads(json.dumps(Dashboard.from_json(read(path)), cls=JSONEncoder))
        assert again["uid"] == path.stem
        assert again["templating"] == read(path)["templating"]
        assert [panel["title"] for panel in again["panels"]] == [panel["title"] for panel in read(path)["panels"]]

    def test_begins_with_the_data_source_and_the_installation(self, path: Path) -> None:
        assert list(variables(path))[:3] == ["datasource", "installation", "docs"]

    def test_has_panels_numbered_and_beside_each_other(self, path: Path) -> None:
        laid_out = read(path)["panels"]
        assert [panel["id"] for panel in laid_out] == list(range(1, len(laid_out) + 1))
        taken: set[tuple[int, int]] = set()
        for panel in laid_out:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= WIDTH
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_fills_its_rows(self, path: Path) -> None:
        widths: dict[int, int] = {}
        for panel in read(path)["panels"]:
            widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
        assert set(widths.values()) == {WIDTH}


@pytest.mark.parametrize("panel", list(panels()), ids=str)
class TestEveryPanel:
    """One panel."""

    def test_says_what_it_shows_in_which_unit(self, panel: Panel) -> None:
        assert panel.content["description"]
        assert panel.content["fieldConfig"]["defaults"]["unit"] in UNITS

    def test_asks_the_data_source_that_was_chosen(self, panel: Panel) -> None:
        asked = [panel.content, *panel.content["targets"]]
        assert {each["datasource"]["uid"] for each in asked} == {"${datasource}"}

    def test_keeps_installations_apart(self, panel: Panel) -> None:
        for query in panel.queries:
            for series in re.findall(r"\b(?:[a-z_]+:)?(?:quintet|spark|metrics|process|ALERTS)[\w:]*(\{.*?\})?", query):
                assert "installation=~" in series, query

    def test_names_its_series(self, panel: Panel) -> None:
        if panel.content["type"] == "timeseries":
            assert "__auto" not in {target["legendFormat"] for target in panel.content["targets"]}

    def test_uses_variables_that_its_dashboard_has(self, panel: Panel) -> None:
        values = dict.fromkeys(variables(MONITORING / f"grafana/dashboards/{panel.dashboard}.json"), "x")
        for query in panel.queries:
            substituted(query, values)

    def test_takes_durable_values_once(self, panel: Panel) -> None:
        """Every core shows the same of queues, tables and events: a sum over cores would count them twice."""
        durable = (
            r"quintet_(?:queue_|table_|core_events_total|core_consumer_lag|core_log_|core_unlisted|core_snapshot_age)"
        )
        for query in panel.queries:
            for at in re.finditer(durable, query):
                before = re.findall(r"\b(sum|max|min|topk)\b", query[: at.start()])
                assert before[-1] in {"max", "min"}, query

    def test_links_the_runbook_of_an_alert_that_there_is(self, panel: Panel) -> None:
        for link in panel.content.get("links", []):
            name = link["title"].removeprefix("Runbook: ")
            assert link["url"] == f"${{docs}}docs/runbooks/{name}.md"
            assert name in alerts()
            assert (RUNBOOKS / f"{name}.md").exists()


def test_what_grafana_is_provided_with_is_where_the_files_say() -> None:
    provisioning = MONITORING / "grafana/provisioning"
    (source,) = read_yaml(provisioning / "datasources/quintet.yml")["datasources"]
    (provider,) = read_yaml(provisioning / "dashboards/quintet.yml")["providers"]
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == read_yaml(MONITORING / "prometheus.yml")["global"]["scrape_interval"]
    assert provider["options"]["path"] in (MONITORING.parent / "docs/monitoring.md").read_text()
