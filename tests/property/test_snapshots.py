"""Snapshots against the model, through whatever happens to queues: the same counts, ages and totals, each once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis.stateful import invariant, precondition
from quintet_core.domain.job import JobState
from quintet_core.storage.snapshot_store import Left, Taken

from tests.property.test_model import PARTITIONS, Comparison
from tests.support import model as kinds
from tests.support.comparisons import EXAMPLES, compare
from tests.support.model import Model, ModelQueue
from tests.support.redis_server import RedisServer
from tests.support.snapshot_record import TOTALS, Record, read_metrics

SLOT_MS = 7
RETURNS = (kinds.RELEASED, kinds.LEASE_EXPIRED, kinds.OWNER_CLOSED)


class Told:
    """What the event log of a partition tells of the totals of each queue that is there."""

    def __init__(self) -> None:
        self.last_offset = 0
        self.totals: dict[str, Counter[str]] = {}
        self.everything: Counter[str] = Counter()

    def count(self, kind: int, queue: str, state: int) -> None:
        """One event. Those of a queue that was deleted count for everything alone."""
        if kind == kinds.CREATED:
            self.totals[queue] = Counter()
        elif kind == kinds.QUEUE_DELETED:
            del self.totals[queue]
        elif kind <= len(TOTALS):
            names = [TOTALS[kind - 1]] + (["died"] if kind in RETURNS and state == JobState.DEAD else [])
            self.everything.update(names)
            self.totals.get(queue, Counter()).update(names)


class WithSnapshots(Comparison):
    """Besides, snapshots are taken, and compared with the model."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.told = [Told() for _ in range(PARTITIONS)]
        self.read = [0] * PARTITIONS

    @precondition(lambda self: not self.waiting)
    @invariant()
    def look(self) -> None:
        """In another slot than the last time."""
        self._advance(SLOT_MS)
        for model, told in zip(self.models, self.told, strict=True):
            self._hear(model, told)
            taken = self._take(model.partition)
            assert taken.damaged == 0
            assert Counter(dict(zip(TOTALS, taken.totals, strict=False))) == told.everything
            records = read_metrics(self.redis, model.partition, self.read[model.partition])
            self.read[model.partition] = taken.last_offset
            self._compare(model, told, records)

    def _take(self, partition: int) -> Taken:
        while True:
            taken = self.run(self.store.take_snapshots(partition, SLOT_MS, 1000))
            assert isinstance(taken, Taken), taken
            if taken.left is not Left.MORE:
                return taken

    def _hear(self, model: Model, told: Told) -> None:
        events, told.last_offset = self.run(self.store.read_events(model.partition, told.last_offset, 10_000))
        for event in events:
            # What goes with its queue names it still; a new one of its name has nothing to do with it.
            if event.kind == kinds.DELETED and event.detail == "queue deleted":
                told.everything.update(["deleted"])
            else:
                told.count(event.kind, event.queue, event.state)

    def _compare(self, model: Model, told: Told, records: list[Record]) -> None:
        seen = {record.name: record for record in records}
        assert len(seen) == len(records), "told twice in a slot"
        assert set(seen) <= set(model.queues)
        for name, queue in model.queues.items():
            record = seen.get(name)
            if record is None:
                assert queue.counts() == (0, 0, 0, 0), f"{name} was left out"
                continue
            assert record.counts == queue.counts()
            assert record.oldest_ready_age_ms == oldest_ready_age(queue, model.now)
            assert Counter(record.totals) == told.totals[name]


def oldest_ready_age(queue: ModelQueue, now: int) -> int:
    """Of the first ready job of each rank."""
    first: dict[int, int] = {}
    for job in reversed(queue.within(JobState.READY)):
        first[job.new.rank] = job.ready_at
    return max((now - at for at in first.values()), default=0)


@pytest.mark.timeout(0)
def test_snapshots_and_the_model_agree(redis_server: RedisServer) -> None:
    class OnThisServer(WithSnapshots):
        def __init__(self) -> None:
            super().__init__(redis_server.path)

    compare(OnThisServer, EXAMPLES // 3)
