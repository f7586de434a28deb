"""The restore job: a table as it was, from the archive back into a core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from quintet_client import Client, Credentials
from quintet_kit.logs import get_logger

from quintet_spark.jobs.lake import Lake
from quintet_spark.jobs.loading import Loaded, RestoredRow, load, make_room
from quintet_spark.jobs.running import JobError
from quintet_spark.jobs.settings import RestoreSettings
from quintet_spark.transforms.archive import events_of, in_namespace
from quintet_spark.transforms.restore import Cut, NoSuchTableError, cut, of_table, restored

_TELL_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which table, as of when, and where to. Of `at_ms` (epoch) and `through_offset` at most one is given."""

    table: str
    into: str
    at_ms: int | None = None
    through_offset: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What was found and done. `missing` rows are those whose value the archive does not hold."""

    cut: Cut
    rows: int
    missing: int
    loaded: Loaded


def run(spark: SparkSession, settings: RestoreSettings, wanted: Wanted) -> Restored:
    """Rebuild and load. Raises `JobError`, before anything is written, when the table cannot be had as it was."""
    archive = Lake(settings).events().read(spark)
    if wanted.at_ms is not None:
        last_day = datetime.fromtimestamp(wanted.at_ms / 1000, UTC).date()
        archive = archive.where(F.col("date") <= F.lit(last_day))
    namespace = settings.spark_namespace
    table_events = of_table(events_of(in_namespace(archive, namespace)), namespace, wanted.table)
    where = _cut(events_of(archive), table_events, wanted)
    rows = restored(table_events, where).persist()
    try:
        return _restored(rows, where, settings, wanted)
    finally:
        rows.unpersist()


def _cut(events: DataFrame, table_events: DataFrame, wanted: Wanted) -> Cut:
    try:
        found = cut(events, table_events, at_ms=wanted.at_ms, through_offset=wanted.through_offset)
    except NoSuchTableError as error:
        raise JobError(f"table {wanted.table!r}: {error}") from None
    if not found.exists:
        raise JobError(f"table {wanted.table!r} did not exist then: it had been deleted")
    return found


def _restored(rows: DataFrame, where: Cut, settings: RestoreSettings, wanted: Wanted) -> Restored:
    counted = rows.agg(F.count("*"), F.count_if("is_missing")).first()
    assert counted is not None  # an aggregate over everything has one row
    count, missing = int(counted[0]), int(counted[1])
    get_logger().info(
        "table_rebuilt",
        table=wanted.table,
        partition=where.partition,
        through_offset=where.through_offset,
        as_of=datetime.fromtimestamp(where.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        rows=count,
        rows_without_value=missing,
        offsets_absent=where.absent,
        seen_from_its_making=where.is_whole,
    )
    _refuse_gaps(where, missing, settings)
    there = rows.where(~F.col("is_missing"))
    loaded = Loaded()
    if not wanted.dry_run:
        loaded = asyncio.run(_load(there, where, settings, wanted, count - missing))
    return Restored(where, count, missing, loaded)


def _refuse_gaps(where: Cut, missing: int, settings: RestoreSettings) -> None:
    faults = []
    if missing:
        faults.append(f"{missing} rows have no value in the archive: their events did not carry it")
    if not where.is_whole:
        faults.append("the archive begins after the table was made: rows written before are unknown")
    if where.absent:
        faults.append(f"{where.absent} records of the table's partition are not in the archive since it was made")
    if faults and not settings.spark_missing_allowed:
        raise JobError("; ".join(faults) + ". To restore the rest all the same: --missing-allowed")


async def _load(rows: DataFrame, where: Cut, settings: RestoreSettings, wanted: Wanted, count: int) -> Loaded:
    namespace = settings.spark_into_namespace or settings.spark_namespace
    client = Client(
        settings.spark_endpoint, namespace=namespace, credentials=_credentials(settings), name="quintet restore"
    )
    told = _Progress(wanted.into, count)
    async with client:
        # Rows that are there were carried by events: the table goes on like that.
        await make_room(client, wanted.into, settings.spark_existing, carry_values=count > 0)
        return await load(
            client, wanted.into, _rows(rows), ttl=settings.spark_ttl, at_ms=where.at_ms, progress=told.tell
        )


def _rows(rows: DataFrame) -> Iterator[RestoredRow]:
    """A partition at a time in memory."""
    columns = rows.select("key", "value", F.unix_millis("expires_at").alias("expires_at_ms"))
    for row in columns.toLocalIterator(prefetchPartitions=True):
        yield RestoredRow(bytes(row.key), bytes(row.value), row.expires_at_ms)


def _credentials(settings: RestoreSettings) -> Credentials:
    files = (settings.spark_ca_file, settings.spark_cert_file, settings.spark_key_file)
    roots, certificate, key = (path.read_bytes() if path else None for path in files)
    return Credentials(
        root_certificates=roots,
        certificate_chain=certificate,
        private_key=key,
        tls=settings.spark_tls,
        token_path=settings.spark_token_file,
        server_name=settings.spark_server_name,
    )


class _Progress:
    def __init__(self, table: str, count: int) -> None:
        self._table, self._count = table, count
        self._begun = self._told = time.monotonic()

    def tell(self, done: Loaded) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_EVERY_S:
            return
        self._told = now
        rows = done.written + done.lapsed
        get_logger().info(
            "rows_written", table=self._table, rows=rows, of=self._count, rows_per_s=round(rows / (now - self._begun))
        )
