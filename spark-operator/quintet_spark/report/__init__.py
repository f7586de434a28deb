"""The report: Parquet tables for machines, one HTML page for people."""

from quintet_spark.report.options import ReportOptions
from quintet_spark.report.write import WrittenReport, write_report

__all__ = ["ReportOptions", "WrittenReport", "write_report"]
