"""What all dashboards share: their variables, the links between them, and how one is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import DataSourceRef

DATA_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE = 'installation=~"$installation"'
"""The selector that keeps installations apart; every query of ours has it."""
TAG = "quintet"

Panels = Sequence[Builder[model.Panel]]


def frame(uid: str, title: str, about: str, *variables: Builder[model.VariableModel]) -> build.Dashboard:
    """A dashboard without panels. `variables` stand behind those that all have."""
    dashboard = (
        build.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags([TAG])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .link(_others())
    )
    for variable in (_data_source(), _installation(), _docs(), *variables):
        dashboard.with_variable(variable)
    return dashboard


def with_rows(dashboard: build.Dashboard, rows: Sequence[tuple[str, Panels]]) -> build.Dashboard:
    """The same with rows of panels under their headings, open all of them; numbered in order."""
    ids = count(1)
    for heading, panels in rows:
        dashboard.with_row(build.Row(heading).id(next(ids)))
        for panel in panels:
            panel.build().id_val = next(ids)
            dashboard.with_panel(panel)
    return dashboard


def choice(name: str, label: str, metric: str, of: str = HERE, *, all_of_them: bool = False) -> build.QueryVariable:
    """A variable that holds a value of the label `name` of a metric; with `all_of_them`, several or all."""
    variable = (
        build.QueryVariable(name)
        .label(label)
        .datasource(DATA_SOURCE)
        .query(f"label_values({metric}{{{of}}}, {name})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )
    if all_of_them:
        everything = model.VariableOption(text="All", value="$__all", selected=True)
        variable.multi(True).include_all(True).all_value(".*").current(everything)
    return variable


def _data_source() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _installation() -> build.QueryVariable:
    # Without the label (one installation, no relabeling) nothing is listed, and `All` still finds everything.
    return choice("installation", "Installation", "quintet_core_ready", of="", all_of_them=True)


def _docs() -> build.TextBoxVariable:
    return (
        build.TextBoxVariable("docs")
        .label("Docs at")
        .description("Where this repository can be read, with a slash at the end: links to runbooks begin with it.")
        .default_value("")
    )


def _others() -> build.DashboardLink:
    return (
        build.DashboardLink("Quintet")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .placement("")  # where links of dashboards always were
        .include_vars(True)
        .keep_time(True)
    )
