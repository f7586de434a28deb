"""The verbs of the logs: what they hold, reading, consumers and their offsets, cutting."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Event, Log, PartitionLog
from quintet_core.domain.limits import SEQUENCE_MAX
from quintet_core.storage import records
from quintet_core.storage.asking import Asking, parsed
from quintet_core.storage.blocks import Block, Found, Range, block_of
from quintet_core.storage.event_log import Entry
from quintet_core.storage.link import Reply


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A log after it was cut. `dropped`: the cap cut what a consumer still wanted. `committed`: how far each consumer
    has come."""

    first_offset: int
    last_offset: int
    dropped: bool
    committed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer begins in a partition: `at` an offset, `OLDEST` or `LATEST`. `reset`: also one that is there."""

    at: int | bytes
    reset: bool = False


OLDEST, LATEST = b"", b"latest"


@dataclass(frozen=True, slots=True)
class Consumed:
    """How far a consumer has come in a partition, of which the log ends at `last_offset`."""

    consumer: str
    offset: int
    epoch: int
    last_offset: int


class LogStore(Asking):
    """The events and the metrics of every partition."""

    async def describe_events(self, partition: int, consumer: str, log: Log = Log.EVENTS) -> PartitionLog | Refusal:
        """What the partition's log holds."""
        answer = await self.ask(partition, "describe_events", consumer, log.value)
        return parsed(lambda told: PartitionLog(partition, *map(int, told)), answer)

    async def read_entries(self, partition: int, after: int, limit: int) -> tuple[list[Entry], int] | Refusal:
        """Whole entries that hold what is behind an offset, with about `limit` events or as many as one reply may hold;
        and the last offset there is. Refusal: OFFSET_TRIMMED."""
        answer = await self.ask(partition, "read_events", after, limit, b"1")
        if isinstance(answer, Refusal):
            return answer
        return _entries(answer), int(answer[1])

    async def read_events(self, partition: int, after: int, limit: int) -> tuple[list[Event], int] | Refusal:
        """At most `limit` events behind an offset, and the last offset there is. Refusal: OFFSET_TRIMMED."""
        outcome = await self.read_entries(partition, after, limit)
        if isinstance(outcome, Refusal):
            return outcome
        entries, last = outcome
        events = parsed(lambda told: self._events_in(partition, told, after, limit), entries)
        return events if isinstance(events, Refusal) else (events, last)

    def _events_in(self, partition: int, entries: list[Entry], after: int, limit: int) -> list[Event]:
        found: list[Event] = []
        for entry in entries:
            events = records.unpack_events(entry, partition, self.partitions)
            found += (event for event in events if event.offset > after)
            if len(found) >= limit:
                break
        return found[:limit]

    async def read_block(self, partition: int, wanted: Range, with_carried: bool) -> Block | Refusal:
        """The records of a range, or the first of them; never none. A range is within the log, and not empty. For few:
        a log_reader.LogReader reads many. Refusal: OFFSET_TRIMMED."""
        limit = min(wanted.through - wanted.after, _BLOCK_RECORDS)
        answer = await self.ask(partition, "read_events", wanted.after, limit, b"1", wanted.log.value)
        return parsed(lambda told: block_of(Found.of_entries(_entries(told)), wanted, with_carried), answer)

    async def find_offset(self, partition: int, log: Log, at_ms: int) -> int | Refusal:
        """The offset behind which records are as young as a moment, or younger."""
        return parsed(int, await self.ask(partition, "find_offset", at_ms, log.value))

    async def commit_offset(
        self,
        partition: int,
        consumer: str,
        offset: int,
        epoch: int,
        log: Log = Log.EVENTS,
        consumers_max: int = SEQUENCE_MAX,
    ) -> int | Refusal:
        """The consumer's offset now. Refusals: STALE_EPOCH; INVALID_ARGUMENT beyond the last record; LIMIT_EXCEEDED
        where it would be one consumer more than `consumers_max`."""
        rest = (consumer, offset, epoch, log.value, consumers_max)
        return parsed(int, await self.ask(partition, "commit_offset", *rest))

    async def open_consumer(
        self, partition: int, consumer: str, log: Log, epoch: int, start: Start, consumers_max: int, *, anew: bool
    ) -> PartitionLog | Refusal:
        """The log with the consumer's offset, under `epoch`; `anew`: under one above that, and above all that were
        given so in this partition. Refusals: STALE_EPOCH; OFFSET_TRIMMED and INVALID_ARGUMENT for a start that the log
        does not hold; LIMIT_EXCEEDED."""
        flags = (b"1" if anew else b"0", start.at, b"1" if start.reset else b"0", consumers_max)
        answer = await self.ask(partition, "open_consumer", consumer, epoch, *flags, log.value)
        return parsed(lambda told: PartitionLog(partition, *map(int, told[1:])), answer)

    async def list_consumers(self, partition: int, log: Log) -> list[Consumed] | Refusal:
        """Every consumer with how far it has come in a partition."""
        return parsed(_consumed, await self.ask(partition, "list_consumers", log.value))

    async def delete_consumer(self, partition: int, consumer: str, log: Log) -> bool | Refusal:
        """Whether it was there."""
        return parsed(bool, await self.ask(partition, "delete_consumer", consumer, log.value))

    async def trim_log(
        self, partition: int, log: Log, tail: int, cap: int, kept_behind: int = SEQUENCE_MAX
    ) -> Trimmed | Refusal:
        """Cut a log, but for its last `tail` records, what consumers want, and what is behind an offset; all of it
        within the cap."""
        return parsed(_trimmed, await self.ask(partition, "trim_events", tail, cap, kept_behind, log.value))

    async def trim_events(
        self, partition: int, tail: int, cap: int, kept_behind: int = SEQUENCE_MAX
    ) -> tuple[int, int, bool] | Refusal:
        """The same of events: first offset, last offset, and whether the cap cut what a consumer still wanted."""
        outcome = await self.trim_log(partition, Log.EVENTS, tail, cap, kept_behind)
        if isinstance(outcome, Refusal):
            return outcome
        return outcome.first_offset, outcome.last_offset, outcome.dropped


_BLOCK_RECORDS = 1000


def _entries(answer: Reply) -> list[Entry]:
    return [answer[at : at + 5] for at in range(2, len(answer), 5)]


def _trimmed(answer: Reply) -> Trimmed:
    committed = {answer[at].decode(): int(answer[at + 1]) for at in range(3, len(answer), 2)}
    return Trimmed(int(answer[0]), int(answer[1]), bool(answer[2]), committed)


_CONSUMER = struct.Struct(">QQ")


def _consumed(answer: Reply) -> list[Consumed]:
    found, last = list[Consumed](), int(answer[0])
    for at in range(1, len(answer), 2):
        offset, epoch = _CONSUMER.unpack(answer[at + 1])
        found.append(Consumed(answer[at].decode(), offset, epoch, last))
    return found
