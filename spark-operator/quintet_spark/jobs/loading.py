"""Rows back into a table, through the core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from quintet_client import Client, RowPut, TableNotFoundError, TableSettings, TimeToLive, UnavailableError

BATCH_ROWS_MAX = 100
BATCH_BYTES_MAX = 4 * 1024 * 1024
RETRY_S = 60.0
_PAUSE_S = 0.1

Existing = Literal["refuse", "merge", "replace"]
Ttl = Literal["absolute", "remaining", "none"]


class TableNotEmptyError(Exception):
    """The table that would be written to has rows, and nobody said what is to become of them."""


@dataclass(frozen=True, slots=True)
class RestoredRow:
    """A row to write. `expires_at_ms` None: it lives until deleted."""

    key: bytes
    value: bytes
    expires_at_ms: int | None


@dataclass(slots=True)
class Loaded:
    """What was done so far. `lapsed` rows are those whose deadline has passed since."""

    written: int = 0
    lapsed: int = 0


async def make_room(client: Client, table: str, existing: Existing, carry_values: bool) -> None:
    """See that there is a table to write to. Raises `TableNotEmptyError`.

    Of one that is replaced the settings are kept; readers see it empty until its rows are written."""
    try:
        there = await client.get_table(table)
    except TableNotFoundError:
        await client.create_table(table, TableSettings(events_carry_values=carry_values))
        return
    # What the core counts may be rows that have expired: only looking tells.
    if existing == "merge" or there.rows == 0 or await _is_empty(client, table):
        return
    if existing == "refuse":
        raise TableNotEmptyError(
            f"table {table!r} in namespace {client.namespace!r} has rows. Say --existing merge to write over them, "
            "--existing replace to delete them first, or --into another table"
        )
    await client.delete_table(table)
    await client.create_table(table, there.settings)


async def _is_empty(client: Client, table: str) -> bool:
    async for _ in client.scan_rows(table, keys_only=True, page_size=1):
        return False
    return True


async def load(
    client: Client,
    table: str,
    rows: Iterable[RestoredRow],
    *,
    ttl: Ttl,
    at_ms: int,
    progress: Callable[[Loaded], None],
) -> Loaded:
    """Write rows in batches, each of them all or none; again with the same rows it ends the same.

    `ttl`: "absolute" keeps deadlines and leaves out rows whose time has passed, "remaining" gives each row as long as
    it had to live at `at_ms`, "none" ends deadlines. Deadlines are counted by this machine's clock: the API takes times
    to live, not instants.
    """
    done = Loaded()
    batches = _batches(rows)
    # Rows come from Spark, which blocks; the client's session has to live meanwhile.
    while batch := await asyncio.to_thread(next, batches, None):
        now_ms = time.time_ns() // 1_000_000
        writes = [write for row in batch if (write := _write(row, ttl, at_ms, now_ms)) is not None]
        if writes:
            await _write_through(client, table, writes)
        done.written += len(writes)
        done.lapsed += len(batch) - len(writes)
        progress(done)
    return done


async def _write_through(client: Client, table: str, writes: list[RowPut]) -> None:
    """What may have been written is written again: it ends the same."""
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            await client.write_rows(table, writes, create_if_missing=False)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE_S)
        else:
            return


def _write(row: RestoredRow, ttl: Ttl, at_ms: int, now_ms: int) -> RowPut | None:
    if row.expires_at_ms is None or ttl == "none":
        return RowPut(row.key, row.value, ttl_ms=TimeToLive.CLEAR)
    remaining_ms = row.expires_at_ms - (now_ms if ttl == "absolute" else at_ms)
    return RowPut(row.key, row.value, ttl_ms=remaining_ms) if remaining_ms > 0 else None


def _batches(rows: Iterable[RestoredRow]) -> Iterator[list[RestoredRow]]:
    batch: list[RestoredRow] = []
    held = 0
    for row in rows:
        if batch and (len(batch) == BATCH_ROWS_MAX or held + len(row.value) > BATCH_BYTES_MAX):
            yield batch
            batch, held = [], 0
        batch.append(row)
        held += len(row.value)
    if batch:
        yield batch
