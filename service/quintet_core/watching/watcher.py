"""One who follows the log: how far it has come in each partition, and what waits to be told to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintet_core.domain.errors import Refusal
from quintet_core.watching.interest import Interest

# What waits for one watcher; beyond it the watcher is taken off the live end, and reads the log when it has room again.
BUFFER_BYTES_MAX = 2 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded events in commit order of each partition, and how far they reach: everything up to the offsets was told.
    Offsets of partitions that did not move are left out; a batch may hold nothing but offsets."""

    data: bytes
    events: int
    offsets: list[tuple[int, int]]


class Watcher:
    """Made by Watches.open; `take` what comes, then `Watches.close` it."""

    def __init__(
        self, interest: Interest, cursors: Mapping[int, int], positions: Mapping[int, int], may_be_ahead: bool = False
    ) -> None:
        self.interest = interest
        # It may have begun behind the end of the log.
        self.may_be_ahead = may_be_ahead
        # Up to where each partition was taken into the buffer, or is not wanted. A partition that is followed live has
        # come as far as what follows it, when that is further.
        self.cursors = dict(cursors)
        # Partitions whose log is to be read before they can be followed live.
        self.behind: set[int] = set()
        self.ending: Refusal | None = None
        # Offsets of what is followed live, by partition.
        self._positions = positions
        self._told: dict[int, int] = {}
        self._chunks: list[bytes] = []
        self._events = 0
        self._bytes = 0
        self._next_at = 0.0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def offset(self, partition: int) -> int:
        """Up to where everything was taken into the buffer or is not wanted."""
        cursor = self.cursors[partition]
        return cursor if partition in self.behind else max(cursor, self._positions.get(partition, 0))

    @property
    def partitions(self) -> Sequence[int]:
        """What it follows."""
        return list(self.cursors)

    # --- what comes

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may wait. What is alone may be of any size."""
        if not self._bytes or self._bytes + size <= BUFFER_BYTES_MAX:
            return True
        self._room.clear()
        return False

    async def wait_room(self) -> None:
        """Return when what waited was taken, unless there was room; or when it has ended."""
        await self._room.wait()

    def push(self, data: bytes, events: int) -> None:
        """Encoded events; the cursor is the caller's affair."""
        self._chunks.append(data)
        self._events += events
        self._bytes += len(data)
        if self._bytes > BUFFER_BYTES_MAX // 2:
            self._room.clear()
        self._wake.set()

    def nudge(self) -> None:
        """Tell how far it has come, when that is news."""
        if not self._chunks and any(self.offset(partition) != told for partition, told in self._told.items()):
            self._wake.set()

    def end(self, why: Refusal) -> None:
        """No more is to be taken. What waits still is for whoever resumes."""
        if self.ending is None:
            self.ending = why
        self._chunks = []
        self._wake.set()
        self._room.set()

    # --- what goes

    async def take(self, pace_s: float) -> Batch | Refusal:
        """What has come, when there is some; the first time at once. The next is not given before `pace_s` have passed,
        so that many watchers of many changes are told in few writes. The refusal is the end."""
        loop = asyncio.get_running_loop()
        if self._told:
            await self._wake.wait()
            if (pause_s := self._next_at - loop.time()) > 0:
                await asyncio.sleep(pause_s)
        self._wake.clear()
        if self.ending is not None:
            return self.ending
        self._next_at = loop.time() + pace_s
        chunks, events = self._chunks, self._events
        self._chunks, self._events, self._bytes = [], 0, 0
        self._room.set()
        return Batch(b"".join(chunks), events, self._progress())

    def _progress(self) -> list[tuple[int, int]]:
        moved = []
        for partition in self.cursors:
            offset = self.offset(partition)
            if self._told.get(partition) != offset:
                self._told[partition] = offset
                moved.append((partition, offset))
        return moved
