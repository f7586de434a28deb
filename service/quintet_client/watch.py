"""Changes of rows as they are committed, resumed by itself at any core.

`async for change in Watch(...)` is the comfortable way, `Watch.responses` the cheap one for thousands a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import grpc
from quintet.v1 import event_pb2
from quintet.v1.event_service_pb2 import PartitionOffset
from quintet.v1.table_service_pb2 import WatchRowsRequest, WatchRowsResponse
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from quintet_client.credentials import ANONYMOUS, Credentials, open_channel
from quintet_client.errors import OffsetTrimmedError, UnavailableError, error_of_rpc
from quintet_client.event import kind_of

_BACKOFF_FIRST_S = 0.02
_BACKOFF_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change. `kind`: row_put, row_deleted, row_expired, table_created, table_updated or table_deleted.

    `offset` is, of a put, the row's version. `value` is there in tables whose events carry values. `expires_at_ms` 0:
    the row lives until deleted. `detail`: "table deleted" when a row went with its table.
    """

    partition: int
    offset: int
    kind: str
    at_ms: int
    namespace: str
    table: str
    key: bytes
    value: bytes | None
    value_bytes: int
    expires_at_ms: int
    detail: str

    @classmethod
    def of_wire(cls, event: event_pb2.Event) -> RowChange:
        """The change of the API's message."""
        return cls(
            partition=event.partition,
            offset=event.offset,
            kind=kind_of(event.kind),
            at_ms=event.at_ms,
            namespace=event.namespace,
            table=event.table,
            key=event.key,
            value=event.value if event.HasField("value") else None,
            value_bytes=event.payload_bytes,
            expires_at_ms=event.expires_at_ms,
            detail=event.detail,
        )


class Watch:
    """The changes of some tables (none named: of all, also those to come), each once, in commit order within each
    partition, until it is closed.

    Begins behind `after_offsets` (partition to offset, as `offsets` of an earlier watch), in other partitions with what
    comes next. As an async context manager it begins before the block does; otherwise with the iteration. A core that
    is away, or about to stop, is waited for or replaced. Raises `OffsetTrimmedError` when the log no longer holds what
    was missed: then iterating again begins anew, with what comes next.
    """

    def __init__(
        self,
        target: str,
        tables: Iterable[str] = (),
        *,
        key_prefix: bytes = b"",
        namespace: str = "default",
        credentials: Credentials | None = None,
        after_offsets: Mapping[int, int] | None = None,
    ) -> None:
        self._target = target
        self._tables = list(tables)
        self._key_prefix = key_prefix
        self._namespace = namespace
        self._credentials = credentials or ANONYMOUS
        self._offsets = dict(after_offsets or {})
        self._stands = False
        self._begun: AsyncGenerator[WatchRowsResponse, None] | None = None

    @property
    def offsets(self) -> dict[int, int]:
        """By partition: everything up to there was handed out. What `after_offsets` of a later watch takes."""
        return dict(self._offsets)

    @property
    def stands(self) -> bool:
        """Whether it is settled from where on changes are told; a core that is away then delays them, no more."""
        return self._stands

    async def __aenter__(self) -> Self:
        self._begun = self._responses()
        self._note(await anext(self._begun))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun.aclose()

    async def __aiter__(self) -> AsyncIterator[RowChange]:
        """The changes, from where this watch was."""
        async with contextlib.aclosing(self._take_up()) as responses:
            async for response in responses:
                for change in response.changes:
                    # Noted before it is handed out: whoever takes it may stop there.
                    self._offsets[change.partition] = change.offset
                    yield RowChange.of_wire(change)
                self._note(response)

    async def responses(self) -> AsyncIterator[WatchRowsResponse]:
        """What the core tells, as it is told. Each counts as taken when it is handed out; some hold no changes."""
        async with contextlib.aclosing(self._take_up()) as responses:
            async for response in responses:
                self._note(response)
                yield response

    def _take_up(self) -> AsyncGenerator[WatchRowsResponse, None]:
        begun, self._begun = self._begun, None
        return begun or self._responses()

    def _note(self, response: WatchRowsResponse) -> None:
        # They cover the changes of the response too.
        for told in response.offsets:
            self._offsets[told.partition] = told.after_offset
        self._stands = True

    async def _responses(self) -> AsyncGenerator[WatchRowsResponse, None]:
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
                self._stands = False
                raise
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _responses_once(self) -> AsyncGenerator[WatchRowsResponse, None]:
        request = WatchRowsRequest(
            namespace=self._namespace,
            tables=self._tables,
            key_prefix=self._key_prefix,
            starts=[PartitionOffset(partition=partition, after_offset=at) for partition, at in self._offsets.items()],
        )
        # A channel of its own each time: one that is kept would lead back to a core that is about to stop.
        async with open_channel(self._target, self._credentials) as channel:
            service: Any = TableServiceStub(channel)
            call = service.WatchRows(request, metadata=self._credentials.metadata())
            try:
                while isinstance(response := await call.read(), WatchRowsResponse):
                    yield response
            except grpc.aio.AioRpcError as error:
                raise error_of_rpc(error) from None
            finally:
                call.cancel()
