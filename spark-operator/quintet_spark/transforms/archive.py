"""The archive: events and snapshots as they were written, laid out by day and namespace.

A namespace names a folder, `namespace=<its name>`, so that whoever filters by it reads nothing else. Some namespaces
cannot: folders have short names, and an empty one would be read as none. Those have a folder that begins with "~" and
is made of their hash; their name is in the column `namespace_exact`, which is null where the folder tells it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, StringType, StructField, StructType

from quintet_spark.schemas import EVENTS, METRICS

EVENT_FOLDERS = ("date", "namespace")
"""Columns of the event archive that are folders, outermost first."""
METRIC_FOLDERS = ("date",)
FOLDER_BYTES_MAX = 80
"""Longer namespaces have a folder of their hash: escaped, each byte may take three of the 255 that a name may have."""
ODD = "~"
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_HASH_DIGITS = 32

_EXACT = StructField("namespace_exact", StringType())
_DATE = StructField("date", DateType())
_AFTER = [_EXACT, _DATE, StructField("namespace", StringType())]

ARCHIVED_EVENTS: StructType = StructType([field for field in EVENTS.fields if field.name != "namespace"] + _AFTER)
"""The event archive as it is stored: EVENTS, with `namespace_exact` and `date`; the folders' columns are last."""
ARCHIVED_METRICS: StructType = StructType([*METRICS.fields, _DATE])
"""The metric archive as it is stored: METRICS and `date`."""


def utc_date(at: str) -> Column:
    """The day of an instant in UTC, whatever the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_millis(F.col(at)) / F.lit(86_400_000)).cast("int"))


def folder_of(namespace: Column) -> Column:
    """The name of a namespace's folder: itself, or "~" and a hash of it."""
    return F.when(_is_plain(namespace), namespace).otherwise(_odd(namespace))


def folder_name(namespace: str) -> Column:
    """`folder_of` for a namespace that is known."""
    return folder_of(F.lit(namespace))


def archived_events(events: DataFrame) -> DataFrame:
    """EVENTS -> ARCHIVED_EVENTS, row for row."""
    namespace = F.coalesce(F.col("namespace"), F.lit(""))
    plain = _is_plain(namespace)
    return events.select(
        *(name for name in EVENTS.names if name != "namespace"),
        F.when(~plain, namespace).alias("namespace_exact"),
        utc_date("at").alias("date"),
        F.when(plain, namespace).otherwise(_odd(namespace)).alias("namespace"),
    )


def events_of(archive: DataFrame) -> DataFrame:
    """ARCHIVED_EVENTS -> EVENTS and `date`: filter by `date` to read those days alone.

    `namespace` is computed here, so a filter on it reads every namespace of these days; see `in_namespace`.
    """
    exact = F.coalesce(F.col("namespace_exact"), F.col("namespace"))
    return archive.select(*(exact.alias(name) if name == "namespace" else name for name in EVENTS.names), "date")


def in_namespace(archive: DataFrame, namespace: str) -> DataFrame:
    """The rows of ARCHIVED_EVENTS that are of one namespace, read from its folders alone."""
    return archive.where(F.col("namespace") == folder_name(namespace))


def archived_metrics(metrics: DataFrame) -> DataFrame:
    """METRICS -> ARCHIVED_METRICS, row for row."""
    return metrics.select(*METRICS.names, utc_date("at").alias("date"))


def metrics_of(archive: DataFrame) -> DataFrame:
    """ARCHIVED_METRICS -> METRICS and `date`."""
    return archive.select(*METRICS.names, "date")


def _is_plain(namespace: Column) -> Column:
    return (
        (namespace != "")
        & ~namespace.startswith(ODD)
        & (namespace != _HIVE_NULL)
        & (F.octet_length(namespace) <= FOLDER_BYTES_MAX)
    )


def _odd(namespace: Column) -> Column:
    return F.concat(F.lit(ODD), F.substring(F.sha2(namespace.cast("binary"), 256), 1, _HASH_DIGITS))
