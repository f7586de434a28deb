"""What the streams that follow the event log share: how their responses are written, and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quintet_core.domain.errors import CallerError, Reason, Refusal, broken, refusal
from quintet_core.domain.limits import SEQUENCE_MAX, check_span
from quintet_core.rpc.access import current_access
from quintet_core.rpc.door import Context
from quintet_core.rpc.status import abort
from quintet_core.watching.watcher import Batch, Watcher
from quintet_core.watching.watches import Watches

Observe = Callable[[str, object], None]
"""Told of each stream's verb, and of the refusal when it does not begin."""
Open = Callable[[], Awaitable[Watcher | Refusal]]
"""Begins to follow. May raise CallerError."""
Respond = Callable[[Batch], bytes]
"""The response of a batch, encoded; empty for a batch of which nothing is to be told."""


def check_offset(what: str, value: int) -> None:
    """An offset, or another number of the log."""
    check_span(what, value, SEQUENCE_MAX)


def check_partition(partition: int, partitions: int) -> None:
    """The number of a partition."""
    if partition >= partitions:
        raise broken(f"partition must be below {partitions}", field="partition")


class Followings:
    """Streams of one kind, no more than `streams_max` at once."""

    def __init__(self, watches: Watches, streams_max: int, what: str, observe: Observe) -> None:
        self._watches = watches
        self._observe = observe
        self._streams_max = streams_max
        self._what = what
        self._open = 0

    async def serve(self, context: Context, verb: str, namespace: str | None, open_: Open, respond: Respond) -> None:
        """One stream, until its caller leaves or it ends with a refusal. `namespace` None: about all that the caller
        sees."""
        refused = self._refused(verb, namespace)
        if refused is not None:
            self._observe(verb, refused)
            await abort(context, refused)
        self._open += 1
        try:
            try:
                opened = await open_()
            except CallerError as error:
                opened = error.refusal
            self._observe(verb, opened)
            if isinstance(opened, Refusal):
                await abort(context, opened)
            await self._tell(context, opened, respond)
        finally:
            self._open -= 1

    def _refused(self, verb: str, namespace: str | None) -> Refusal | None:
        if not current_access().permits(verb, namespace):
            return refusal(Reason.PERMISSION_DENIED)
        if self._open >= self._streams_max:
            return refusal(Reason.TOO_MANY_IN_FLIGHT, f"too many {self._what}", max=str(self._streams_max))
        return None

    async def _tell(self, context: Context, watcher: Watcher, respond: Respond) -> None:
        try:
            while isinstance(batch := await self._watches.take(watcher), Batch):
                if response := respond(batch):
                    await context.write(response)
        finally:
            self._watches.close(watcher)
        await abort(context, batch)
