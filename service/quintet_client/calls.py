"""Operations and calls as coroutines: the ground that `Client`'s verbs stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from quintet.v1.admin_service_pb2_grpc import AdminServiceStub
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.metrics_service_pb2_grpc import MetricsServiceStub
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub
from quintet.v1.session_service_pb2 import SessionResult
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from quintet_client.credentials import ANONYMOUS, Credentials, open_channel
from quintet_client.errors import UnavailableError, error_of_failure, error_of_rpc
from quintet_client.session import Session
from quintet_client.verbs import OnResult

PATIENCE_S = 10.0
"""Seconds that an operation waits for a core that is away, before it is sent."""

_Request = TypeVar("_Request", bound=Message, contravariant=True)
_Response = TypeVar("_Response", bound=Message)
_REPEAT_PAUSE_S = 0.05


class Submit(Protocol[_Request]):
    """One of `Session.submit_*`."""

    def __call__(self, owner: int, request: _Request, on_result: OnResult) -> int:
        """Sends the operation; returns its sequence."""


class Calls:
    """One session and one channel for the calls that sessions do not carry, both made on entry."""

    def __init__(
        self,
        target: str,
        *,
        namespace: str = "default",
        credentials: Credentials | None = None,
        name: str = "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.target = target
        self.namespace = namespace
        self.name = name
        self._credentials = credentials or ANONYMOUS
        self._patience_s = patience_s
        self._session: Session | None = None
        self._channel: grpc.aio.Channel | None = None
        self._owner = 0
        self._queue_service: Any = None
        self._table_service: Any = None
        self._event_service: Any = None
        self._metrics_service: Any = None
        self._admin_service: Any = None

    async def open(self) -> None:
        """Connects. Raises a `QuintetError` when that takes longer than `patience_s`, or is refused."""
        self._session = await Session.connect(
            self.target, client=self.name, credentials=self._credentials, connect_timeout_s=self._patience_s
        )
        self._owner = self._session.new_owner()
        self._channel = open_channel(self.target, self._credentials)
        self._queue_service = QueueServiceStub(self._channel)
        self._table_service = TableServiceStub(self._channel)
        self._event_service = EventServiceStub(self._channel)
        self._metrics_service = MetricsServiceStub(self._channel)
        self._admin_service = AdminServiceStub(self._channel)

    async def close(self) -> None:
        """Ends the session in order and closes the channel."""
        session, channel = self._session, self._channel
        self._session, self._channel = None, None
        if session is not None:
            await session.close()
        if channel is not None:
            await channel.close(grace=None)

    @property
    def session(self) -> Session:
        """The session beneath, for callback-style use. Raises RuntimeError before `open` and after `close`."""
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with Client(...) as client`")
        return self._session

    async def _operate(self, submit: Submit[_Request], request: _Request) -> SessionResult:
        """Sends one operation when there is a core to take it, once. Raises a `QuintetError` for a failure."""
        if not self.session.connected:
            await self.session.wait_connected(self._patience_s)
        future: asyncio.Future[SessionResult] = asyncio.get_running_loop().create_future()
        submit(self._owner, request, partial(settle, future))
        return await future

    async def _read(self, submit: Submit[_Request], request: _Request) -> SessionResult:
        """As `_operate`, for what changes nothing: repeated while the core is away, up to `patience_s`."""
        return await self._patiently(lambda: self._operate(submit, request))

    async def _call(self, method: Callable[..., Awaitable[_Response]], request: Message) -> _Response:
        """Makes one unary call, once. Raises a `QuintetError` for a failure."""
        self.session  # noqa: B018 - raises when closed
        try:
            return await method(request, metadata=self._credentials.metadata())
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None

    async def _read_call(self, method: Callable[..., Awaitable[_Response]], request: Message) -> _Response:
        """As `_call`, for what changes nothing."""
        return await self._patiently(lambda: self._call(method, request))

    async def _patiently(self, attempt: Callable[[], Awaitable[_Response]]) -> _Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while True:
            try:
                return await attempt()
            except UnavailableError:
                if loop.time() + _REPEAT_PAUSE_S >= deadline:
                    raise
            await asyncio.sleep(_REPEAT_PAUSE_S)


def settle(future: asyncio.Future[SessionResult], result: SessionResult) -> None:
    """A result, or its failure's error, into the future, unless whoever awaited it has gone."""
    if future.done():
        return
    if result.HasField("failure"):
        future.set_exception(error_of_failure(result.failure))
    else:
        future.set_result(result)
