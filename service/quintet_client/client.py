"""The client: a core's queues, tables and event log as coroutines.

Connect, put a job, take it, acknowledge it:

>>> async def main():
...     async with Client(TARGET) as client:
...         job_id = await client.enqueue("emails", b"hello", rank=5)
...         [job] = await client.dequeue("emails", wait_ms=1000, lease_ms=30_000)
...         assert job.id == job_id
...         print(job.payload, job.state, job.attempts)
...         await client.acknowledge(job)
...         return await client.count("emails")
>>> asyncio.run(main())
b'hello' leased 1
QueueCounts(ready=0, delayed=0, leased=0, dead=0)

Errors are classes, one for each reason of the API, under a few common ones:

>>> async def main():
...     async with Client(TARGET) as client:
...         try:
...             await client.get_job(123456789)
...         except NotFoundError as error:
...             print(type(error).__name__, error.reason, error.retryable)
>>> asyncio.run(main())
JobNotFoundError JOB_NOT_FOUND False

Work until told to stop; the lease of each job is extended while the body runs:

>>> async def main():
...     async with Client(TARGET) as client:
...         await client.enqueue_many("numbers", [b"1", b"2", b"3"])
...         async for job in client.work("numbers"):
...             async with job:  # acknowledged at its end; given back when it raises
...                 print(int(job.payload) ** 2)
...             if job.payload == b"3":
...                 break
>>> asyncio.run(main())
1
4
9

Or give a handler, and let up to ten jobs run at a time:

>>> async def main():
...     async with Client(TARGET) as client:
...         stop, seen = asyncio.Event(), []
...         await client.enqueue_many("letters", [b"a", b"b", b"c"])
...         async def handle(job):
...             seen.append(job.payload)
...             if len(seen) == 3:
...                 stop.set()
...         await client.run_worker("letters", handler=handle, concurrency=10, stop=stop)
...         print(sorted(seen), (await client.count("letters")).total)
>>> asyncio.run(main())
[b'a', b'b', b'c'] 0

Tables hold rows of bytes; a version says which write made a row:

>>> async def main():
...     async with Client(TARGET) as client:
...         row = await client.put_row("users", b"ada", b"countess", ttl_ms=60_000)
...         await client.put_row("users", b"ada", b"lovelace", expected_version=row.version)
...         print((await client.get_row("users", b"ada")).value)
...         return [row.key async for row in client.scan_rows("users", key_prefix=b"a")]
>>> asyncio.run(main())
b'lovelace'
[b'ada']

Hear of changes as they are committed:

>>> async def main():
...     async with Client(TARGET) as client, client.watch("users") as watch:
...         await client.delete_row("users", b"ada")
...         async for change in watch:
...             return change.kind, change.key
>>> asyncio.run(main())
('row_deleted', b'ada')
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Self

from quintet.v1 import admin_service_pb2 as wire

from quintet_client.admin import CoreInfo, Durability, NamespaceSettings
from quintet_client.event_calls import EventCalls
from quintet_client.job_calls import JobCalls
from quintet_client.leased_job import LeasedJob
from quintet_client.metrics_calls import MetricsCalls
from quintet_client.queue_calls import QueueCalls
from quintet_client.table_calls import TableCalls
from quintet_client.watch import Watch
from quintet_client.worker import GRACE_S, LEASE_MS, Handler, Worker, work


class Client(JobCalls, QueueCalls, TableCalls, EventCalls, MetricsCalls):
    """A client of the core at `target` ("unix:/run/quintet.sock" or "host:port"), for one namespace.

    Use it as an async context manager. It reconnects by itself: operations wait up to `patience_s` seconds for a core
    that is away. An operation that was under way when the connection broke raises `UnavailableError`: a change may or
    may not have happened; what only reads is repeated. `name` labels its sessions and leases.
    """

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def work(
        self, *queues: str, jobs_max: int = 1, lease_ms: int = LEASE_MS, stop: asyncio.Event | None = None
    ) -> AsyncIterator[LeasedJob]:
        """Leased jobs, one after another, for ever or until `stop` is set: `async for job in client.work("queue")`.

        The lease is extended while the loop's body runs (`lease_ms` is what a crashed worker's job waits for).
        Going on to the next job acknowledges the last, unless the body settled it; `async with job:` does so at its
        end, gives the job back when the body raises, and stops a body whose lease was lost. Leaving the loop by an
        error or `break` gives an unsettled job back. `jobs_max` jobs are leased at a time and seen one by one.
        """
        return work(self, queues, jobs_max=jobs_max, lease_ms=lease_ms, stop=stop or asyncio.Event())

    async def run_worker(
        self,
        *queues: str,
        handler: Handler,
        concurrency: int = 10,
        lease_ms: int = LEASE_MS,
        grace_s: float = GRACE_S,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Calls `handler(job)` for each job, up to `concurrency` at a time, until `stop` is set or it is cancelled.

        A handler that returns acknowledges its job; one that raises gives it back with the error as failure reason, and
        the worker goes on. At the stop, handlers have `grace_s` seconds to end; then they are cancelled, and
        their jobs given back without counting the attempt.
        """
        worker = Worker(self, queues, handler, concurrency=concurrency, lease_ms=lease_ms, grace_s=grace_s, stop=stop)
        await worker.run()

    def watch(self, *tables: str, key_prefix: bytes = b"", after_offsets: Mapping[int, int] | None = None) -> Watch:
        """The changes of rows of `tables` (none: of all of the namespace, also those to come), as they are committed:
        `async with client.watch("users") as watch: async for change in watch: ...`. It outlives any restart of the core
        and of Redis, without a gap or a repeat; see `Watch`."""
        return Watch(
            self.target,
            tables,
            key_prefix=key_prefix,
            namespace=self.namespace,
            credentials=self._credentials,
            after_offsets=after_offsets,
        )

    async def durability(self) -> Durability:
        """Whether replies mean that changes are on disk."""
        response: wire.GetDurabilityResponse = await self._read_call(
            self._admin_service.GetDurability, wire.GetDurabilityRequest()
        )
        return Durability.of_wire(response)

    async def info(self) -> CoreInfo:
        """The core that answers."""
        response: wire.GetInfoResponse = await self._read_call(self._admin_service.GetInfo, wire.GetInfoRequest())
        return CoreInfo.of_wire(response)

    async def namespace_settings(self) -> NamespaceSettings:
        """What holds for all queues and tables of the client's namespace."""
        response: wire.GetNamespaceResponse = await self._read_call(
            self._admin_service.GetNamespace, wire.GetNamespaceRequest(namespace=self.namespace)
        )
        return NamespaceSettings.of_wire(response.settings)

    async def update_namespace(self, settings: NamespaceSettings) -> None:
        """Replaces it; takes effect with the next change. Said again after a failure, it ends the same."""
        request = wire.UpdateNamespaceRequest(namespace=self.namespace, settings=settings.to_wire())
        await self._read_call(self._admin_service.UpdateNamespace, request)
