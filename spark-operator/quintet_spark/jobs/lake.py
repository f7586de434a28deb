"""The lake: which table lies where in it."""

from __future__ import annotations

from pyspark.sql.types import StructType

from quintet_spark.jobs.settings import SparkSettings
from quintet_spark.sinks.opened import opened
from quintet_spark.sinks.sink import Place, Sink
from quintet_spark.transforms import archive, rollup


class Lake:
    """Tables by name, each as a sink; checkpoints beside them."""

    def __init__(self, settings: SparkSettings) -> None:
        self.root = settings.spark_lake.rstrip("/") or "/"
        self._sink = settings.spark_sink

    def events(self) -> Sink:
        """Rows of ARCHIVED_EVENTS."""
        return self._opened("events", archive.ARCHIVED_EVENTS, archive.EVENT_FOLDERS)

    def metrics(self) -> Sink:
        """Rows of ARCHIVED_METRICS."""
        return self._opened("metrics", archive.ARCHIVED_METRICS, archive.METRIC_FOLDERS)

    def rollup(self) -> Sink:
        """Rows of ROLLUP."""
        return self._opened("rollup", rollup.ROLLUP, rollup.FOLDERS)

    def checkpoint(self, query: str) -> str:
        """Where a query keeps how far it has come."""
        return self.path("_checkpoints", query)

    def path(self, *parts: str) -> str:
        """A path in the lake."""
        return "/".join((self.root.rstrip("/"), *parts))

    def _opened(self, name: str, schema: StructType, folders: tuple[str, ...]) -> Sink:
        return opened(self._sink, Place(self.path(name), schema, folders))
