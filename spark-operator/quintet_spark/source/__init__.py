"""The event and metrics logs as a Spark data source: `format("quintet")`, for streams and for batches.

from quintet_spark.source import register

register(spark)
events = spark.readStream.format("quintet").option("endpoint", "127.0.0.1:50051").option("consumer", "me").load()
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quintet_spark.source.batch import LogReader
from quintet_spark.source.options import ANY_KIND, BATCH, STREAM, Options, OptionsError, checked_schema
from quintet_spark.source.stream import LogStreamReader

__all__ = ["FORMAT", "OptionsError", "QuintetDataSource", "register"]

FORMAT = "quintet"


class QuintetDataSource(DataSource):
    """The data source. Its options are those of `quintet_spark.source.options.Options`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return FORMAT

    def schema(self) -> StructType:
        """Every column of the log that is read. `.schema(...)` with some of them reads those only."""
        # Whether a stream or a batch is wanted is not known yet.
        return Options.of(self.options, ANY_KIND).schema

    def reader(self, schema: StructType) -> LogReader:
        """Of a batch."""
        options = Options.of(self.options, BATCH)
        return LogReader(options, checked_schema(schema, options))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        """Of a stream."""
        options = Options.of(self.options, STREAM)
        return LogStreamReader(options, checked_schema(schema, options))


def register(spark: SparkSession) -> None:
    """Makes the format known to a session, and lets its batch reads take what filters say about where records are."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(QuintetDataSource)
