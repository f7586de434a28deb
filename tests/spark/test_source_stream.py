"""`spark.readStream.format("quintet")`: each event once, through restarts of everything, by one driver at a time."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from quintet.v1 import event_service_pb2 as wire
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet_spark.source import register

from tests.support.core import running_core
from tests.support.event_log import partitions_of, put_everything, put_jobs
from tests.support.stack import CorePart, until

Places = Counter[tuple[int, int]]


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A core whose log keeps everything."""
    with running_core(QUINTET_EVENTS_TAIL="1000000") as core:
        put_everything(core.target)
        yield core


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


class Lake:
    """A folder that a query writes what it reads to, its checkpoint beside it."""

    def __init__(self, spark: SparkSession, folder: Path, core: CorePart) -> None:
        self._spark = spark
        self._folder = folder
        self._core = core

    def stream(self, **options: Any) -> DataFrame:
        told = {name: str(value) for name, value in options.items()}
        return self._spark.readStream.format("quintet").options(endpoint=self._core.target, **told).load()

    def start(self, *, available_now: bool = False, **options: Any) -> StreamingQuery:
        """A query from where the last one ended."""
        writer = self.stream(**options).writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        writer = (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="200 milliseconds")
        )
        return writer.format("parquet").start(str(self._folder / "events"))

    def catch_up(self, **options: Any) -> StreamingQuery:
        """What is there now."""
        query = self.start(available_now=True, **options)
        query.awaitTermination()
        return query

    def places(self) -> Places:
        """Where in the log what has been written is from, and how often it was written."""
        found = self._spark.read.parquet(str(self._folder / "events")).select("partition", "offset").collect()
        return Counter((row.partition, row.offset) for row in found)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, core: CorePart) -> Lake:
    return Lake(spark, tmp_path, core)


@pytest.fixture
def consumer() -> str:
    return f"consumer-{uuid.uuid4().hex[:8]}"


def places_in(core: CorePart) -> Places:
    """Of all that the log has ever held."""
    return Counter(
        (held.partition, offset) for held in partitions_of(core.target) for offset in range(1, held.last_offset + 1)
    )


def committed(core: CorePart, consumer: str) -> dict[int, int]:
    return {held.partition: held.committed_offset for held in partitions_of(core.target, consumer)}


def last_offsets(core: CorePart) -> dict[int, int]:
    return {held.partition: held.last_offset for held in partitions_of(core.target)}


