"""The length of the logs: a tail and what is young when nobody needs it, else what consumers need; a cap always."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Log
from quintet_core.domain.limits import SEQUENCE_MAX
from quintet_core.maintenance.rounds import in_every_partition
from quintet_core.storage.log_store import Trimmed
from quintet_core.storage.redis_store import RedisStore

PERIOD_S = 1.0
CONSUMERS_SHOWN_MAX = 100
# Records stay up to this part longer than they must; it bounds what is remembered of the past.
SAMPLES_PER_TIME = 100


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays in each partition: the last `tail` records, those younger than `keep_ms`, at most `cap`."""

    tail: int
    keep_ms: int
    cap: int


class _Ages:
    """How far a partition's log was at moments of its clock: what was written by then is at least as old."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._samples: deque[tuple[int, int]] = deque()

    def add(self, last: int, spacing_ms: float) -> None:
        """The log ends here now. Remembered when the last one remembered is far enough behind."""
        if not self._samples or self.now_ms - self._samples[-1][0] >= spacing_ms:
            self._samples.append((self.now_ms, last))

    def older_than(self, age_ms: int) -> int:
        """Up to this offset all events are; 0 while that is not known."""
        before = self.now_ms - age_ms
        while len(self._samples) > 1 and self._samples[1][0] <= before:
            self._samples.popleft()
        return self._samples[0][1] if self._samples and self._samples[0][0] <= before else 0


class LogTrim:
    """Cuts a log in every partition. `on_dropped` is told when the cap cut what a consumer still wanted. A core that
    has just begun does not know how old records are, and cuts by the cap alone for a while."""

    def __init__(
        self, store: RedisStore, terms: Retention, on_dropped: Callable[[], None], log: Log = Log.EVENTS
    ) -> None:
        self._store = store
        self.log = log
        self._terms = terms
        self._on_dropped = on_dropped
        self._held: dict[int, Trimmed] = {}
        self._ages = [_Ages() for _ in range(store.partitions)]

    def on_clock(self, partition: int, now_ms: int, _: int | None) -> None:
        """As storage.pipeline.Observer."""
        self._ages[partition].now_ms = now_ms

    async def trim(self) -> Refusal | None:
        """In every partition."""
        return await in_every_partition(self._store.partitions, self._trim_in)

    async def _trim_in(self, partition: int) -> Refusal | None:
        terms, ages = self._terms, self._ages[partition]
        old = ages.older_than(terms.keep_ms) if terms.keep_ms else SEQUENCE_MAX
        held = await self._store.trim_log(partition, self.log, terms.tail, terms.cap, old)
        if isinstance(held, Refusal):
            return held
        first, last = held.first_offset, held.last_offset
        if terms.keep_ms:
            ages.add(last, terms.keep_ms / SAMPLES_PER_TIME)
        before = self._held.get(partition)
        if held.dropped and first > (before.first_offset if before is not None else 0):
            get_logger().warning(f"{self.log}_dropped", partition=partition, first_offset=first, last_offset=last)
            self._on_dropped()
        self._held[partition] = held
        return None

    @property
    def records_max(self) -> int:
        """Records that the fullest partition held when it was looked at last."""
        return max((held.last_offset - held.first_offset + 1 for held in self._held.values()), default=0)

    @property
    def cap_ratio(self) -> float:
        """The same as a part of the cap."""
        return self.records_max / self._terms.cap

    def lags(self) -> dict[str, int]:
        """Records that consumers had not committed then, over all partitions: of those that are furthest behind, as
        many as a scrape should bring."""
        lags: dict[str, int] = {}
        for held in self._held.values():
            for consumer, committed in held.committed.items():
                lags[consumer] = lags.get(consumer, 0) + held.last_offset - committed
        return dict(heapq.nlargest(CONSUMERS_SHOWN_MAX, lags.items(), key=lambda lag: lag[1]))
