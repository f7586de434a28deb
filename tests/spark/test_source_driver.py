"""Offsets and consumers, as the process beside the driver deals with them: what Spark asks, asked without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from quintet_spark.schemas import EVENTS
from quintet_spark.source.link import SourceError, TakenOverError
from quintet_spark.source.options import STREAM, Options
from quintet_spark.source.stream import LogStreamReader

from tests.support.core import running_core
from tests.support.event_log import partitions_of, put_jobs
from tests.support.stack import CorePart

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    with running_core(QUINTET_EVENTS_TAIL="1000000") as core:
        put_jobs(core.target, "work", 30)
        yield core


@pytest.fixture
def consumer() -> str:
    return f"consumer-{uuid.uuid4().hex[:8]}"


def reader(core: CorePart, **told: Any) -> LogStreamReader:
    options = {"endpoint": core.target, **{name: str(value) for name, value in told.items()}}
    return LogStreamReader(Options.of(options, STREAM), EVENTS)


def last_offsets(core: CorePart) -> dict[str, int]:
    return {str(held.partition): held.last_offset for held in partitions_of(core.target)}


@pytest.mark.parametrize("start", ["earliest", "latest", "1"])
def test_the_beginning_is_the_same_after_a_crash_in_the_first_batch(core: CorePart, consumer: str, start: str) -> None:
    before = reader(core, consumer=consumer, start=start)
    begin = before.initialOffset()
    put_jobs(core.target, "work", 10)
    end = before.latestOffset(begin, ALL)
    planned = before.partitions(begin, end)
    put_jobs(core.target, "work", 10)
    after = reader(core, consumer=consumer, start=start)
    assert after.initialOffset() == begin == before.initialOffset()
    assert after.partitions(after.initialOffset(), end) == planned
    assert sum(each.through - each.after for each in planned) >= 10  # type: ignore[attr-defined]


def test_without_a_consumer_it_is_the_same_while_the_query_lives(core: CorePart) -> None:
    before = reader(core, start="latest")
    begin = before.initialOffset()
    put_jobs(core.target, "work", 10)
    assert before.initialOffset() == begin
    end = before.latestOffset(begin, ALL)
    put_jobs(core.target, "work", 10)
    after = reader(core, start="latest")
    with pytest.raises(SourceError, match="A query with a consumer knows"):
        after.partitions(after.initialOffset(), end)


def test_a_zombie_can_neither_go_on_nor_commit(core: CorePart, consumer: str) -> None:
    zombie = reader(core, consumer=consumer)
    begin = zombie.initialOffset()
    end = zombie.latestOffset(begin, ReadMaxRows(5))
    reader(core, consumer=consumer).initialOffset()
    for deed in (
        lambda: zombie.latestOffset(end, ALL),
        lambda: zombie.partitions(begin, end),
        lambda: zombie.commit(end),
        lambda: zombie._connected().commit({0: 0}, zombie._epoch or 0),
    ):
        with pytest.raises(TakenOverError, match=f"taken over consumer '{consumer}'"):
            deed()
    assert all(held.committed_offset == 0 for held in partitions_of(core.target, consumer))


def test_a_reader_that_only_plans_or_reads_opens_nothing(core: CorePart, consumer: str) -> None:
    own = reader(core, consumer=consumer)
    own.initialOffset()
    end = own.latestOffset(own.initialOffset(), ALL)
    planned = own.partitions(own.initialOffset(), end)
    other = reader(core, consumer=consumer)
    assert sum(batch.num_rows for each in planned for batch in other.read(each)) == sum(end.values())
    own.commit(end)
    assert {str(held.partition): held.committed_offset for held in partitions_of(core.target, consumer)} == end


def test_the_target_of_available_now_is_never_passed(core: CorePart) -> None:
    now = reader(core)
    now.prepareForTriggerAvailableNow()
    target = last_offsets(core)
    put_jobs(core.target, "work", 20)
    at = now.initialOffset()
    while (ahead := now.latestOffset(at, ReadMaxRows(7))) != at:
        assert sum(ahead.values()) - sum(at.values()) <= 7
        at = ahead
    assert at == target
    assert now.reportLatestOffset() == last_offsets(core) != target


def test_the_checkpoint_of_another_quintet_is_refused(core: CorePart) -> None:
    lasts = last_offsets(core)
    with pytest.raises(SourceError, match=r"offsets are of 1 partitions, but the core at .* has 16"):
        reader(core).latestOffset({"0": 0}, ALL)
    with pytest.raises(SourceError, match="shorter than what was read of it: partition 3 ends with"):
        reader(core).latestOffset({**lasts, "3": lasts["3"] + 1}, ALL)
    with pytest.raises(SourceError, match="shorter than what was read of it"):
        reader(core).partitions(lasts, {**lasts, "3": lasts["3"] + 1})
    with pytest.raises(SourceError, match="not of this source"):
        reader(core).latestOffset({"index": 5}, ALL)
