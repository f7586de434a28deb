"""TableService.WatchRows: a thin door onto the watches."""

from __future__ import annotations

from typing import Any

import grpc
from quintet.v1 import table_service_pb2 as pb

from quintet_core.domain.errors import Refusal, broken, exceeded
from quintet_core.domain.limits import Limits
from quintet_core.rpc import convert, wire
from quintet_core.rpc.door import Context
from quintet_core.rpc.event_wire import encode_offsets
from quintet_core.rpc.following import Followings, Observe, check_offset
from quintet_core.storage.redis_store import RedisStore
from quintet_core.watching.interest import RowInterest
from quintet_core.watching.watcher import Batch, Watcher
from quintet_core.watching.watches import Watches

VERB = "watch_rows"
SERVICE = pb.DESCRIPTOR.services_by_name["TableService"].full_name


class WatchServicer:
    """Streams of changes of rows."""

    def __init__(self, store: RedisStore, watches: Watches, limits: Limits, observe: Observe) -> None:
        self._store = store
        self._limits = limits
        self._watches = watches
        self._followings = Followings(watches, limits.watches_max, "watches", observe)

    async def WatchRows(self, request: pb.WatchRowsRequest, context: Context) -> None:  # noqa: N802 - the API's name
        """Changes as they are committed, until the caller leaves or the core drains."""
        namespace = convert.namespace_of(request)
        await self._followings.serve(context, VERB, namespace, lambda: self._open(request, namespace), _response)

    async def _open(self, request: pb.WatchRowsRequest, namespace: str) -> Watcher | Refusal:
        limits = self._limits
        limits.check_namespace(namespace)
        tables = frozenset(request.tables)
        if len(tables) > limits.tables_per_watch_max:
            raise exceeded("tables", limits.tables_per_watch_max, len(tables))
        for table in tables:
            limits.check_name(table, "table")
        limits.check_key(request.key_prefix, "key_prefix")
        partitions = {self._store.partition_of(namespace, table) for table in tables} or range(self._store.partitions)
        starts: dict[int, int] = {}
        for start in request.starts:
            if start.partition not in partitions:
                raise broken(f"no table that is watched is in partition {start.partition}", field="starts")
            check_offset("after_offset", start.after_offset)
            starts[start.partition] = start.after_offset
        return await self._watches.open(RowInterest(namespace, tables, request.key_prefix), partitions, starts)


def _response(batch: Batch) -> bytes:
    return batch.data + encode_offsets(batch.offsets)


def watch_handlers(servicer: WatchServicer) -> tuple[str, dict[str, Any]]:
    """The service, and what the generated registration does, but that responses are encoded already."""
    watch = grpc.unary_stream_rpc_method_handler(
        servicer.WatchRows, request_deserializer=pb.WatchRowsRequest.FromString, response_serializer=wire.serialize
    )
    return SERVICE, {"WatchRows": watch}
