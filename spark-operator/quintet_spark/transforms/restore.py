"""A table as it was: rebuilt from the archived events of its rows.

A table lives in one partition, so the offsets of its events are the order of its changes; times only choose where to
stop. What readers saw is what counts: a row was gone from its deadline on, and a deleted table at once, though the
events that tell of either came behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, BooleanType, LongType, StructField, StructType, TimestampType

ROW_KINDS = ("row_put", "row_deleted", "row_expired")
TABLE_KINDS = ("table_created", "table_updated", "table_deleted")

RESTORED: StructType = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("value_bytes", LongType()),
        StructField("is_missing", BooleanType()),
        StructField("expires_at", TimestampType()),
        StructField("version", LongType()),
    ]
)
"""One row is a row of the table. `is_missing`: its event did not carry the value, and `value` is null. `version` is
the offset of the put that wrote it; `expires_at` is null when it lives until deleted."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to where the log counts: offset `through_offset` of the table's partition; deadlines are judged at `at_ms`.

    `since_offset`: where the table was made, or seen first; what came before is of an earlier table of its name.
    `exists`: there was such a table. `is_whole`: the archive has seen it made. `absent`: offsets from `since_offset`
    to `through_offset` that the archive does not hold, lost or not shown to whoever wrote it.
    """

    partition: int
    since_offset: int
    through_offset: int
    at_ms: int
    exists: bool
    is_whole: bool
    absent: int


class NoSuchTableError(Exception):
    """The archive holds no event of such a table up to the instant or offset asked for."""


def of_table(events: DataFrame, namespace: str, table: str) -> DataFrame:
    """EVENTS -> the events of one table and its rows."""
    return events.where(
        (F.col("namespace") == namespace) & (F.col("table") == table) & F.col("kind").isin(*ROW_KINDS, *TABLE_KINDS)
    )


def cut(
    events: DataFrame, table_events: DataFrame, *, at_ms: int | None = None, through_offset: int | None = None
) -> Cut:
    """Where to stop: at an instant (epoch), or behind an offset of the table's partition; with neither, at the end.

    `events` are EVENTS of everything, `table_events` what `of_table` gives of them. Raises `NoSuchTableError` when
    there is nothing to begin with.
    """
    bound = _bound(at_ms, through_offset)
    bounded = events.where(bound)
    kind, offset = F.col("kind"), F.col("offset")
    found = (
        table_events.where(bound)
        .agg(
            F.max("partition").alias("partition"),
            F.min("offset").alias("first"),
            F.coalesce(F.max(F.when(kind == "table_created", offset)), F.lit(0)).alias("created"),
            F.coalesce(F.max(F.when(kind == "table_deleted", offset)), F.lit(0)).alias("deleted"),
        )
        .first()
    )
    if found is None or found["first"] is None:
        raise NoSuchTableError("the archive has no event of such a table up to there")
    is_whole = found["created"] > found["deleted"]
    since = found["created"] if is_whole else max(found["first"], found["deleted"] + 1)
    held = (
        bounded.where((F.col("partition") == found["partition"]) & (offset >= min(since, found["first"])))
        .agg(
            F.max("offset").alias("last"),
            F.max(F.unix_millis("at")).alias("at_ms"),
            F.count_distinct(F.when(offset >= since, offset)).alias("records"),
        )
        .first()
    )
    assert held is not None  # an aggregate over everything has one row
    return Cut(
        partition=found["partition"],
        since_offset=since,
        through_offset=held["last"],
        at_ms=held["at_ms"] if at_ms is None else at_ms,
        # Rows of a deleted table may be told of after its end; that makes no table.
        exists=is_whole or found["deleted"] == 0,
        is_whole=is_whole,
        absent=max(0, held["last"] - since + 1 - held["records"]),
    )


def restored(table_events: DataFrame, where: Cut) -> DataFrame:
    """What `of_table` gives -> RESTORED: the rows that a reader at the cut would have seen."""
    rows = table_events.where(
        F.col("kind").isin(*ROW_KINDS)
        & (F.col("partition") == where.partition)
        & F.col("offset").between(where.since_offset, where.through_offset)
    )
    columns = ("offset", "kind", "payload", "payload_bytes", "expires_at")
    last = rows.groupBy("key").agg(F.max_by(F.struct(*columns), "offset").alias("last"))
    until = F.col("last.expires_at")
    at = F.timestamp_millis(F.lit(where.at_ms))
    there = (
        last.where((F.col("last.kind") == "row_put") & (until.isNull() | (until > at)))
        if where.exists
        else (last.limit(0))
    )
    # Of an empty value nothing need be carried.
    value = F.coalesce(F.col("last.payload"), F.when(F.col("last.payload_bytes") == 0, F.lit(b"")))
    return there.select(
        "key",
        value.alias("value"),
        F.col("last.payload_bytes").cast("long").alias("value_bytes"),
        value.isNull().alias("is_missing"),
        until.alias("expires_at"),
        F.col("last.offset").alias("version"),
    )


def _bound(at_ms: int | None, through_offset: int | None) -> Column:
    bound = F.lit(True)
    if at_ms is not None:
        bound &= F.col("at") <= F.timestamp_millis(F.lit(at_ms))
    if through_offset is not None:
        bound &= F.col("offset") <= through_offset
    return bound
