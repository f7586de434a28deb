"""`spark.read.format("quintet")`: a stretch of the log, and what filters leave of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from quintet_spark.source.link import Link
from quintet_spark.source.options import Options
from quintet_spark.source.planning import held, resolved
from quintet_spark.source.position import EARLIEST, LATEST, Stretch, divided
from quintet_spark.source.pruning import Bounds

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class LogReader(DataSourceReader):
    """Reads from `start` to `end`, as they are when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes from them what spares reading. Spark applies them all to what is read nevertheless."""
        self._bounds = Bounds.of_filters(filters)
        if self._bounds.namespace and not self._options.namespace:
            self._options = replace(self._options, namespace=self._bounds.namespace)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Of each partition what options and filters leave."""
        with Link(self._options) as link:
            partitions = link.partitions()
            starts = resolved(self._options.start, EARLIEST, link, partitions)
            ends = resolved(self._options.end, LATEST, link, partitions)
            starts, ends = self._bounds.narrowed(held(starts, partitions, self._options), ends, link)
        return list(divided(starts, ends, len(partitions), self._options.split_events))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """One stretch. Where there is none Spark asks for a partition of no value."""
        # What makes columns takes long to import, and only workers need it.
        from quintet_spark.source.reading import read_stretch

        return read_stretch(self._options, self._schema, partition) if isinstance(partition, Stretch) else iter(())
