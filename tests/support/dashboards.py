"""The dashboards as they are committed: their panels, queries and variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.monitoring import MONITORING

FILES = sorted((MONITORING / "grafana/dashboards").glob("*.json"))
# What Grafana puts in by itself.
_OF_GRAFANA = {"__rate_interval": "1m", "__range": "5m", "__interval": "15s"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel that shows something."""

    dashboard: str
    content: Mapping[str, Any]

    @property
    def title(self) -> str:
        return str(self.content["title"])

    @property
    def queries(self) -> list[str]:
        return [target["expr"] for target in self.content["targets"]]

    def __str__(self) -> str:
        return f"{self.dashboard}-{self.title}"


def read(path: Path) -> dict[str, Any]:
    """One dashboard."""
    dashboard: dict[str, Any] = json.loads(path.read_text())
    return dashboard


def panels() -> Iterator[Panel]:
    """Every panel of every dashboard, rows apart."""
    for path in FILES:
        for content in read(path)["panels"]:
            if content["type"] != "row":
                yield Panel(path.stem, content)


def variables(path: Path) -> dict[str, dict[str, Any]]:
    """The variables of a dashboard by their names, in order."""
    return {variable["name"]: variable for variable in read(path)["templating"]["list"]}


def substituted(text: str, values: Mapping[str, str]) -> str:
    """With values in the place of variables, as Grafana does it. Raises KeyError for one that there is not."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: {**_OF_GRAFANA, **values}[found[1] or found[2]], text)
