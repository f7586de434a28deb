"""Write every dashboard as JSON into a folder: `python -m monitoring.dashboards [FOLDER]`.

Without a folder: monitoring/grafana/dashboards, whose files are committed, and proved current by `make verify`.
"""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from monitoring.dashboards import overview, pipeline, protocols, queue, tables

FOLDER = Path(__file__).parents[1] / "grafana/dashboards"
DASHBOARDS = (overview.dashboard, queue.dashboard, tables.dashboard, protocols.dashboard, pipeline.dashboard)


def generate(folder: Path) -> None:
    """One file for each dashboard, named as its `uid`. Deterministic."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in DASHBOARDS:
        dashboard = make().build()
        text = json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True)
        (folder / f"{dashboard.uid}.json").write_text(text + "\n")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
