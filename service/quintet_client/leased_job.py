"""A job in a worker's hands: its lease is extended while it is worked on, and it is settled once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from quintet_client.errors import JobNotFoundError, LeaseError, QuintetError, StaleLeaseError, UnavailableError
from quintet_client.job import Job, JobState, Placement
from quintet_client.job_calls import JobCalls

_log = logging.getLogger(__name__)
_REPEAT_PAUSE_S = 0.05


class LeasedJob:
    """A leased job whose lease is extended every third of `lease_ms` until it is settled or lost.

    As a context manager (`async with job:`) it acknowledges the job when the body ends, and releases it with the error
    as its failure reason when the body raises; the error goes on. When the lease is lost, the body is cancelled and
    the `async with` raises `StaleLeaseError`. A body cancelled from outside releases the job, without counting
    the attempt.
    """

    def __init__(self, calls: JobCalls, job: Job, lease_ms: int) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._lease_s = lease_ms / 1000
        self._lease_ms = lease_ms
        self._held_until = self._loop.time() + self._lease_s
        self._body: asyncio.Task[object] | None = None
        self._body_cancelled = False
        self._extension: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.job = job
        self.settled = False
        """Whether it was acknowledged or released."""
        self.lost = False
        """Whether its lease is gone: another worker may have the job."""
        self._extend_after(self._lease_s / 3)

    @property
    def id(self) -> int:
        """The job's id."""
        return self.job.id

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.job.queue

    @property
    def payload(self) -> bytes:
        """What was enqueued."""
        return self.job.payload

    @property
    def attributes(self) -> Mapping[str, str]:
        """What was enqueued with it."""
        return self.job.attributes

    @property
    def attempts(self) -> int:
        """Deliveries so far, this one included."""
        return self.job.attempts

    def __repr__(self) -> str:
        return f"LeasedJob(id={self.id}, queue={self.queue!r}, settled={self.settled}, lost={self.lost})"

    async def acknowledge(self) -> None:
        """Ends the job for good; repeated over a broken connection while the lease lasts.

        Raises a `LeaseError` or `JobNotFoundError` when the lease was lost, `UnavailableError` when the outcome stays
        unknown.
        """
        await self._settle(lambda: self._calls.acknowledge(self.job))

    async def release(
        self,
        *,
        delay_ms: int | None = None,
        placement: Placement = Placement.ORIGINAL,
        failure_reason: str = "",
        undo_attempt: bool = False,
    ) -> JobState | None:
        """Gives the job back; as `Client.release`. None: a first try went through unseen."""
        states: list[JobState] = []

        async def release() -> None:
            states.append(
                await self._calls.release(
                    self.job,
                    delay_ms=delay_ms,
                    placement=placement,
                    failure_reason=failure_reason,
                    undo_attempt=undo_attempt,
                )
            )

        await self._settle(release)
        return states[0] if states else None

    async def __aenter__(self) -> Self:
        if self.lost:
            raise StaleLeaseError(f"the lease of job {self.id} was lost before it was worked on")
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        if self._body_cancelled and body is not None:
            self._body_cancelled = False
            body.uncancel()
            if isinstance(error, asyncio.CancelledError):
                raise StaleLeaseError(f"the lease of job {self.id} was lost while it was worked on") from None
        if self.settled:
            return
        if error is None:
            await self.acknowledge()
        elif isinstance(error, Exception):
            await self.give_back(failure_reason=f"{type(error).__name__}: {error}")
        else:
            await self.give_back(failure_reason="the worker stopped", undo_attempt=True)

    async def give_back(self, *, failure_reason: str, undo_attempt: bool = False) -> None:
        """Releases the job as well as can be: what stands in the way is logged, since the lease ends by itself."""
        if self.settled or self.lost:
            return
        try:
            await self.release(failure_reason=failure_reason, undo_attempt=undo_attempt)
        except QuintetError as error:
            _log.warning("job %d was not released: %s", self.id, error)

    async def _settle(self, operation: Callable[[], Awaitable[object]]) -> None:
        self._stop_extending()
        self.settled = True
        in_doubt = False
        while True:
            try:
                await operation()
            except UnavailableError:
                if self._loop.time() + _REPEAT_PAUSE_S >= self._held_until:
                    raise
                in_doubt = True
            except (LeaseError, JobNotFoundError):
                if not in_doubt:
                    self.lost = True
                    raise
                return  # The lease still holds by the clock: it was the first try that ended it.
            else:
                return
            await asyncio.sleep(_REPEAT_PAUSE_S)

    # The lease.

    def _extend_after(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._start_extension)

    def _start_extension(self) -> None:
        if self._loop.time() >= self._held_until:
            self._lose()
        else:
            self._extension = self._loop.create_task(self._extend())

    async def _extend(self) -> None:
        sent_at = self._loop.time()
        try:
            async with asyncio.timeout_at(self._held_until):
                await self._calls.extend(self.job, self._lease_ms)
        except (LeaseError, JobNotFoundError, TimeoutError):
            self._lose()
        except QuintetError as error:
            _log.info("the lease of job %d was not extended yet: %s", self.id, error)
            self._extend_after(min(self._lease_s / 10, max(self._held_until - self._loop.time(), 0)))
        else:
            self._held_until = sent_at + self._lease_s
            self._extend_after(self._lease_s / 3)

    def _lose(self) -> None:
        if self.settled or self.lost:
            return
        self.lost = True
        _log.warning("the lease of job %d was lost", self.id)
        if self._body is not None and not self._body.done():
            self._body_cancelled = True
            self._body.cancel()

    def _stop_extending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._extension is not None and self._extension is not asyncio.current_task():
            self._extension.cancel()
