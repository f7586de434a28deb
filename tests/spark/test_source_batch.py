"""`spark.read.format("quintet")`: the log of a real core, whole and in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType
from quintet_spark.schemas import EVENTS
from quintet_spark.source import register

from tests.support.core import running_core
from tests.support.event_log import event_rows_of, partitions_of, put_everything
from tests.support.redis_server import PARTITIONS
from tests.support.stack import CorePart

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A core whose log keeps everything: two namespaces, jobs and rows."""
    with running_core(QUINTET_EVENTS_TAIL="1000000") as core:
        put_everything(core.target)
        put_everything(core.target, "other", queues=2)
        yield core


@pytest.fixture(scope="module")
def written(core: CorePart) -> Rows:
    """Every event as ReadEvents tells it."""
    return event_rows_of(core.target)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, core: CorePart, **options: Any) -> DataFrame:
    told = {name: str(value) for name, value in options.items()}
    return spark.read.format("quintet").options(endpoint=core.target, **told).load()


def rows(frame: DataFrame) -> Rows:
    """In the order of the log, instants in UTC."""
    found = [row.asDict() for row in frame.orderBy("partition", "offset").collect()]
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def without_payload(found: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name != "payload"} for row in found]


class TestTheWholeLog:
    """Every event, as it was written."""

    def test_is_what_read_events_tells(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        frame = read(spark, core)
        assert frame.schema == EVENTS
        assert without_payload(rows(frame)) == written
        assert len({row["kind"] for row in written}) > 8

    def test_is_the_same_in_any_time_zone(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        usual = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
        try:
            told = read(spark, core).selectExpr("partition", "offset", "unix_millis(at) AS at_ms").collect()
        finally:
            spark.conf.set("spark.sql.session.timeZone", str(usual))
        found = {(row.partition, row.offset): row.at_ms for row in told}
        assert found == {(row["partition"], row["offset"]): round(row["at"].timestamp() * 1000) for row in written}

    def test_comes_in_as_many_pieces_as_it_is_to_be_split(
        self, spark: SparkSession, core: CorePart, written: Rows
    ) -> None:
        frame = read(spark, core, splitEvents=10)
        lengths = [held.last_offset for held in partitions_of(core.target)]
        assert frame.rdd.getNumPartitions() == sum(-(-length // 10) for length in lengths)
        assert without_payload(rows(frame)) == written

    def test_carries_values_where_their_table_says_so(self, spark: SparkSession, core: CorePart) -> None:
        puts = rows(read(spark, core).where("kind = 'row_put'"))
        assert len(puts) == 80
        for row in puts:
            assert row["payload"] == (b"v" * row["payload_bytes"] if row["table"] == "values" else None)
        assert {row["payload"] for row in rows(read(spark, core, carried=False))} == {None}

    def test_may_be_some_of_its_columns_only(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        wanted = StructType().add("queue", StringType()).add("offset", LongType())
        frame = spark.read.schema(wanted).format("quintet").option("endpoint", core.target).load()
        assert frame.columns == ["queue", "offset"]
        assert sorted((row.offset, row.queue or "") for row in frame.collect()) == sorted(
            (row["offset"], row["queue"] or "") for row in written
        )


class TestAPart:
    """Of the log."""

    def test_is_of_one_namespace(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        wanted = [row for row in written if row["namespace"] == "other"]
        assert without_payload(rows(read(spark, core, namespace="other"))) == wanted
        assert without_payload(rows(read(spark, core).where("namespace = 'other'"))) == wanted

    def test_is_between_offsets(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        busy = max(partitions_of(core.target), key=lambda held: held.last_offset).partition
        start, end = json.dumps({str(busy): 3}), json.dumps({str(busy): 7})
        offsets = [row["offset"] for row in rows(read(spark, core, start=start, end=end)) if row["partition"] == busy]
        assert offsets == [4, 5, 6, 7]

    def test_is_between_moments(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        moments = sorted({row["at"] for row in written})
        begin, end = moments[len(moments) // 3], moments[2 * len(moments) // 3]
        wanted = [row for row in written if begin <= row["at"] < end]
        assert wanted
        frame = read(spark, core, start=begin.isoformat(), end=round(end.timestamp() * 1000))
        assert without_payload(rows(frame)) == wanted
        filtered = read(spark, core).where(f"at >= '{begin.isoformat()}' AND at < '{end.isoformat()}'")
        assert without_payload(rows(filtered)) == wanted

    def test_behind_the_last_event_is_empty(self, spark: SparkSession, core: CorePart) -> None:
        assert read(spark, core, start="latest").count() == 0

    @pytest.mark.parametrize(
        ("condition", "partitions"),
        [
            ("partition = 3", 1),
            ("partition IN (3, 5)", 2),
            ("partition < 2 AND partition > 5", 1),
            ("offset < 0", 1),
            ("at > '2100-01-01'", 1),
        ],
    )
    def test_that_a_filter_leaves_is_all_that_is_read(
        self, spark: SparkSession, core: CorePart, written: Rows, condition: str, partitions: int
    ) -> None:
        frame = read(spark, core).where(condition)
        assert frame.rdd.getNumPartitions() <= partitions
        held = spark.createDataFrame(
            [(row["partition"], row["offset"], row["at"]) for row in written],
            "partition int, offset long, at timestamp",
        )
        assert frame.count() == held.where(condition).count()

    def test_of_the_offsets_spares_whole_partitions(self, spark: SparkSession, core: CorePart, written: Rows) -> None:
        longest = max(row["offset"] for row in written)
        frame = read(spark, core).where(f"offset = {longest}")
        assert frame.rdd.getNumPartitions() <= sum(held.last_offset >= longest for held in partitions_of(core.target))
        assert frame.count() >= 1


class TestWhatCannotBeRead:
    """Is refused in words, and in time."""

    def test_options_are_refused_when_they_are_given(self, spark: SparkSession) -> None:
        with pytest.raises(AnalysisException, match=r"endpoint 'nowhere': must be host:port.*tokens: there is no such"):
            spark.read.format("quintet").options(endpoint="nowhere", tokens="hush").load()

    def test_an_endpoint_where_nobody_is(self, spark: SparkSession) -> None:
        nobody = "unix:/nowhere/core.sock"
        with pytest.raises(PySparkException, match=rf"core at {nobody} was not there for 200 ms") as caught:
            spark.read.format("quintet").options(endpoint=nobody, retryMs="200", token="hush-hush").load().count()
        assert "hush-hush" not in str(caught.value)

    def test_offsets_that_are_not_there_yet(self, spark: SparkSession, core: CorePart) -> None:
        with pytest.raises(PySparkException, match="offsets that are not there yet"):
            read(spark, core, start=json.dumps({"0": 10**9})).count()
        with pytest.raises(PySparkException, match="offsets that are not there yet, or no partitions: 99: 1"):
            read(spark, core, end=json.dumps({"99": 1})).count()
        assert PARTITIONS < 99

    def test_a_file_that_is_not_there(self, spark: SparkSession, core: CorePart) -> None:
        with pytest.raises(PySparkException, match=r"cannot be read.*/nowhere/token"):
            read(spark, core, tokenFile="/nowhere/token").count()

    def test_a_log_where_filters_are_not_pushed(self, spark: SparkSession, core: CorePart) -> None:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        with pytest.raises(PySparkException, match="filterPushdown"):
            read(spark, core).count()


def test_a_token_is_in_no_plan(spark: SparkSession, core: CorePart) -> None:
    frame = read(spark, core, token="hush-hush")
    assert frame.count()
    assert "hush-hush" not in str(frame._jdf.queryExecution())
