"""The one way to a report: from the archive's tables to Parquet and a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from quintet_spark.report.options import ReportOptions


@dataclass(frozen=True)
class WrittenReport:
    """Where a report lies, and what it says in short.

    page: path of the HTML page. tables: path of each Parquet table by its name.
    needs_action: one sentence each; empty when all is well.
    """

    page: str
    tables: dict[str, str]
    needs_action: list[str]


def write_report(
    spark: SparkSession,
    events: DataFrame,
    metrics: DataFrame,
    rollup: DataFrame | None,
    out: str,
    *,
    options: ReportOptions | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> WrittenReport:
    """Write the report on all of `events` and `metrics` (schemas EVENTS and METRICS) to the folder `out`.

    The caller narrows the frames to the days wanted. `out` is a path or an address that Spark can write to; what a
    report before left there is replaced. `rollup` is the archive's rollup, None when there is none. `progress` is told
    each step as a short sentence. Frames without rows make a report that says so.
    """
    raise NotImplementedError
