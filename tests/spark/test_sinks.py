"""Sinks: every row once over kills and restarts, nothing read that does not count, nothing deleted that does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from quintet_spark.sinks.manifest import committed_files
from quintet_spark.sinks.opened import opened
from quintet_spark.sinks.parquet import ParquetSink
from quintet_spark.sinks.sink import Place, Sink, SinkError, SinkUnavailableError, Trigger
from quintet_spark.sinks.table_formats import TableFormat, TableFormatSink

SCHEMA = StructType().add("number", "long").add("day", "string").add("space", "string")
STRANGE = "a b%/=☃"


class Numbers:
    """Numbers as a stream, and the folder that a sink writes to."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._given = 0
        (folder / "input").mkdir()
        self.place = Place(str(folder / "out"), SCHEMA, ("day", "space"))
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def give(self, count: int = 10) -> None:
        frame = self._spark.range(self._given, self._given + count).select(F.col("id").alias("number"))
        frame.coalesce(1).write.mode("append").parquet(str(self._folder / "input"))
        self._given += count

    def stream(self) -> DataFrame:
        read = self._spark.readStream.schema("number long").parquet(str(self._folder / "input"))
        return read.withColumn("day", F.format_string("d%d", F.col("number") % 2)).withColumn("space", F.lit(STRANGE))

    def start(self, sink: Sink) -> StreamingQuery:
        return sink.stream(
            self.stream(), query_name="numbers", checkpoint=str(self.checkpoint), trigger=Trigger(once=True)
        )

    def run(self, sink: Sink) -> None:
        query = self.start(sink)
        query.awaitTermination()
        assert query.exception() is None

    def expected(self) -> list[int]:
        return list(range(self._given))

    def read(self, sink: Sink) -> list[int]:
        return sorted(row.number for row in sink.read(self._spark).collect())

    def leave_behind(self) -> Path:
        """A file as a driver leaves it that is killed before its batch is written down."""
        whole = next(self.out.glob("day=*/*/*.parquet"))
        left = whole.with_name("part-00000-00000000-0000-4000-8000-000000000000.c000.snappy.parquet")
        shutil.copy(whole, left)
        return left


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Numbers:
    return Numbers(spark, tmp_path)


def parquet(numbers: Numbers) -> ParquetSink:
    """As after a restart: nothing is remembered."""
    sink = opened("parquet", numbers.place)
    assert isinstance(sink, ParquetSink)
    return sink


class TestParquet:
    """Spark's file sink with its manifest."""

    def test_rows_are_there_once_over_restarts(self, spark: SparkSession, numbers: Numbers) -> None:
        for _ in range(12):  # beyond the tenth batch, where the manifest is compacted
            numbers.give(2)
            numbers.run(parquet(numbers))
        assert numbers.read(parquet(numbers)) == numbers.expected()
        counted = [
            row.number for path in committed_files(numbers.out) for row in spark.read.parquet(str(path)).collect()
        ]
        assert sorted(counted) == numbers.expected()

    def test_committed_files_are_found_where_a_lake_was_moved_to(self, numbers: Numbers, tmp_path: Path) -> None:
        numbers.give()
        numbers.run(parquet(numbers))
        moved = tmp_path / "else=where"
        numbers.out.rename(moved)
        found = committed_files(moved)
        assert found
        assert all(path.is_file() for path in found)

    def test_nothing_is_there_before_the_first_batch(self, spark: SparkSession, numbers: Numbers) -> None:
        with pytest.raises(SinkError, match="nothing has been written"):
            parquet(numbers).read(spark)

    def test_a_leftover_is_not_read_and_goes_when_the_next_batch_is_written(
        self, spark: SparkSession, numbers: Numbers
    ) -> None:
        numbers.give()
        numbers.run(parquet(numbers))
        left = numbers.leave_behind()
        assert numbers.read(parquet(numbers)) == numbers.expected()

        sink = parquet(numbers)
        numbers.run(sink)  # there is nothing new: no batch
        assert sink.tidy(spark) == 0
        assert left.exists()

        numbers.give()
        sink = parquet(numbers)
        numbers.run(sink)
        assert sink.tidy(spark) == 1
        assert not left.exists()
        assert sink.tidy(spark) == 0
        assert numbers.read(sink) == numbers.expected()

    def test_a_file_that_another_driver_commits_after_all_stays(self, spark: SparkSession, numbers: Numbers) -> None:
        numbers.give()
        numbers.run(parquet(numbers))
        # To whoever starts now, the files of a batch that another driver has not written down yet look left behind.
        lists = numbers.out / "_spark_metadata"
        numbers.give()
        numbers.run(parquet(numbers))
        written_down = (lists / "1").rename(numbers.out.parent / "held back")
        (numbers.checkpoint / "commits" / "1").unlink()
        watcher = parquet(numbers)
        watcher._leftovers = watcher._found(spark)
        assert watcher.tidy(spark) == 0
        written_down.rename(lists / "1")
        assert watcher.tidy(spark) == 0
        assert numbers.read(watcher) == numbers.expected()

    def test_a_lost_checkpoint_is_told_and_not_taken_for_a_new_lake(self, numbers: Numbers) -> None:
        numbers.give()
        numbers.run(parquet(numbers))
        shutil.rmtree(numbers.checkpoint)
        with pytest.raises(SinkError, match=r"holds batch 0, and the checkpoint .* up to -1 only"):
            numbers.start(parquet(numbers))

    def test_a_lost_manifest_is_told(self, numbers: Numbers) -> None:
        numbers.give()
        numbers.run(parquet(numbers))
        shutil.rmtree(numbers.out / "_spark_metadata")
        with pytest.raises(SinkError, match="were removed or are elsewhere"):
            numbers.start(parquet(numbers))

    def test_a_folder_of_others_files_is_left_alone(self, spark: SparkSession, numbers: Numbers) -> None:
        spark.range(3).selectExpr("id as number", "'d' as day", "'s' as space").write.partitionBy(
            "day", "space"
        ).parquet(str(numbers.out))
        with pytest.raises(SinkError, match="did not write"):
            numbers.start(parquet(numbers))


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_format_without_its_package_says_what_to_give_spark(spark: SparkSession, numbers: Numbers, name: str) -> None:
    sink = opened(name, numbers.place)  # type: ignore[arg-type]
    with pytest.raises(SinkUnavailableError, match=rf"the package of {name} is not there.*parquet sink"):
        numbers.start(sink)
    with pytest.raises(SinkUnavailableError, match="is not there"):
        sink.read(spark)


def test_a_format_whose_package_is_there_is_written_and_read(spark: SparkSession, numbers: Numbers) -> None:
    """The way of Delta and Iceberg, with a format that Spark always has."""
    there = TableFormat("orc", "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat", "")
    sink = TableFormatSink(there, numbers.place)
    with pytest.raises(SinkError, match="nothing has been written"):
        sink.read(spark)
    for _ in range(2):
        numbers.give()
        numbers.run(sink)
    assert numbers.read(sink) == numbers.expected()
    assert sink.tidy(spark) == 0
