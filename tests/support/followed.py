"""Watches over a real Redis without the core's doors, and listeners that keep and check what they hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from quintet.v1 import event_pb2
from quintet.v1.table_service_pb2 import WatchRowsResponse
from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.job import NewJob
from quintet_core.domain.limits import Limits
from quintet_core.domain.table import RowPut, TableSettings
from quintet_core.rpc.event_wire import encode_event
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.link import Address, Link, connect, into
from quintet_core.storage.log_tail import LogTail
from quintet_core.storage.pipeline import Pipeline
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.table_store import TableStore
from quintet_core.watching.interest import EventInterest, Interest, RowInterest
from quintet_core.watching.watcher import Batch, Watcher
from quintet_core.watching.watches import Watches

from tests.support.redis_server import PARTITIONS
from tests.support.store import Recorder

NAMESPACE = "n"


class Listener:
    """One watcher, and what it was told."""

    def __init__(self, watches: Watches, watcher: Watcher) -> None:
        self.watches = watches
        self.watcher = watcher
        self.events: list[event_pb2.Event] = []
        self.offsets: dict[int, int] = {}
        self.batches = 0
        self.ending: Refusal | None = None

    async def take(self) -> bool:
        """One more batch, checked; False at the end."""
        batch = await self.watches.take(self.watcher)
        if not isinstance(batch, Batch):
            self.ending = batch
            return False
        self.batches += 1
        told = WatchRowsResponse.FromString(batch.data).changes
        assert len(told) == batch.events
        for event in told:
            assert event.offset > self.offsets.get(event.partition, 0), "told again"
            self.offsets[event.partition] = event.offset
        for partition, offset in batch.offsets:
            assert offset >= self.offsets.get(partition, 0), "fell back"
            self.offsets[partition] = offset
        self.events += told
        return True

    async def hear(self, offsets: Mapping[int, int]) -> list[event_pb2.Event]:
        """All that was told, when everything up to some offsets was."""
        while any(self.offsets.get(partition, -1) < offset for partition, offset in offsets.items()):
            assert await self.take(), self.ending
        return self.events

    async def reason(self) -> Reason:
        """Why it ended."""
        while await self.take():
            pass
        assert self.ending is not None
        return self.ending.reason

    @property
    def keys(self) -> list[bytes]:
        """Of the rows' changes that were told."""
        return [event.key for event in self.events if event.key]

    def close(self) -> None:
        """Listen no more."""
        self.watches.close(self.watcher)


class Followed:
    """A core's watches. Made by `open_followed`."""

    def __init__(self, path: str, partitions: int = PARTITIONS, reply_timeout_s: float = 30.0) -> None:
        self.path = path
        self.partitions = partitions
        self.recorder = Recorder()
        self.pipeline = Pipeline(b"replica0", self.recorder, 30.0, Limits())
        self.store = RedisStore(self.pipeline, partitions)
        self.tables = TableStore(self.pipeline, partitions)
        self.told: list[int] = []
        self.fallen: list[None] = []
        self.watches = Watches(self.store, encode_event, self.told.append, lambda: self.fallen.append(None))
        terms = RedisTerms(Address(path=path), partitions, reply_timeout_s)
        self.tail = LogTail(terms, self.watches)
        self.watches.on_followed = self.tail.on_followed
        self.link: Link | None = None

    async def connect(self) -> None:
        """Attach the pipeline to a new connection."""
        self.link = await connect(Address(path=self.path), lambda: self.pipeline.detach(refusal(Reason.UNAVAILABLE)))
        self.pipeline.attach(self.link)

    async def do(self, verb: Any, *arguments: Any, **named: Any) -> Any:
        """Await a verb in the callback style."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        verb(*arguments, **named, done=into(future))
        return await future

    def partition(self, name: str, namespace: str = NAMESPACE) -> int:
        """Of a table or queue."""
        return self.store.partition_of(namespace, name)

    # --- writing

    async def put(self, table: str, *keys: bytes, value: bytes = b"v", namespace: str = NAMESPACE) -> dict[int, int]:
        """Put rows one after another; partition and offset of the last event."""
        for key in keys:
            stored = await self.do(self.tables.put_row, namespace, table, RowPut(key, value), True)
            assert not isinstance(stored, Refusal), stored
            last = stored.version
        return {self.partition(table, namespace): last}

    def put_together(self, table: str, *keys: bytes, value: bytes = b"v") -> asyncio.Future[Any]:
        """Put rows in one call, so that they share a stream entry; the future has the last's outcome."""
        for key in keys:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.tables.put_row(NAMESPACE, table, RowPut(key, value), True, into(future))
        return future

    async def create(self, table: str, **settings: Any) -> None:
        """Make a table."""
        await self.do(self.tables.create_table, NAMESPACE, table, TableSettings(**settings))

    async def enqueue(self, queue: str, count: int = 1, namespace: str = NAMESPACE) -> dict[int, int]:
        """Put jobs in one call; partition and offset of the last event."""
        await self.do(self.store.enqueue, namespace, queue, [NewJob(b"x")] * count, True)
        return await self.ends(self.partition(queue, namespace))

    async def ends(self, *partitions: int) -> dict[int, int]:
        """The last offset of some partitions."""
        found = {}
        for partition in partitions:
            log = await self.store.describe_events(partition, "")
            assert not isinstance(log, Refusal)
            found[partition] = log.last_offset
        return found

    # --- listening

    async def open(
        self, interest: Interest, partitions: Iterable[int], starts: Mapping[int, int], **named: Any
    ) -> Listener:
        """Fails when it is refused."""
        opened = await self.watches.open(interest, partitions, starts, **named)
        assert isinstance(opened, Watcher), opened
        return Listener(self.watches, opened)

    async def watch(self, *tables: str, prefix: bytes = b"", starts: Mapping[int, int] | None = None) -> Listener:
        """Follow the rows of tables, of all of the namespace when none is named; from where it stands now."""
        partitions = {self.partition(table) for table in tables} or range(self.partitions)
        listener = await self.open(RowInterest(NAMESPACE, frozenset(tables), prefix), partitions, starts or {})
        await listener.take()
        return listener

    async def subscribe(self, *namespaces: str, starts: Mapping[int, int] | None = None, **named: Any) -> Listener:
        """Follow everything of namespaces."""
        interest = EventInterest(lambda seen: seen in namespaces)
        listener = await self.open(interest, range(self.partitions), starts or {}, may_be_ahead=True, **named)
        await listener.take()
        return listener

    async def live(self, *listeners: Listener) -> None:
        """Return when nobody reads the log any more."""
        while any(listener.watcher.behind for listener in listeners) or not self.tail.connected:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def open_followed(path: str, partitions: int = PARTITIONS, **named: Any) -> AsyncIterator[Followed]:
    """Watches on the Redis at a unix socket, whose database must be prepared."""
    followed = Followed(path, partitions, **named)
    await followed.connect()
    followed.tail.start()
    try:
        yield followed
    finally:
        followed.watches.close_all(refusal(Reason.DRAINING))
        for watcher in list(followed.watches._watchers):
            followed.watches.close(watcher)
        with suppress(asyncio.CancelledError):
            await followed.tail.close()
        if followed.link is not None:
            followed.link.abort()
