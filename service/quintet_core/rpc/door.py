"""One unary call, whatever its verb: may the caller do it, do it, answer or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, TypeVar

import grpc
from quintet_kit.logs import get_logger

from quintet_core.domain.errors import CallerError, Reason, Refusal, refusal
from quintet_core.domain.outcomes import Done
from quintet_core.rpc.access import current_access
from quintet_core.rpc.status import abort
from quintet_core.storage.link import into
from quintet_core.storage.records import RecordError

Context = grpc.aio.ServicerContext[Any, Any]
Observe = Callable[[str, object, float], None]
"""Told of each call answered: its verb, its outcome, and the seconds it took."""
_O = TypeVar("_O")
_M = TypeVar("_M")


class Door:
    """What all unary servicers share."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    async def call(
        self,
        context: Context,
        verb: str,
        namespace: str | None,
        start: Callable[[Done[_O]], object],
        message: Callable[[_O], _M],
    ) -> _M:
        """A verb in the callback style. `namespace` None: the verb is about none, or about all that the caller sees."""

        async def outcome() -> _O | Refusal:
            future: asyncio.Future[_O | Refusal] = asyncio.get_running_loop().create_future()
            start(into(future))
            return await future

        return await self.wait(context, verb, namespace, outcome, message)

    async def wait(
        self,
        context: Context,
        verb: str,
        namespace: str | None,
        work: Callable[[], Awaitable[_O | Refusal]],
        message: Callable[[_O], _M],
    ) -> _M:
        """A verb in the awaiting style."""
        began = perf_counter()
        outcome: _O | Refusal
        if not current_access().permits(verb, namespace):
            outcome = refusal(Reason.PERMISSION_DENIED)
        else:
            try:
                outcome = await work()
            except CallerError as error:
                outcome = error.refusal
        if not isinstance(outcome, Refusal):
            try:
                said = message(outcome)
            except RecordError:
                get_logger().exception("record_not_understood")
                outcome = refusal(Reason.DAMAGED, "Redis holds something else than was written")
        self._observe(verb, outcome, perf_counter() - began)
        if isinstance(outcome, Refusal):
            await abort(context, outcome)
        return said
