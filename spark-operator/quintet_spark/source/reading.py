"""One stretch of a log as Arrow batches: what runs on the executors, and how it goes on where a core was away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from quintet.v1 import event_service_pb2 as wire
from quintet_client.errors import OffsetTrimmedError, QuintetError

from quintet_spark.source.events import EventColumns
from quintet_spark.source.layout import DamagedBlockError
from quintet_spark.source.link import Link, Patience, SourceError, told
from quintet_spark.source.loss import Loss, meet_loss
from quintet_spark.source.options import METRICS_LOG, Options
from quintet_spark.source.position import Stretch
from quintet_spark.source.snapshots import SnapshotColumns

_CARRIED_COLUMN = "payload"


def read_stretch(options: Options, schema: StructType, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The records of a stretch in their order, a batch for each block. Raises SourceError."""
    reading = _Reading(options, schema, stretch)
    with Link(options) as link:
        patience = Patience(options)
        while not reading.is_done:
            try:
                for block in link.blocks(reading.rest, with_carried=reading.with_carried):
                    batch = reading.take(block)
                    patience.begin()
                    if batch.num_rows:
                        yield batch
                    # While Spark was busy with it the core had nothing to prove.
                    patience.begin()
                reading.end()
            except OffsetTrimmedError as error:
                reading.skip(error)
            except QuintetError as error:
                if not error.retryable:
                    raise told(error, options) from None
                patience.wait(error)


class _Reading:
    """How far a stretch has been read."""

    def __init__(self, options: Options, schema: StructType, stretch: Stretch) -> None:
        self.rest = stretch
        self.with_carried = options.carried and _CARRIED_COLUMN in schema.names
        self._options = options
        self._names = schema.names
        self._arrow_schema = to_arrow_schema(schema, timezone="UTC")

    @property
    def is_done(self) -> bool:
        return self.rest.after >= self.rest.through

    def take(self, block: wire.ReadBlocksResponse) -> pa.RecordBatch:
        """The next block's batch."""
        if block.first_offset != self.rest.after + 1:
            raise self._damaged(f"it begins with offset {block.first_offset}, not {self.rest.after + 1}")
        try:
            columns = self._columns(block)
            batch = pa.RecordBatch.from_arrays(
                [columns.column(name) for name in self._names], schema=self._arrow_schema
            )
        except DamagedBlockError as error:
            raise self._damaged(str(error)) from None
        self.rest = replace(self.rest, after=self.rest.after + columns.total)
        if not columns.total or self.rest.after > self.rest.through:
            raise self._damaged(f"it holds {columns.total} records, up to offset {self.rest.after}")
        return batch

    def end(self) -> None:
        """The stream of blocks has ended."""
        if not self.is_done:
            raise self._damaged(f"no more blocks came, {self.rest.through - self.rest.after} records before the end")

    def skip(self, error: OffsetTrimmedError) -> None:
        """What follows is not held."""
        first = int(error.metadata.get("first_offset", "0"))
        if first <= self.rest.after + 1:
            raise told(error, self._options) from None
        meet_loss(Loss(self._options.log, self.rest.partition, self.rest.after, first), self._options)
        self.rest = replace(self.rest, after=min(first - 1, self.rest.through))

    def _columns(self, block: wire.ReadBlocksResponse) -> EventColumns | SnapshotColumns:
        if self._options.log == METRICS_LOG:
            return SnapshotColumns(block, self.rest.partition)
        return EventColumns(block, self.rest.partition, self.rest.partitions, with_carried=self.with_carried)

    def _damaged(self, how: str) -> SourceError:
        place = f"partition {self.rest.partition} of the {self._options.log} log, behind offset {self.rest.after}"
        return SourceError(f"a block of {place}, is not what it should be: {how}")
