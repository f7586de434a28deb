"""Delta and Iceberg: table formats that keep their own list of what counts; here when their packages are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from quintet_spark.sinks.sink import Place, SinkError, SinkUnavailableError, Trigger


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format's name in Spark, a class that is there when its package is, and what to tell Spark to have it."""

    name: str
    marker_class: str
    packages: str


DELTA = TableFormat(
    "delta",
    "org.apache.spark.sql.delta.sources.DeltaDataSource",
    "io.delta:delta-spark_<Spark's version>_2.13, with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "and spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
)
ICEBERG = TableFormat(
    "iceberg",
    "org.apache.iceberg.spark.source.IcebergSource",
    "org.apache.iceberg:iceberg-spark-runtime-<Spark's version>_2.13",
)


class TableFormatSink:
    """A `Sink` of one table, named by its path. The format's own transactions make batches exactly once."""

    def __init__(self, table_format: TableFormat, place: Place) -> None:
        self._format = table_format
        self._place = place

    def stream(self, frame: DataFrame, *, query_name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """See `Sink`."""
        self._expect_package(frame.sparkSession)
        self._make_table(frame.sparkSession)
        writer = frame.writeStream.format(self._format.name).outputMode("append").partitionBy(*self._place.folders)
        writer = writer.queryName(query_name).option("checkpointLocation", checkpoint)
        return trigger.apply(writer).start(self._place.path)

    def read(self, spark: SparkSession) -> DataFrame:
        """See `Sink`."""
        self._expect_package(spark)
        try:
            return self._loaded(spark)
        except AnalysisException as error:
            raise SinkError(f"{self._place.path}: nothing has been written there yet ({error})") from None

    def tidy(self, spark: SparkSession) -> int:
        """Nothing: formats clean up by commands of their own (VACUUM, remove_orphan_files)."""
        return 0

    def _make_table(self, spark: SparkSession) -> None:
        """A table without rows, where there is none: Iceberg writes no stream into a table that is not there."""
        try:
            self._loaded(spark)
        except AnalysisException:
            empty = spark.createDataFrame([], self._place.schema).write.format(self._format.name)
            empty.partitionBy(*self._place.folders).mode("append").save(self._place.path)

    def _loaded(self, spark: SparkSession) -> DataFrame:
        try:
            return spark.read.format(self._format.name).load(self._place.path)
        except Py4JJavaError as error:  # the package is made for another Spark
            raise SinkUnavailableError(
                f"the package of {self._format.name} does not work with Spark {spark.version}: {error.java_exception}"
            ) from None

    def _expect_package(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        try:
            jvm.java.lang.Class.forName(
                self._format.marker_class, False, jvm.java.lang.Thread.currentThread().getContextClassLoader()
            )
        except Exception:  # whatever the bridge makes of a class that is not there
            raise SinkUnavailableError(
                f"the package of {self._format.name} is not there. Give Spark {self._format.packages}, or use the "
                "parquet sink"
            ) from None
