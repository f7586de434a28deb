"""Parquet through Spark's file sink: exactly once by its manifest (see `manifest`).

A driver that is killed leaves files that no manifest names. Nobody reads them, and `tidy` removes them, when it is
sure that nobody will: a list of a batch is written once, by whoever wins, and a batch begins when the list of the one
before is there. So files found now that no list names are of the next batch at most. Once the list of that batch is
there and does not name them either, none ever will; not even that of a driver that is still running somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from quintet_spark.sinks import manifest
from quintet_spark.sinks.lake_files import LakeFiles
from quintet_spark.sinks.sink import Place, SinkError, Trigger


@dataclass(frozen=True, slots=True)
class _Leftovers:
    """Files that no list named, and the batch whose list decides."""

    uris: tuple[str, ...]
    decided_by: int


class ParquetSink:
    """A `Sink` of Parquet files below a folder."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._leftovers: _Leftovers | None = None

    def stream(self, frame: DataFrame, *, query_name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """See `Sink`."""
        spark = frame.sparkSession
        self._check(spark, checkpoint)
        self._leftovers = self._found(spark)
        writer = frame.writeStream.format("parquet").outputMode("append").partitionBy(*self._place.folders)
        writer = writer.queryName(query_name).option("checkpointLocation", checkpoint)
        return trigger.apply(writer).start(self._place.path)

    def read(self, spark: SparkSession) -> DataFrame:
        """See `Sink`. Only the whole folder is read by the manifest: a path below it would read what does not count."""
        if manifest.latest_batch(LakeFiles(spark, self._place.path).names(manifest.FOLDER)) < 0:
            raise SinkError(f"{self._place.path}: nothing has been written there yet")
        return spark.read.schema(self._place.schema).parquet(self._place.path)

    def tidy(self, spark: SparkSession) -> int:
        """See `Sink`. What was found at the start goes when the first batch since has been written; 0 until then."""
        found = self._leftovers
        if found is None or not found.uris:
            return 0
        files = LakeFiles(spark, self._place.path)
        lists = files.names(manifest.FOLDER)
        if manifest.latest_batch(lists) < found.decided_by:
            return 0
        named = _named(files, lists)
        self._leftovers = None
        return sum(files.delete(uri) for uri in found.uris if _name(uri) not in named)

    def _found(self, spark: SparkSession) -> _Leftovers:
        files = LakeFiles(spark, self._place.path)
        # Files first, then lists: the other way round a file of a batch that ends in between would be taken for one.
        uris = files.matching("/".join((*("*" for _ in self._place.folders), "part-*.parquet")))
        lists = files.names(manifest.FOLDER)
        named = _named(files, lists)
        left = tuple(uri for uri in uris if _name(uri) not in named)
        return _Leftovers(left, manifest.latest_batch(lists) + 1)

    def _check(self, spark: SparkSession, checkpoint: str) -> None:
        """Raise SinkError where manifest and checkpoint do not belong together: Spark would skip batches in silence."""
        files, progress = LakeFiles(spark, self._place.path), LakeFiles(spark, checkpoint)
        written = manifest.latest_batch(files.names(manifest.FOLDER))
        planned = manifest.latest_batch(progress.names("offsets"))
        done = manifest.latest_batch(progress.names("commits"))
        path = self._place.path
        if written > planned:
            raise SinkError(
                f"{path} holds batch {written}, and the checkpoint {checkpoint} knows batches up to {planned} only: it "
                "is not the one this was written with, and batches would be taken for written. Bring it back, or "
                "write to another lake."
            )
        if done > written:
            raise SinkError(
                f"{path} holds batch {written}, and the checkpoint {checkpoint} says that {done} was written: the "
                "lake's files were removed or are elsewhere. Bring them back, or begin with another checkpoint."
            )
        if planned < 0 and files.matching("/".join((*("*" for _ in self._place.folders), "*.parquet"))):
            raise SinkError(f"{path} holds Parquet files that this did not write; they would never be read here.")


def _named(files: LakeFiles, lists: list[str]) -> set[str]:
    # A file's name is made of a random number of 122 bits: it is the same in no other folder.
    return {_name(path) for path in manifest.paths(lists, lambda name: files.text(f"{manifest.FOLDER}/{name}"))}


def _name(path: str) -> str:
    return path.rpartition("/")[2]