def sizes(query: StreamingQuery) -> list[int]:
    """Of the micro-batches that had something in them."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def failure(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    return str(caught.value)


class TestCatchingUp:
    """What is there now, and no more."""

    def test_takes_each_event_once_in_batches_that_are_not_too_large(self, lake: Lake, core: CorePart) -> None:
        query = lake.catch_up(maxEventsPerBatch=300, splitEvents=60)
        assert lake.places() == places_in(core)
        assert sizes(query)[0] == max(sizes(query)) == 300
        assert len(sizes(query)) > 1

    def test_goes_on_where_it_ended(self, lake: Lake, core: CorePart, consumer: str) -> None:
        lake.catch_up(consumer=consumer)
        assert committed(core, consumer) == last_offsets(core)
        put_jobs(core.target, "more", 50)
        query = lake.catch_up(consumer=consumer)
        assert lake.places() == places_in(core)
        assert sum(sizes(query)) in (50, 51)  # and the queue's creation

    def test_ends_though_more_is_written_meanwhile(
        self, lake: Lake, core: CorePart, tmp_path: Path, spark: SparkSession
    ) -> None:
        there, seen = sum(places_in(core).values()), list[int]()

        def write_on(frame: DataFrame, _: int) -> None:
            seen.append(frame.count())
            put_jobs(core.target, "meanwhile", 60)

        writer = lake.stream(maxEventsPerBatch=400).writeStream.foreachBatch(write_on).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        assert sum(seen) == there
        assert len(seen) > 1

    def test_reads_a_batch_that_failed_again_as_it_was(self, lake: Lake, core: CorePart, tmp_path: Path) -> None:
        seen = list[list[tuple[int, int]]]()

        def run(fails: bool) -> StreamingQuery:
            def take(frame: DataFrame, _: int) -> None:
                rows = frame.select("partition", "offset").collect()
                seen.append(sorted((row.partition, row.offset) for row in rows))
                if fails:
                    raise RuntimeError("not written")

            writer = lake.stream(maxEventsPerBatch=400).writeStream.foreachBatch(take).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

        assert "not written" in failure(run(fails=True))
        put_jobs(core.target, "later", 30)
        run(fails=False).awaitTermination()
        assert seen[0] == seen[1]
        assert Counter(place for batch in seen[1:] for place in batch) == places_in(core)

    def test_begins_where_it_is_told(self, lake: Lake, core: CorePart) -> None:
        query = lake.catch_up(start="latest")
        assert sizes(query) == []
        put_jobs(core.target, "fresh", 20)
        assert sum(sizes(lake.catch_up(start="latest"))) in (20, 21)


class TestAConsumer:
    """In whose name a query commits."""

    def test_has_come_as_far_as_the_query(self, lake: Lake, core: CorePart, consumer: str) -> None:
        query = lake.start(consumer=consumer)
        until(lambda: committed(core, consumer) == last_offsets(core), "the query commits")
        put_jobs(core.target, "work", 10)
        until(lambda: committed(core, consumer) == last_offsets(core), "the query commits again")
        progress = next(each for each in reversed(query.recentProgress) if each.numInputRows)
        query.stop()
        assert lake.places() == places_in(core)
        assert progress.sources[0].latestOffset == progress.sources[0].endOffset

    def test_is_taken_over_by_a_later_driver(
        self, lake: Lake, core: CorePart, consumer: str, spark: SparkSession, tmp_path: Path
    ) -> None:
        older = lake.start(consumer=consumer)
        until(lambda: committed(core, consumer) == last_offsets(core), "the older driver works")
        newer = Lake(spark, tmp_path / "newer", core).start(consumer=consumer)
        told = failure(older)
        assert f"another driver has taken over consumer '{consumer}' of the events log" in told
        put_jobs(core.target, "work", 10)
        until(lambda: committed(core, consumer) == last_offsets(core), "the newer driver works")
        assert newer.exception() is None
        newer.stop()

    def test_is_where_a_query_without_a_checkpoint_begins(self, lake: Lake, core: CorePart, consumer: str) -> None:
        with grpc.insecure_channel(core.target) as channel:
            service = EventServiceStub(channel)
            service.OpenConsumer(wire.OpenConsumerRequest(consumer=consumer, from_latest=True))
        put_jobs(core.target, "work", 10)
        query = lake.catch_up(consumer=consumer, start="earliest")
        assert sum(sizes(query)) in (10, 11)


def test_a_restart_of_core_and_redis_costs_nothing(lake: Lake, core: CorePart, consumer: str) -> None:
    query = lake.start(consumer=consumer, maxEventsPerBatch=300, splitEvents=40)
    until(lambda: bool(sizes(query)), "the query reads")
    for _ in range(2):
        core.kill9()
        core.redis.restart()
        core.start()
        put_jobs(core.target, "restarted", 500)
    until(lambda: committed(core, consumer) == last_offsets(core), "the query catches up")
    assert query.exception() is None
    query.stop()
    assert lake.places() == places_in(core)


class TestALogThatWasTrimmed:
    """Before a query had read it."""

    @pytest.fixture
    def core(self) -> Iterator[CorePart]:
        """A core whose log keeps what consumers need, and no more."""
        with running_core(QUINTET_EVENTS_TAIL="0", QUINTET_EVENTS_KEEP_MS="0") as core:
            yield core

    @pytest.fixture
    def lost(self, lake: Lake, core: CorePart) -> int:
        """The partition of which events are lost: they were written after the query stopped."""
        lake.catch_up(start="latest", failOnDataLoss=False)
        before = last_offsets(core)
        put_jobs(core.target, "work", 100)
        partition = next(each for each, last in last_offsets(core).items() if last > before[each])
        put_jobs(core.target, "work", 1)
        until(lambda: _first(core, partition) > before[partition] + 1, "the log is trimmed")
        return partition

    def test_fails_the_query_in_words(self, lake: Lake, core: CorePart, lost: int) -> None:
        told = failure(lake.start(available_now=True))
        assert f"records of partition {lost} of the events log are gone: offsets " in told
        assert f"the oldest held is {_first(core, lost)}" in told
        assert "failOnDataLoss" in told

    def test_is_passed_over_where_that_is_allowed(self, lake: Lake, core: CorePart, lost: int) -> None:
        lake.catch_up(failOnDataLoss=False)
        last, first = last_offsets(core)[lost], _first(core, lost)
        assert lake.places()[(lost, last)] == 1
        assert not lake.places()[(lost, first - 1)]


def _first(core: CorePart, partition: int) -> int:
    return next(each.first_offset for each in partitions_of(core.target) if each.partition == partition)
