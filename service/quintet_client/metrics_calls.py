"""What can be asked of the metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import grpc
from quintet.v1 import metrics_service_pb2 as wire

from quintet_client.calls import Calls
from quintet_client.errors import UnavailableError, error_of_rpc
from quintet_client.metrics import Snapshots

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0


class MetricsCalls(Calls):
    """The verbs of snapshots. Every method raises a `QuintetError` when the core refuses, or cannot be reached."""

    async def snapshot(self, *, all_namespaces: bool = False) -> Snapshots:
        """The newest snapshots of the queues and tables of the namespace; or of all that may be seen, and of
        processes."""
        request = wire.SnapshotRequest(namespace="" if all_namespaces else self.namespace)
        response: wire.SnapshotResponse = await self._read_call(self._metrics_service.Snapshot, request)
        return Snapshots.of_wire(response)

    async def stream_snapshots(self, *, all_namespaces: bool = False) -> AsyncIterator[Snapshots]:
        """Snapshots as they are written, without end, also across reconnections. What is written while there is no
        connection is not told, nor is any but the newest of a queue to whoever is slow."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                async with contextlib.aclosing(self._stream_once(all_namespaces)) as told:
                    async for snapshots in told:
                        backoff_s = _BACKOFF_FIRST_S
                        yield snapshots
            except UnavailableError:
                pass
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _stream_once(self, all_namespaces: bool) -> AsyncGenerator[Snapshots, None]:
        request = wire.StreamRequest(namespace="" if all_namespaces else self.namespace)
        call = self._metrics_service.Stream(request, metadata=self._credentials.metadata())
        try:
            async for response in call:
                # The first is empty: it says that the stream has begun.
                if response.ByteSize():
                    yield Snapshots.of_wire(response)
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None
        finally:
            call.cancel()
