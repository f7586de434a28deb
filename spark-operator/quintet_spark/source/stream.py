"""`spark.readStream.format("quintet")`: admission of records to micro-batches, and what the consumer has come to.

Spark makes a reader in several processes. One of them, beside the driver, serves the query as long as it runs: there
offsets are planned and committed, and there alone the consumer is opened, by the first call that concerns it. The
others (one that plans, and the executors' workers) only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from quintet_spark.source.link import DataLossError, Link, SourceError, taken_over
from quintet_spark.source.options import Options
from quintet_spark.source.planning import Partitions, check_reached, held, last_offsets, resolved
from quintet_spark.source.position import EARLIEST, Offsets, Stretch, divided, parsed, spread, stored
from quintet_spark.source.reading import read_stretch

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_BEGINNINGS_MAX = 5

# Methods are named by Spark.
# ruff: noqa: N802


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are kept as {"0": offset of the last record of partition 0 dealt with, ...}."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._link: Link | None = None
        self._epoch: int | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, int]:
        """Of a query without a checkpoint. Its consumer begins there, wherever it was before."""
        for _ in range(_BEGINNINGS_MAX - 1):
            # Until the consumer is open, the log may be trimmed where it is about to begin.
            with suppress(DataLossError):
                return self._begin()
        return self._begin()

    def _begin(self) -> dict[str, int]:
        partitions = self._connected().partitions()
        starts = resolved(self._options.start, EARLIEST, self._connected(), partitions)
        starts = held(starts, partitions, self._options)
        if self._options.consumer:
            self._epoch = self._connected().open_consumer(starts)
        return stored(starts)

    def getDefaultReadLimit(self) -> ReadLimit:
        """As maxEventsPerBatch says."""
        return ReadMaxRows(self._options.events_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is where the query ends."""
        self._target = last_offsets(self._connected().partitions())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Behind `start` as much as `limit` allows. Raises TakenOverError when another query has the consumer."""
        partitions = self._owned()
        begin = _given(start)
        starts = held(begin, partitions, self._options)
        self._latest = last_offsets(partitions)
        ends = {each: max(starts[each], self._aim(each)) for each in starts}
        if isinstance(limit, ReadMaxRows):
            taken = spread({each: ends[each] - starts[each] for each in starts}, limit.max_rows)
            ends = {each: starts[each] + taken[each] for each in starts}
        if ends == begin:
            # Spark commits a batch when the next one is made. When none is for now, `start` is done with all the same.
            self._commit(begin)
        return stored(ends)

    def reportLatestOffset(self) -> dict[str, int]:
        """Where the log ended when it was last looked at: the query's progress shows it as latestOffset."""
        return stored(self._latest or last_offsets(self._connected().partitions()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A stretch of each partition that has moved, or several."""
        partitions = self._owned()
        starts, ends = held(_given(start), partitions, self._options), _given(end)
        check_reached(ends, partitions, self._options)
        return divided(starts, ends, len(partitions), self._options.split_events)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """One stretch, in an executor."""
        return read_stretch(self._options, self._schema, partition) if isinstance(partition, Stretch) else iter(())

    def commit(self, end: dict[str, int]) -> None:
        """The log need not be kept for this consumer up to here."""
        self._owned()
        self._commit(_given(end))

    def stop(self) -> None:
        """The query has ended."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._options)
        return self._link

    def _owned(self) -> Partitions:
        """The partitions, while the consumer is this query's."""
        if self._options.consumer and self._epoch is None:
            self._epoch = self._connected().open_consumer(None)
        partitions = self._connected().partitions()
        if self._epoch is not None and any(each.epoch > self._epoch for each in partitions):
            raise taken_over(self._options)
        return partitions

    def _aim(self, partition: int) -> int:
        latest = self._latest[partition]
        return latest if self._target is None else min(latest, self._target.get(partition, latest))

    def _commit(self, offsets: Offsets) -> None:
        if self._epoch is None:
            return
        moved = {each: at for each, at in offsets.items() if self._committed.get(each) != at}
        self._connected().commit(moved, self._epoch)
        self._committed.update(moved)


def _given(offsets: Any) -> Offsets:
    """Offsets as Spark brings them back from a checkpoint."""
    try:
        return parsed(offsets)
    except ValueError as error:
        raise SourceError(f"offsets of the checkpoint are not of this source: {error}") from None
