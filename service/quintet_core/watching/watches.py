"""All who follow the event log at this replica.

Who comes, or comes back, reads the log from where it was (`RedisStore.read_entries`), and joins the live end of each
partition when it has come as far. Both count by offsets, and nothing is awaited between the last read and the joining:
there is no gap, and nothing comes twice. Who is too slow for the live end leaves it, and reads the log again when it
has room; so does everyone where the live reader missed something. Who wants what the log no longer holds is told
OFFSET_TRIMMED.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.event import PartitionLog
from quintet_core.storage.event_log import Entry, events_in, last_offset_of
from quintet_core.storage.redis_store import RedisStore
from quintet_core.watching.feed import Encode, Feed, Selector
from quintet_core.watching.interest import Interest
from quintet_core.watching.watcher import Batch, Watcher

# With the pace of writes on top it stays below the second that is promised.
PROGRESS_S = 0.8
EVENTS_PER_READ = 1000
# Answers of up to 8 MiB each that may be in memory at once.
READS_AT_ONCE_MAX = 4
# A write to one watcher costs so much that all together must not take more than a part of the time.
PACE_PER_WATCHER_S = 0.0005
PACE_S_MAX = 0.1
_AGAIN_S = 0.1
_LOST = refusal(Reason.OFFSET_TRIMMED, "Redis has lost the end of the log that was told already")


class Watches:
    """Implements storage.log_tail.Follower. `on_followed` is called when one more partition is to be read live;
    `on_told` with how many events were given to a watcher, `on_fallen_behind` when one was too slow."""

    def __init__(
        self, store: RedisStore, encode: Encode, on_told: Callable[[int], None], on_fallen_behind: Callable[[], None]
    ) -> None:
        self._store = store
        self._encode = encode
        self._on_told = on_told
        self._on_fallen_behind = on_fallen_behind
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._positions: dict[int, int] = {}
        self._watchers: dict[Watcher, asyncio.Task[None] | None] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE_MAX)
        self._ticker: asyncio.TimerHandle | None = None
        self._closed: Refusal | None = None
        self.on_followed = _nobody

    @property
    def open_watches(self) -> int:
        """Watchers."""
        return len(self._watchers)

    @property
    def lag_events(self) -> int:
        """How many events the last of the watchers is behind what the live reader has seen."""
        behind = (
            self._positions.get(partition, 0) - watcher.offset(partition)
            for watcher in self._watchers
            for partition in watcher.behind
        )
        return max(0, max(behind, default=0))

    # --- one watcher

    async def open(
        self,
        interest: Interest,
        partitions: Iterable[int],
        starts: Mapping[int, int],
        *,
        from_earliest: bool = False,
        may_be_ahead: bool = False,
    ) -> Watcher | Refusal:
        """Follow partitions from offsets on; those without a start from now, or from the oldest event held. Refusals:
        OFFSET_TRIMMED, DRAINING, UNAVAILABLE. `may_be_ahead`: a start behind the end of the log is waited for."""
        logs = await asyncio.gather(*(self._store.describe_events(partition, "") for partition in partitions))
        cursors: dict[int, int] = {}
        for log in logs:
            if isinstance(log, Refusal):
                return log
            first, last = log.first_offset - 1, log.last_offset
            cursor = cursors[log.partition] = starts.get(log.partition, first if from_earliest else last)
            if cursor < first or (cursor > last and not may_be_ahead):
                return _trimmed(log)
        if self._closed is not None:
            return self._closed
        watcher = Watcher(interest, cursors, MappingProxyType(self._positions), may_be_ahead)
        self._watchers[watcher] = None
        self._catch_up(watcher, cursors)
        if self._ticker is None:
            self._ticker = self._loop.call_later(PROGRESS_S, self._tick)
        return watcher

    async def take(self, watcher: Watcher) -> Batch | Refusal:
        """What comes next for a watcher."""
        batch = await watcher.take(min(PACE_S_MAX, PACE_PER_WATCHER_S * len(self._watchers)))
        if isinstance(batch, Batch):
            self._on_told(batch.events)
        return batch

    def close(self, watcher: Watcher) -> None:
        """It follows no more."""
        watcher.end(refusal(Reason.CANCELLED))
        task = self._watchers.pop(watcher, None)
        if task is not None:
            task.cancel()
        for partition in watcher.partitions:
            self._leave(watcher, partition)

    def close_all(self, why: Refusal) -> None:
        """End everyone, and refuse who comes."""
        self._closed = why
        for watcher in self._watchers:
            watcher.end(why)

    def _leave(self, watcher: Watcher, partition: int) -> None:
        feed = self._feeds.get(partition)
        if feed is not None:
            feed.leave(watcher)
            if feed.empty:
                del self._feeds[partition], self._positions[partition]

    def _tick(self) -> None:
        self._ticker = None
        for watcher in self._watchers:
            watcher.nudge()
        if self._watchers:
            self._ticker = self._loop.call_later(PROGRESS_S, self._tick)

    # --- reading the log

    def _catch_up(self, watcher: Watcher, partitions: Iterable[int]) -> None:
        watcher.behind.update(partitions)
        if watcher in self._watchers and self._watchers[watcher] is None:
            self._watchers[watcher] = asyncio.ensure_future(self._read_all(watcher))

    async def _read_all(self, watcher: Watcher) -> None:
        """Until it has come as far as the live end in every partition."""
        selectors: dict[int, Selector] = {}
        try:
            while watcher.behind and watcher.ending is None:
                for partition in sorted(watcher.behind):
                    selector = selectors.get(partition)
                    if selector is None:
                        selector = selectors[partition] = self._selector(partition)
                        selector.set_interests((watcher.interest,))
                    await watcher.wait_room()
                    await self._read_some(watcher, partition, selector)
        except Exception:
            get_logger().exception("watch_failed")
            watcher.end(refusal(Reason.DAMAGED, "the event log holds something else than was written"))
        finally:
            if watcher in self._watchers:
                self._watchers[watcher] = None

    async def _read_some(self, watcher: Watcher, partition: int, selector: Selector) -> None:
        async with self._reads:
            outcome = await self._store.read_entries(partition, watcher.cursors[partition], EVENTS_PER_READ)
        if isinstance(outcome, Refusal):
            if outcome.reason is not Reason.UNAVAILABLE:
                watcher.end(outcome)
            # Redis is away: a watch outlives that.
            await asyncio.sleep(_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
            return
        entries, last = outcome
        if watcher.cursors[partition] > last and not watcher.may_be_ahead:
            watcher.end(_LOST)
            return
        for entry in entries:
            if not self._take_read(watcher, partition, selector, entry):
                return
        if watcher.cursors[partition] >= last:
            self._join(watcher, partition, last)

    def _take_read(self, watcher: Watcher, partition: int, selector: Selector, entry: Entry) -> bool:
        """False: there is no room for it now."""
        cursor = watcher.cursors[partition]
        for pieces in selector.select(entry).values():
            chosen = [encoded for offset, encoded in pieces if offset > cursor]
            data = b"".join(chosen)
            if not watcher.has_room(len(data)):
                return False
            if chosen:
                watcher.push(data, len(chosen))
        watcher.cursors[partition] = max(cursor, last_offset_of(entry[0]))
        return True

    def _join(self, watcher: Watcher, partition: int, last: int) -> None:
        """It has read to the end of the log: on from there live, unless the live end is further already."""
        feed = self._feeds.get(partition)
        if feed is None:
            feed = self._feeds[partition] = Feed(partition, last, self._selector(partition))
            self._positions[partition] = last
            self._loop.call_soon(self.on_followed)
        if watcher.cursors[partition] >= feed.last and watcher in self._watchers:
            watcher.behind.discard(partition)
            feed.join(watcher)

    def _selector(self, partition: int) -> Selector:
        return Selector(partition, self._store.partitions, self._encode)

    # --- the live end, as storage.log_tail.Follower

    def positions(self) -> Mapping[int, int]:
        """As Follower."""
        return self._positions

    def on_entries(self, partition: int, entries: list[Entry]) -> None:
        """As Follower."""
        feed = self._feeds.get(partition)
        if feed is None:
            return
        try:
            self._check_gap(feed, entries)
            for entry in entries:
                # A feed that was begun anew may be further than the read that was on its way.
                if last_offset_of(entry[0]) > feed.last:
                    for watcher in feed.take(entry):
                        self._on_fallen_behind()
                        self._catch_up(watcher, (partition,))
                    self._positions[partition] = feed.last
        except Exception:
            # Whoever follows finds it in the log, and is told of damage.
            get_logger().exception("log_entry_not_understood", partition=partition)
            self._scatter(feed)
            self._advance(partition, last_offset_of(entries[-1][0]))
        if (current := self._feeds.get(partition)) is not None and current.empty:
            del self._feeds[partition], self._positions[partition]

    def _check_gap(self, feed: Feed, entries: list[Entry]) -> None:
        """Entries that were trimmed before they were read."""
        last, first = last_offset_of(entries[0][0]), feed.last + 1
        if last > feed.last and last - events_in(entries[0][3]) + 1 > first:
            get_logger().warning("log_reader_late", partition=feed.partition, last_offset=feed.last)
            self._scatter(feed)

    def _scatter(self, feed: Feed) -> None:
        """All who follow are to read the log from where they are."""
        for watcher in feed.followers:
            feed.leave(watcher)
            self._catch_up(watcher, (feed.partition,))

    def _advance(self, partition: int, last: int) -> None:
        if (feed := self._feeds.get(partition)) is not None:
            feed.last = self._positions[partition] = max(feed.last, last)

    def on_loss(self, partition: int) -> None:
        """As Follower."""
        feed = self._feeds.pop(partition, None)
        self._positions.pop(partition, None)
        for watcher in feed.followers if feed is not None else ():
            watcher.end(_LOST)

    def on_damage(self) -> None:
        """As Follower."""
        for partition, feed in list(self._feeds.items()):
            self._scatter(feed)
            del self._feeds[partition], self._positions[partition]


def _trimmed(log: PartitionLog) -> Refusal:
    return refusal(
        Reason.OFFSET_TRIMMED,
        partition=str(log.partition),
        first_offset=str(log.first_offset),
        last_offset=str(log.last_offset),
    )


def _nobody() -> None:
    """Until there is a reader."""
