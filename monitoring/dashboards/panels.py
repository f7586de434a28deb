"""The kinds of panels that dashboards are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common, dashboard, units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitoring.dashboards.frame import DATA_SOURCE

WIDTH = 24
COUNT, SECONDS, RATE, RATIO, BYTES = units.Short, units.Seconds, units.OpsPerSecond, units.PercentUnit, units.BytesIEC
BYTES_RATE = units.BytesPerSecondIEC
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"


@dataclass(frozen=True, slots=True)
class Query:
    """A query and how each of its series is called."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True, slots=True)
class Limits:
    """From which value on something is orange or red; `falling` instead: below which."""

    orange: float | None = None
    red: float | None = None
    falling: bool = False

    def steps(self) -> list[dashboard.Threshold]:
        """As Grafana wants them: ascending, the first without a value."""
        named = [(value, colour) for value, colour in ((self.orange, ORANGE), (self.red, RED)) if value is not None]
        if not self.falling:
            return [dashboard.Threshold(None, GREEN), *(dashboard.Threshold(*step) for step in named)]
        values = [value for value, _ in named]
        colours = [colour for _, colour in reversed(named)] + [GREEN]
        return [dashboard.Threshold(*step) for step in zip([None, *sorted(values)], colours, strict=True)]


NO_LIMITS = Limits()


def lines(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    stacked: bool = False,
    limits: Limits = NO_LIMITS,
    alert: str = "",
) -> timeseries.Panel:
    """Series over time. Limits are drawn as lines; `alert` names the rule whose page is linked."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(_about(about, alert))
        .datasource(DATA_SOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(8)
        .line_width(1)
        .fill_opacity(25 if stacked else 8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    if stacked:
        panel.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL))
    if limits != NO_LIMITS:
        panel.thresholds(_thresholds(limits))
        panel.thresholds_style(build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED))
    if alert:
        panel.links([_runbook(alert)])
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def number(
    title: str,
    about: str,
    unit: str,
    query: Query,
    *,
    width: int = 3,
    limits: Limits = NO_LIMITS,
    words: dict[str, tuple[str, str]] | None = None,
    alert: str = "",
) -> stat.Panel:
    """One value of now. `words` say some values in a word and a colour: `{"0": ("NO", RED)}`."""
    panel = (
        stat.Panel()
        .title(title)
        .description(_about(about, alert))
        .datasource(DATA_SOURCE)
        .unit(unit)
        .span(width)
        .height(4)
        .thresholds(_thresholds(limits))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(build_common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("-")
    )
    if words:
        results = {
            value: dashboard.ValueMappingResult(text=word, color=colour) for value, (word, colour) in words.items()
        }
        panel.mappings([dashboard.ValueMap(options=results)]).graph_mode(common.BigValueGraphMode.NONE)
    if alert:
        panel.links([_runbook(alert)])
    for target in _targets((query,)):
        panel.with_target(target)
    return panel


def ranking(title: str, about: str, unit: str, query: Query, *, width: int = 8) -> table.Panel:
    """What is highest now, as a table: a column for each label, and the value."""
    (target,) = _targets((query,))
    return (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(DATA_SOURCE)
        .unit(unit)
        .span(width)
        .height(8)
        .with_target(target.instant().format(PromQueryFormat.TABLE))
        .with_transformation(
            dashboard.DataTransformerConfig(
                id_val="organize", options={"excludeByName": {"Time": True}, "renameByName": {"Value": title.lower()}}
            )
        )
    )


def quantiles(metric: str, selector: str) -> tuple[Query, ...]:
    """The median, and how slow the slowest in twenty and in a hundred are."""
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))", legend
        )
        for share, legend in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )


def _targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id).datasource(DATA_SOURCE)
        for query, ref_id in zip(queries, ascii_uppercase, strict=False)
    ]


def _about(about: str, alert: str) -> str:
    return f"{about}\n\nAlert: {alert}, docs/runbooks/{alert}.md" if alert else about


def _runbook(alert: str) -> build.DashboardLink:
    return (
        build.DashboardLink(f"Runbook: {alert}")
        .type(dashboard.DashboardLinkType.LINK)
        .placement("")
        .url(f"${{docs}}docs/runbooks/{alert}.md")
        .target_blank(True)
    )


def _thresholds(limits: Limits) -> build.ThresholdsConfig:
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(limits.steps())


def _legend() -> build_common.VizLegendOptions:
    return (
        build_common.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )


def _tooltip() -> build_common.VizTooltipOptions:
    return build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
