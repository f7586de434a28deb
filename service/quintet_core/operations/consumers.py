"""The logs and their named consumers, over all partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from quintet_core.domain.errors import Reason, Refusal, broken, refusal
from quintet_core.domain.event import Log, PartitionLog
from quintet_core.domain.limits import SEQUENCE_MAX, Limits, check_span
from quintet_core.storage.log_store import LATEST, OLDEST, Start
from quintet_core.storage.redis_store import RedisStore

_FIRST = 0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Starts:
    """Where a new consumer begins: behind `offsets` by partition, elsewhere with the oldest record, or with the next
    (`latest`). `reset`: also one that is there."""

    offsets: Mapping[int, int]
    latest: bool = False
    reset: bool = False

    def at(self, partition: int) -> Start:
        """In one partition."""
        return Start(self.offsets.get(partition, LATEST if self.latest else OLDEST), self.reset)


@dataclass(slots=True)
class Consumer:
    """A consumer over all partitions: records behind what it has committed, in all, and the most in one of them."""

    name: str
    epoch: int = 0
    lag: int = 0
    lag_max: int = 0


class ConsumerOperations:
    """What can be done with a log but to read it."""

    def __init__(self, store: RedisStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    async def describe(self, log: Log, consumer: str) -> list[PartitionLog] | Refusal:
        """What each partition's log holds, and how far a consumer has come ("": none)."""
        self._limits.check_label("consumer", consumer)
        return await _all(self._store.describe_events(each, consumer, log) for each in self._partitions)

    async def commit(self, log: Log, consumer: str, partition: int, offset: int, epoch: int) -> int | Refusal:
        """The consumer's offset now. Refusals: STALE_EPOCH; INVALID_ARGUMENT; LIMIT_EXCEEDED for one consumer more."""
        self._check(consumer)
        self._check_partition(partition)
        check_span("offset", offset, SEQUENCE_MAX)
        check_span("epoch", epoch, SEQUENCE_MAX)
        most = self._limits.consumers_max
        return await self._store.commit_offset(partition, consumer, offset, epoch, log, most)

    async def find(self, log: Log, at_ms: int) -> list[int] | Refusal:
        """For each partition the offset behind which records are as young as a moment, or younger."""
        check_span("at_ms", at_ms, SEQUENCE_MAX)
        return await _all(self._store.find_offset(partition, log, at_ms) for partition in self._partitions)

    async def open(self, log: Log, consumer: str, starts: Starts) -> list[PartitionLog] | Refusal:
        """Every partition's log with the consumer's offset, under a new epoch.

        The first partition gives epochs, each greater than all before it anywhere; the others take it. Of two that open
        a consumer at once the one with the lower epoch is refused where it comes second, or is stale from then on.
        Refusals: STALE_EPOCH; OFFSET_TRIMMED, INVALID_ARGUMENT of a start; LIMIT_EXCEEDED.
        """
        self._check(consumer)
        for partition, offset in starts.offsets.items():
            self._check_partition(partition)
            check_span("after_offset", offset, SEQUENCE_MAX)
        found = await self.describe(log, consumer)
        if isinstance(found, Refusal):
            return found
        for held in found:
            refused = _refused_start(held, starts)
            if refused is not None:
                return refused
        epoch = max(held.epoch for held in found)
        first = await self._open_in(_FIRST, log, consumer, epoch, starts)
        if isinstance(first, Refusal):
            return first
        rest = await _all(
            self._open_in(partition, log, consumer, first.epoch, starts) for partition in self._partitions[_FIRST + 1 :]
        )
        return rest if isinstance(rest, Refusal) else [first, *rest]

    async def _open_in(
        self, partition: int, log: Log, consumer: str, epoch: int, starts: Starts
    ) -> PartitionLog | Refusal:
        start, most = starts.at(partition), self._limits.consumers_max
        anew = partition == _FIRST
        return await self._store.open_consumer(partition, consumer, log, epoch, start, most, anew=anew)

    async def list(self, log: Log) -> list[Consumer] | Refusal:
        """All consumers, by their names."""
        found = await _all(self._store.list_consumers(partition, log) for partition in self._partitions)
        if isinstance(found, Refusal):
            return found
        consumers: dict[str, Consumer] = {}
        for consumed in (each for in_partition in found for each in in_partition):
            consumer = consumers.setdefault(consumed.consumer, Consumer(consumed.consumer))
            lag = consumed.last_offset - consumed.offset
            consumer.epoch = max(consumer.epoch, consumed.epoch)
            consumer.lag += lag
            consumer.lag_max = max(consumer.lag_max, lag)
        return [consumers[name] for name in sorted(consumers)]

    async def delete(self, log: Log, consumer: str) -> Refusal | None:
        """Refusal: CONSUMER_NOT_FOUND."""
        self._check(consumer)
        gone = await _all(self._store.delete_consumer(partition, consumer, log) for partition in self._partitions)
        if isinstance(gone, Refusal):
            return gone
        return None if any(gone) else refusal(Reason.CONSUMER_NOT_FOUND)

    @property
    def _partitions(self) -> range:
        return range(self._store.partitions)

    def _check(self, consumer: str) -> None:
        if not consumer:
            raise broken("consumer must not be empty", field="consumer")
        self._limits.check_label("consumer", consumer)

    def _check_partition(self, partition: int) -> None:
        if partition >= self._store.partitions:
            raise broken(f"partition must be below {self._store.partitions}", field="partition")


def _refused_start(held: PartitionLog, starts: Starts) -> Refusal | None:
    """Looked at in all partitions before the consumer is changed in one."""
    start = starts.offsets.get(held.partition)
    if start is None or (held.committed_offset >= 0 and not starts.reset):
        return None
    where = {"partition": str(held.partition)}
    if start < held.first_offset - 1:
        return refusal(Reason.OFFSET_TRIMMED, first_offset=str(held.first_offset), **where)
    if start > held.last_offset:
        told = "a start is beyond the end of the log"
        return refusal(Reason.INVALID_ARGUMENT, told, last_offset=str(held.last_offset), **where)
    return None


async def _all(asking: Iterable[Awaitable[_T | Refusal]]) -> list[_T] | Refusal:
    """All answers, or the first refusal."""
    found: list[_T] = []
    for answer in await asyncio.gather(*asking):
        if isinstance(answer, Refusal):
            return answer
        found.append(answer)
    return found
