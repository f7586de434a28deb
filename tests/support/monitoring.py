"""What lies in monitoring/, as tests read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "monitoring"
RUNBOOKS = ROOT / "docs/runbooks"
ALERT_FILE = MONITORING / "rules/alerts.yml"


def read_yaml(path: Path) -> Any:
    """One document."""
    return yaml.safe_load(path.read_text())


def rules() -> Iterator[dict[str, Any]]:
    """Every rule of every file, in order."""
    for path in sorted((MONITORING / "rules").glob("*.yml")):
        for group in read_yaml(path)["groups"]:
            yield from group["rules"]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by its name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
