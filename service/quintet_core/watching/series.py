"""What Prometheus is shown of queues and tables: the newest snapshots, a bounded number of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest

from quintet_core.domain.snapshot import QUEUE_TOTALS, TABLE_TOTALS, MetricKind, Snapshot
from quintet_core.watching.snapshots import Known, NewestSnapshots

LABEL_CHARACTERS_MAX = 128
_DIGEST_CHARACTERS = 16

Series = Iterator[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Shown:
    """Queues and tables whose series are shown, and how many more there are."""

    queues: list[Snapshot]
    tables: list[Snapshot]
    unlisted: int


class QueueSeries:
    """Series of at most `things_max` queues and tables: the fullest and the busiest."""

    def __init__(self, newest: NewestSnapshots, things_max: int) -> None:
        self._newest = newest
        self._things_max = things_max
        self._shown = Shown([], [], 0)
        self._version = -1

    @property
    def shown(self) -> Shown:
        """Chosen once a slot."""
        if self._version != self._newest.version:
            self._version = self._newest.version
            self._shown = self._choose()
        return self._shown

    def _choose(self) -> Shown:
        known = list(self._newest.known())
        chosen = known if len(known) <= self._things_max else self._chosen(known)
        snapshots = sorted((each.unpack() for each in chosen), key=lambda each: (each.namespace, each.name))
        return Shown(
            [each for each in snapshots if each.kind is MetricKind.QUEUE],
            [each for each in snapshots if each.kind is MetricKind.TABLE],
            len(known) - len(chosen),
        )

    def _chosen(self, known: list[Known]) -> list[Known]:
        """Half of them by what they hold, the others by what happened in them of late."""
        fullest = nlargest(self._things_max // 2, known, key=lambda each: each.held)
        taken = set(map(id, fullest))
        others = [each for each in known if id(each) not in taken]
        return fullest + nlargest(self._things_max - len(fullest), others, key=lambda each: each.growth)

    # --- what each metric shows: label values, and what is measured

    def queue_jobs(self) -> Series:
        """Namespace, queue, state."""
        for each in self.shown.queues:
            name = _labels(each)
            yield (*name, "ready"), each.ready
            yield (*name, "delayed"), each.delayed
            yield (*name, "leased"), each.leased
            yield (*name, "dead"), each.dead

    def queue_oldest_ready_ages(self) -> Series:
        """Namespace, queue; seconds."""
        for each in self.shown.queues:
            yield _labels(each), each.oldest_ready_age_ms / 1000

    def queue_events(self) -> Series:
        """Namespace, queue, kind."""
        for each in self.shown.queues:
            name = _labels(each)
            for kind, total in zip(QUEUE_TOTALS, each.totals, strict=True):
                yield (*name, kind), total

    def table_rows(self) -> Series:
        """Namespace, table."""
        for each in self.shown.tables:
            yield _labels(each), each.ready

    def table_events(self) -> Series:
        """Namespace, table, kind."""
        for each in self.shown.tables:
            name = _labels(each)
            for kind, total in zip(TABLE_TOTALS, each.totals, strict=False):
                yield (*name, kind), total

    def events(self) -> Series:
        """Kind; of everything there ever was."""
        for kind, total in self._newest.totals().items():
            yield (kind,), total


def label(name: str) -> str:
    """A name as the value of a label: itself when it is short, else its beginning and a digest, longer by one than any
    short one, so that two names are never one."""
    if len(name) <= LABEL_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: LABEL_CHARACTERS_MAX - _DIGEST_CHARACTERS]}~{digest}"


def _labels(snapshot: Snapshot) -> tuple[str, str]:
    return label(snapshot.namespace), label(snapshot.name)
