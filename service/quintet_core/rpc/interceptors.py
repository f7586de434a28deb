"""What happens to every call before and after its servicer: tokens are asked for, our own faults become INTERNAL."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from quintet_kit.logs import get_logger

from quintet_core.domain.errors import Reason, refusal
from quintet_core.rpc.access import EVERYTHING, Access, admit
from quintet_core.rpc.door import Context
from quintet_core.rpc.status import abort

AccessOf = Callable[[str], Access | None]
"""The access behind an `authorization` header, or None."""
_OPEN_TO_ALL = "/grpc.health.v1.Health/"


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps every handler. `access_of` None: whoever can connect may do everything."""

    def __init__(self, access_of: AccessOf | None) -> None:
        self._access_of = access_of
        self._guarded: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler of a method, wrapped once and kept."""
        method = handler_call_details.method
        guarded = self._guarded.get(method)
        if guarded is None:
            handler = await continuation(handler_call_details)
            if handler is None:  # an unknown method: not kept, so that nobody fills the memory with names
                return None
            guarded = self._guarded[method] = self._wrap(handler, method)
        return guarded

    def _wrap(self, handler: Any, method: str) -> Any:
        kind, make = _KINDS[handler.request_streaming, handler.response_streaming]
        return make(
            self._around(getattr(handler, kind), method),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _around(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(behaviour):

            async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
                async with self._watch(context, method):
                    async for response in behaviour(request, context):
                        yield response

            return generate

        async def serve(request: Any, context: Context) -> Any:
            async with self._watch(context, method):
                return await behaviour(request, context)

        return serve

    @asynccontextmanager
    async def _watch(self, context: Context, method: str) -> AsyncIterator[None]:
        if self._access_of is not None and not method.startswith(_OPEN_TO_ALL):
            await self._admit(context)
        else:
            admit(EVERYTHING)
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit, grpc.aio.AbortError):
            raise
        except Exception:
            get_logger().exception("call_failed", method=method)
            await abort(context, refusal(Reason.INTERNAL))

    async def _admit(self, context: Context) -> None:
        assert self._access_of is not None
        metadata = dict(context.invocation_metadata() or ())
        access = self._access_of(str(metadata.get("authorization", "")))
        if access is None:
            await abort(context, refusal(Reason.UNAUTHENTICATED))
        else:
            admit(access)


_KINDS: dict[tuple[bool, bool], tuple[str, Any]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}
