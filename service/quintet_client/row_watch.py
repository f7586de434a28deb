"""Changes of rows as the wire has them, for whoever hands on thousands a second; `Client` has the comfortable way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
from quintet.v1.event_service_pb2 import PartitionOffset
from quintet.v1.table_service_pb2 import WatchRowsRequest, WatchRowsResponse
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from quintet_client.credentials import ANONYMOUS, Credentials, open_channel
from quintet_client.errors import OffsetTrimmedError, UnavailableError, error_of_rpc

_BACKOFF_FIRST_S = 0.02
_BACKOFF_MAX_S = 1.0


class RowWatch:
    """A watch over all tables of a namespace that resumes by itself, without a gap or a repeat, until it is closed."""

    def __init__(self, target: str, *, namespace: str = "default", credentials: Credentials | None = None) -> None:
        self._namespace = namespace
        self._credentials = credentials or ANONYMOUS
        self._channel = open_channel(target, self._credentials)
        self._service: Any = TableServiceStub(self._channel)
        self._offsets: dict[int, int] = {}

    @property
    def stands(self) -> bool:
        """Whether it is settled from where on changes are told; a core that is away then delays them, no more."""
        return bool(self._offsets)

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close(grace=None)

    async def responses(self) -> AsyncIterator[WatchRowsResponse]:
        """What the core tells, from now on: the first response tells just where that is.

        Cores that are away are waited for. Raises `OffsetTrimmedError` when the log no longer holds what was missed:
        calling again then goes on from that moment. Other errors that do not mend by themselves are raised too.
        """
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                async with contextlib.aclosing(self._responses_once()) as responses:
                    async for response in responses:
                        backoff_s = _BACKOFF_FIRST_S
                        yield response
            except UnavailableError:
                pass
            except OffsetTrimmedError:
                self._offsets.clear()
                raise
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _responses_once(self) -> AsyncGenerator[WatchRowsResponse, None]:
        offsets = self._offsets
        request = WatchRowsRequest(
            namespace=self._namespace,
            starts=[PartitionOffset(partition=partition, after_offset=at) for partition, at in offsets.items()],
        )
        call = self._service.WatchRows(request, metadata=self._credentials.metadata())
        try:
            while isinstance(response := await call.read(), WatchRowsResponse):
                # Noted before it is handed out: whoever takes it may stop in the middle.
                if response.changes:
                    last = response.changes[-1]
                    offsets[last.partition] = last.offset
                for each in response.offsets:
                    offsets[each.partition] = each.after_offset
                yield response
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None
        finally:
            call.cancel()
