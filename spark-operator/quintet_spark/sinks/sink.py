"""What a job needs of the place its rows go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType


class SinkError(Exception):
    """The place cannot be written to, or must not be; the text says why and what to do."""


class SinkUnavailableError(SinkError):
    """The package of a table format is not there."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches begin: every `interval_s`, or (`once`) until everything that was there at the start is done."""

    interval_s: float = 10.0
    once: bool = False

    def apply(self, writer: DataStreamWriter) -> DataStreamWriter:
        """The writer, told."""
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.interval_s * 1000)} milliseconds")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of rows: where, of what schema, and which columns are folders in it (outermost first)."""

    path: str
    schema: StructType
    folders: Sequence[str] = ()


class Sink(Protocol):
    """Rows of a stream, each written exactly once over any number of ends and starts with one checkpoint."""

    def stream(self, frame: DataFrame, *, query_name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start writing (append). Raises `SinkError` before it has changed anything."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """What was written, none of it twice. Raises `SinkError` when there is nothing yet."""
        ...

    def tidy(self, spark: SparkSession) -> int:
        """Remove what killed drivers left behind and nobody reads; returns how many files. Safe at any time."""
        ...
