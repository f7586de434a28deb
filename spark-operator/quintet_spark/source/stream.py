"""`spark.readStream.format("quintet")`: admission of records to micro-batches, and what the consumer has come to.

Spark makes a reader in several processes. One of them, beside the driver, serves the query as long as it runs: there
offsets are planned and committed, and there alone the consumer is opened, by the first call that concerns it. The
others (one that plans, and the executors' workers) only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from quintet_spark.source.link import Link, SourceError, taken_over
from quintet_spark.source.options import Options
from quintet_spark.source.planning import Partitions, check_reached, held, last_offsets, resolved
from quintet_spark.source.position import EARLIEST, LATEST, Offsets, Stretch, divided, parsed, spread, stored

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Methods are named by Spark.
# ruff: noqa: N802


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are kept as {"0": offset of the last record of partition 0 dealt with, ...}."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._link: Link | None = None
        self._epoch: int | None = None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, int]:
        """Of a query without a checkpoint, or whose first batch is to be made again: the same each time.

        Spark asks twice, and asks again after a crash in the first batch, the end of which is fixed then. So it is
        where the consumer stands, if there is one: nothing is committed before the checkpoint knows of it. `start` says
        where a new consumer begins.
        """
        if self._initial is None:
            self._initial = self._opened() if self._options.consumer else self._resolved()
        return stored(self._initial)

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
        behind = [each for each in ends if starts[each] > ends[each] and starts[each] == _given(start)[each]]
        if behind:
            raise SourceError(
                f"the first batch of this query ended before the query began, in partitions {behind}: it was planned "
                "from where the log was then, of which nothing is known. A query with a consumer knows; or remove the "
                "checkpoint"
            )
        return divided(starts, ends, len(partitions), self._options.split_events)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """One stretch, in an executor."""
        # What makes columns takes long to import, and only workers need it.
        from quintet_spark.source.reading import read_stretch

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

    def _resolved(self) -> Offsets:
        partitions = self._connected().partitions()
        starts = resolved(self._options.start, EARLIEST, self._connected(), partitions)
        return held(starts, partitions, self._options)

    def _opened(self) -> Offsets:
        """Takes the consumer over, or makes it; where it stands."""
        start = self._options.start
        starts = {} if start.word else self._resolved()
        opened = self._connected().open_consumer(starts, from_latest=start.word == LATEST)
        self._epoch = opened.epoch
        return {each.partition: each.committed_offset for each in opened.partitions}

    def _owned(self) -> Partitions:
        """The partitions, while the consumer is this query's."""
        if self._options.consumer and self._epoch is None:
            # The checkpoint says where the query is. A consumer that was deleted meanwhile keeps what there still is.
            self._epoch = self._connected().open_consumer({}, from_latest=False).epoch
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
