"""EventService.ReadBlocks: stretches of a log from Redis to the reader, joined and not looked into."""

from __future__ import annotations

from dataclasses import dataclass

from quintet.v1 import event_service_pb2 as pb

from quintet_core.domain.errors import CallerError, Reason, Refusal, broken, refusal
from quintet_core.domain.event import Log
from quintet_core.rpc.access import Access, current_access
from quintet_core.rpc.door import Context
from quintet_core.rpc.following import Observe, check_offset, check_partition
from quintet_core.rpc.status import abort
from quintet_core.storage.blocks import Block, Range, Sees, blank_foreign
from quintet_core.storage.log_reader import LogReader
from quintet_core.storage.redis_store import RedisStore

VERB = "read_blocks"
BLOCK_BYTES = 1 << 20
# When another read of the library might not fit.
_FULL_BYTES = BLOCK_BYTES // 2
_LOGS = {pb.LOG_UNSPECIFIED: Log.EVENTS, pb.LOG_EVENTS: Log.EVENTS, pb.LOG_METRICS: Log.METRICS}


def log_of(value: int) -> Log:
    """The log that a request means. Raises CallerError."""
    found = _LOGS.get(value)  # type: ignore[call-overload]
    if found is None:
        raise broken("log is unknown", field="log")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Asked:
    partition: int
    range: Range
    with_carried: bool
    sees: Sees | None


class BlockStreams:
    """Streams of blocks, no more than `streams_max` at once. One waits for its reader, and holds a block meanwhile."""

    def __init__(self, store: RedisStore, reader: LogReader, streams_max: int, observe: Observe) -> None:
        self._store = store
        self._reader = reader
        self._streams_max = streams_max
        self._observe = observe
        self._open = 0

    async def serve(self, context: Context, request: pb.ReadBlocksRequest) -> None:
        """One range, to its end or to a refusal."""
        asked = await self._begin(request, current_access())
        self._observe(VERB, asked)
        if isinstance(asked, Refusal):
            await abort(context, asked)
        self._open += 1
        try:
            refused = await self._send(context, asked)
        finally:
            self._open -= 1
        if refused is not None:
            await abort(context, refused)

    async def _begin(self, request: pb.ReadBlocksRequest, access: Access) -> _Asked | Refusal:
        if not access.permits(VERB, request.namespace or None):
            return refusal(Reason.PERMISSION_DENIED)
        if self._open >= self._streams_max:
            return refusal(Reason.TOO_MANY_IN_FLIGHT, "too many block streams", max=str(self._streams_max))
        try:
            log = log_of(request.log)
            check_partition(request.partition, self._store.partitions)
            check_offset("after_offset", request.after_offset)
            check_offset("through_offset", request.through_offset)
            if request.through_offset < request.after_offset:
                raise broken("through_offset must not be below after_offset", field="through_offset")
        except CallerError as error:
            return error.refusal
        held = await self._store.describe_events(request.partition, "", log)
        if isinstance(held, Refusal):
            return held
        if request.through_offset > held.last_offset:
            last = str(held.last_offset)
            return refusal(Reason.INVALID_ARGUMENT, "through_offset is beyond the end of the log", last_offset=last)
        if request.after_offset < held.first_offset - 1:
            return refusal(Reason.OFFSET_TRIMMED, first_offset=str(held.first_offset))
        wanted = Range(log, request.after_offset, request.through_offset)
        return _Asked(request.partition, wanted, request.with_carried, _seeing(request.namespace, access))

    async def _send(self, context: Context, asked: _Asked) -> Refusal | None:
        wanted = asked.range
        gathered: Block | None = None
        while wanted.after < wanted.through:
            block = await self._reader.read_block(asked.partition, wanted, asked.with_carried)
            if isinstance(block, Block) and asked.sees is not None:
                block = _seen(block, wanted.log, asked.sees)
            if isinstance(block, Refusal):
                return block
            wanted = Range(wanted.log, block.last_offset, wanted.through, continued=True)
            if gathered is not None and gathered.bytes + block.bytes > BLOCK_BYTES:
                await context.write(_response(gathered))
                gathered = None
            if gathered is None:
                gathered = block
            else:
                gathered.add(block)
            if gathered.bytes >= _FULL_BYTES:
                await context.write(_response(gathered))
                gathered = None
        if gathered is not None:
            await context.write(_response(gathered))
        return None


def _seen(block: Block, log: Log, sees: Sees) -> Block | Refusal:
    try:
        return blank_foreign(block, log, sees)
    except (ValueError, IndexError):
        return refusal(Reason.DAMAGED)


def _seeing(namespace: str, access: Access) -> Sees | None:
    """What is wanted, or None for everything. Records of processes are of no namespace."""
    if namespace:
        return lambda seen: seen == namespace
    return None if access.sees_all else lambda seen: not seen or access.sees(seen)


def _response(block: Block) -> pb.ReadBlocksResponse:
    names = block.names.items()
    return pb.ReadBlocksResponse(
        first_offset=block.first_offset,
        numbers=[number for number, _ in names],
        namespaces=[namespace for _, (namespace, _) in names],
        names=[name for _, (_, name) in names],
        entry_bytes=block.entry_bytes,
        entry_at_ms=block.entry_at_ms,
        records=b"".join(block.records),
        carried=b"".join(block.carried),
    )
