"""One stretch of the log, as an executor reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType
from quintet_client.client import Client
from quintet_client.table import TableSettings
from quintet_spark.schemas import EVENTS
from quintet_spark.source.link import CoreAwayError, SourceError
from quintet_spark.source.options import BATCH, Options
from quintet_spark.source.position import Stretch
from quintet_spark.source.reading import read_stretch

from tests.support.core import running_core
from tests.support.event_log import partitions_of, working
from tests.support.redis_server import PARTITIONS
from tests.support.stack import CorePart

ROWS, VALUE_BYTES = 200, 100_000
OFFSETS = StructType([EVENTS["offset"]])


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A core with a log of 20 MB in one partition: more than is under way at once."""

    async def work(client: Client) -> None:
        await client.create_table("large", TableSettings(events_carry_values=True))
        for number in range(ROWS):
            await client.put_row("large", b"%d" % number, number.to_bytes(2, "big") * (VALUE_BYTES // 2))

    with running_core(QUINTET_EVENTS_TAIL="1000000") as core:
        working(core.target, work)
        yield core


@pytest.fixture
def whole(core: CorePart) -> Stretch:
    """The partition that holds something."""
    held = next(each for each in partitions_of(core.target) if each.last_offset)
    return Stretch(held.partition, 0, held.last_offset, PARTITIONS)


def options(core: CorePart, **told: Any) -> Options:
    return Options.of({"endpoint": core.target, **{name: str(value) for name, value in told.items()}}, BATCH)


def test_it_goes_on_where_a_core_that_was_killed_left_off(core: CorePart, whole: Stretch) -> None:
    batches = read_stretch(options(core), EVENTS, whole)
    rows = next(batches).to_pylist()
    core.kill9()
    core.redis.restart()
    core.start()
    rows += [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(1, ROWS + 2))
    puts = [row["payload"] for row in rows if row["kind"] == "row_put"]
    assert puts == [number.to_bytes(2, "big") * (VALUE_BYTES // 2) for number in range(ROWS)]


def test_it_ends_in_words_when_the_core_stays_away(core: CorePart, whole: Stretch) -> None:
    batches = read_stretch(options(core, retryMs=100), EVENTS, whole)
    next(batches)
    core.kill9()
    try:
        with pytest.raises(CoreAwayError, match=r"was not there for 100 ms \(option retryMs\)"):
            list(batches)
    finally:
        core.start()


def test_it_asks_for_payloads_only_where_somebody_wants_them(core: CorePart, whole: Stretch) -> None:
    assert sum(batch.nbytes for batch in read_stretch(options(core), OFFSETS, whole)) < 10_000
    assert sum(batch.nbytes for batch in read_stretch(options(core, carried=False), EVENTS, whole)) < 100_000
    assert sum(batch.nbytes for batch in read_stretch(options(core), EVENTS, whole)) > ROWS * VALUE_BYTES


def test_its_reader_may_leave(core: CorePart, whole: Stretch) -> None:
    batches = read_stretch(options(core), EVENTS, whole)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        next(batches)


def test_what_the_log_does_not_hold_yet_is_refused(core: CorePart, whole: Stretch) -> None:
    beyond = Stretch(whole.partition, whole.through, whole.through + 1, PARTITIONS)
    with pytest.raises(SourceError, match="refused: INVALID_ARGUMENT"):
        list(read_stretch(options(core), EVENTS, beyond))


def test_what_is_of_other_namespaces_is_passed_over(core: CorePart, whole: Stretch) -> None:
    assert list(read_stretch(options(core, namespace="nobody's"), EVENTS, whole)) == []
