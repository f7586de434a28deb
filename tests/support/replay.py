"""The event log played back: what it says about jobs, checked event by event for sense."""

from __future__ import annotations

from dataclasses import dataclass, field

from quintet_core.domain.event import Event
from quintet_core.domain.job import JobState

from tests.support import model

# What may happen to a job in which state; None: not there.
_FROM: dict[int, set[JobState | None]] = {
    model.ENQUEUED: {None},
    model.DEQUEUED: {JobState.READY},
    model.ACKNOWLEDGED: {JobState.LEASED},
    model.RELEASED: {JobState.LEASED},
    model.LEASE_EXPIRED: {JobState.LEASED},
    model.OWNER_CLOSED: {JobState.LEASED},
    model.EXTENDED: {JobState.LEASED},
    model.DELETED: set(JobState),
    model.BECAME_READY: {JobState.DELAYED},
    model.EXPIRED: {JobState.READY, JobState.DELAYED, JobState.LEASED},
    model.REDRIVEN: {JobState.DELAYED, JobState.DEAD},
    model.DEAD_LETTERED: {JobState.DEAD},
}


@dataclass
class Replay:
    """Jobs and queues of one partition as its log tells them."""

    jobs: dict[int, tuple[str, JobState]] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    last_offset: int = 0
    last_at_ms: int = 0

    def play(self, event: Event) -> None:
        """Follow one event. Raises AssertionError when it does not follow from those before."""
        assert event.offset == self.last_offset + 1, f"{event} after offset {self.last_offset}"
        assert event.at_ms >= self.last_at_ms, f"{event} before {self.last_at_ms}"
        self.last_offset, self.last_at_ms = event.offset, event.at_ms
        if event.job_id:
            self._play_job(event)
        elif event.kind == model.CREATED:
            assert event.queue not in self.queues, event
            self.queues.add(event.queue)
        elif event.kind == model.QUEUE_DELETED:
            self.queues.remove(event.queue)
        else:
            assert event.queue in self.queues, event

    def _play_job(self, event: Event) -> None:
        queue, state = self.jobs.get(event.job_id, (event.queue, None))
        assert queue == event.queue, event
        assert state in _FROM[event.kind], f"{event} of a job that is {state}"
        if event.state:
            self.jobs[event.job_id] = (queue, JobState(event.state))
        else:
            del self.jobs[event.job_id]
