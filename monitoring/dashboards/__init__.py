"""Grafana's dashboards as code: `python -m monitoring.dashboards [FOLDER]` writes them as JSON."""
