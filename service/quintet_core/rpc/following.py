"""What the streams that follow the event log share: how their responses are written, and how they end."""

from __future__ import annotations

from collections.abc import Callable

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.limits import SEQUENCE_MAX, check_span
from quintet_core.rpc.door import Context
from quintet_core.rpc.status import abort
from quintet_core.watching.watcher import Batch, Watcher
from quintet_core.watching.watches import Watches

Respond = Callable[[Batch], bytes]
"""The response of a batch, encoded; empty for a batch of which nothing is to be told."""


def check_offset(what: str, value: int) -> None:
    """An offset, or another number of the log."""
    check_span(what, value, SEQUENCE_MAX)


class Followings:
    """Streams of one kind, no more than `streams_max` at once."""

    def __init__(self, watches: Watches, streams_max: int, what: str) -> None:
        self._watches = watches
        self._streams_max = streams_max
        self._what = what
        self._open = 0

    def full(self) -> Refusal | None:
        """The refusal when there are too many already."""
        if self._open < self._streams_max:
            return None
        return refusal(Reason.TOO_MANY_IN_FLIGHT, f"too many {self._what}", max=str(self._streams_max))

    async def tell(self, context: Context, watcher: Watcher, respond: Respond) -> None:
        """Write what comes, until the caller leaves or the watch ends with a refusal."""
        self._open += 1
        try:
            while isinstance(batch := await self._watches.take(watcher), Batch):
                if response := respond(batch):
                    await context.write(response)
            await abort(context, batch)
        finally:
            self._open -= 1
            self._watches.close(watcher)
