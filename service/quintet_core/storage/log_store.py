"""The verbs of the logs: what they hold, reading, consumers and their offsets, cutting."""

from __future__ import annotations

from dataclasses import dataclass, field

from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import Event, Log, PartitionLog
from quintet_core.domain.limits import SEQUENCE_MAX
from quintet_core.storage import records
from quintet_core.storage.asking import Asking, parsed
from quintet_core.storage.blocks import Block, Range, block_arguments, unpack_block
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
        return [answer[at : at + 5] for at in range(2, len(answer), 5)], int(answer[1])

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
        """The records of a range, or the first of them: as many as the library reads at once, never none. A range is
        within the log, and not empty. Refusal: OFFSET_TRIMMED."""
        answer = await self.ask(partition, "read_block", *block_arguments(wanted, with_carried))
        return parsed(lambda told: unpack_block(told, wanted), answer)

    async def find_offset(self, partition: int, log: Log, at_ms: int) -> int | Refusal:
        """The offset behind which records are as young as a moment, or younger."""
        return parsed(int, await self.ask(partition, "find_offset", at_ms, log.value))

    async def commit_offset(
        self, partition: int, consumer: str, offset: int, epoch: int, log: Log = Log.EVENTS
    ) -> int | Refusal:
        """The consumer's offset now. Refusals: STALE_EPOCH; INVALID_ARGUMENT beyond the last record."""
        return parsed(int, await self.ask(partition, "commit_offset", consumer, offset, epoch, log.value))

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


def _trimmed(answer: Reply) -> Trimmed:
    committed = {answer[at].decode(): int(answer[at + 1]) for at in range(3, len(answer), 2)}
    return Trimmed(int(answer[0]), int(answer[1]), bool(answer[2]), committed)
