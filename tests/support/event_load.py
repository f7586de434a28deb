"""Writers that make events by the million: jobs through all that can happen to them, and rows, in large batches.

They go on whatever happens to the core and to Redis, and note what was acknowledged: each of it must be in the log.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from quintet.v1.job_pb2 import PLACEMENT_ORIGINAL, PLACEMENT_TAIL, Job
from quintet.v1.queue_service_pb2 import (
    AcknowledgeRequest,
    DeleteRequest,
    DequeueRequest,
    EnqueueRequest,
    ExtendRequest,
    ReleaseRequest,
)
from quintet.v1.session_service_pb2 import SessionResult
from quintet.v1.table_service_pb2 import TTL_CHANGE_CLEAR, TTL_CHANGE_KEEP, TTL_CHANGE_SET, WriteRowsRequest
from quintet_client.admin import NamespaceSettings
from quintet_client.client import Client
from quintet_client.errors import NotFoundError, QuintetError
from quintet_client.queue import QueueSettings
from quintet_client.table import TableSettings

BATCH = 1000
"""Jobs and rows of one operation: the most that a core can be told to allow."""
CORE_SETTINGS = {"QUINTET_BATCH_JOBS_MAX": str(BATCH), "QUINTET_BATCH_ROWS_MAX": str(BATCH)}
NAMESPACES = ("default", "~ ä/=%")
"""One of them cannot be the name of a folder as it is."""
CARRYING_NAMESPACE = NAMESPACES[1]
"""Of which events tell payloads and values."""
QUEUES = tuple(f"queue-{number}" for number in range(12))
WITH_LETTERS, LETTERS = QUEUES[0], "letters"
TABLES = tuple(f"table-{number}" for number in range(4))
CARRYING = TABLES[0]
_KEYS = 3000
_QUEUE_JOBS_MAX = 5000
_RANKS = (-(2**63), -5, 0, 0, 0, 7, 2**63 - 1)
_TRY_AGAIN_S = 0.05
_HANG_SECONDS_MAX = 60.0


@dataclass
class Told:
    """What the core acknowledged, by the ids of jobs, and how many operations it did not."""

    enqueued: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    failures: int = 0


class EventLoad(threading.Thread):
    """`writers` on one session a namespace with the core at `target`, until `stop`. The core must be there at first."""

    def __init__(self, target: str, seed: int, writers: int = 4) -> None:
        super().__init__(name="event-load", daemon=True)
        self._target = target
        self._seed = seed
        self._writers = writers
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.told = Told()

    def stop(self) -> None:
        """Stop writing; returns once nothing is under way. Raises what a writer failed with."""
        self._stopping.set()
        self.join()
        if self._failure:
            raise self._failure

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failure = error

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for namespace in NAMESPACES:
                tasks.create_task(self._write_into(namespace))

    async def _write_into(self, namespace: str) -> None:
        async with Client(self._target, namespace=namespace, name="event-load", patience_s=30) as client:
            if namespace == CARRYING_NAMESPACE:
                await client.update_namespace(NamespaceSettings(events_carry_payloads=True, events_carry_values=True))
            settings = QueueSettings(attempts_max=2, dead_letter_queue=LETTERS)
            await client.create_queue(WITH_LETTERS, settings)
            await client.create_table(CARRYING, TableSettings(events_carry_values=True))
            async with asyncio.TaskGroup() as tasks:
                for number in range(self._writers):
                    choice = random.Random(f"{self._seed} {namespace} {number}")
                    tasks.create_task(_Writer(client, choice, self).write())


class _Writer:
    """One of them: an owner of its own, a step after the other."""

    def __init__(self, client: Client, choice: random.Random, load: EventLoad) -> None:
        self._client = client
        self._session = client.session
        self._choice = choice
        self._load = load
        self._told = load.told
        self._owner = self._session.new_owner()

    async def write(self) -> None:
        """Until the load stops."""
        steps: dict[Callable[[], Awaitable[None]], int] = {
            self._put: 10,
            self._work: 8,
            self._lapse: 3,
            self._write_rows: 4,
            self._redrive: 1,
            self._shorten: 1,
            self._pause: 1,
            self._start_over: 1,
        }
        while not self._load.is_stopping:
            [step] = self._choice.choices(list(steps), list(steps.values()))
            try:
                async with asyncio.timeout(_HANG_SECONDS_MAX):
                    await step()
            except NotFoundError:
                pass
            except QuintetError:
                self._told.failures += 1
                await asyncio.sleep(_TRY_AGAIN_S)

    # Jobs.

    async def _put(self) -> None:
        choice = self._choice
        request = EnqueueRequest(namespace=self._client.namespace, queue=choice.choice(QUEUES), create_if_missing=True)
        for number in range(choice.choice((1, 100, BATCH, BATCH))):
            request.jobs.add(
                payload=b"%d" % number,
                rank=choice.choice(_RANKS),
                attempts_max=choice.choice((0, 0, 1, 3)),
                delay_ms=choice.randrange(1, 400) if choice.random() < 0.2 else 0,
                time_to_live_ms=choice.randrange(1, 3000) if choice.random() < 0.1 else 0,
            )
        [result] = await self._all([(self._session.submit_enqueue, request)])
        self._told.enqueued += result.enqueue.ids

    async def _work(self) -> None:
        """Most are ended, some given back; the owner closes with the rest in its hands."""
        placement = self._choice.choice((PLACEMENT_ORIGINAL, PLACEMENT_TAIL))
        try:
            await self._settle(await self._take(owner_lease=True, placement_on_close=placement), 0.4, 0.5, 0.55, 0.55)
        finally:
            self._session.close_owner(self._owner)
            self._owner = self._session.new_owner()

    async def _lapse(self) -> None:
        """Few are ended; the leases of the rest run out."""
        await self._settle(await self._take(lease_ms=self._choice.randrange(50, 500)), 0.2, 0.25, 0.3, 0.35)

    async def _take(self, **terms: Any) -> Sequence[Job]:
        queue = self._choice.choice((*QUEUES, LETTERS))
        request = DequeueRequest(
            namespace=self._client.namespace, queues=[queue], jobs_max=BATCH, allow_missing=True, **terms
        )
        [result] = await self._all([(self._session.submit_dequeue, request)])
        return result.dequeue.jobs

    async def _settle(
        self, jobs: Sequence[Job], acknowledged: float, released: float, deleted: float, extended: float
    ) -> None:
        """Up to these shares of the jobs; nothing is done to the others."""
        session, ends = self._session, dict[int, int]()
        requests: list[tuple[Callable[..., int], Message]] = []
        for job in jobs:
            roll = self._choice.random()
            fence: dict[str, Any] = {"namespace": job.namespace, "id": job.id, "token": job.lease.token}
            if roll < acknowledged:
                ends[len(requests)] = job.id
                requests.append((session.submit_acknowledge, AcknowledgeRequest(**fence)))
            elif roll < released:
                requests.append((session.submit_release, self._release(fence)))
            elif roll < deleted:
                requests.append((session.submit_delete, DeleteRequest(namespace=job.namespace, id=job.id)))
            elif roll < extended:
                requests.append((session.submit_extend, ExtendRequest(**fence, lease_ms=100)))
        results = await self._all(requests)
        self._told.acknowledged += [ends[at] for at in ends if results[at].HasField("acknowledge")]

    def _release(self, fence: dict[str, Any]) -> ReleaseRequest:
        choice = self._choice
        request = ReleaseRequest(**fence, undo_attempt=choice.random() < 0.1)
        if choice.random() < 0.5:
            request.delay_ms = choice.randrange(300)
        if choice.random() < 0.5:
            request.failure_reason = f"könnte besser sein: {choice.randrange(3)}"
        return request

    async def _redrive(self) -> None:
        await self._client.redrive(self._choice.choice(QUEUES), reset_attempts=self._choice.random() < 0.5)

    # Queues and tables.

    async def _shorten(self) -> None:
        for queue in (*QUEUES, LETTERS):
            if (await self._client.count(queue)).total > _QUEUE_JOBS_MAX:
                await self._client.purge(queue)

    async def _pause(self) -> None:
        queue = self._choice.choice(QUEUES)
        await self._client.pause(queue, duration_ms=self._choice.randrange(1, 50))
        if self._choice.random() < 0.5:
            await self._client.resume(queue)

    async def _start_over(self) -> None:
        """A queue or a table goes with all that is in it; the next who puts something there makes it anew."""
        if self._choice.random() < 0.5:
            await self._client.delete_queue(self._choice.choice(QUEUES[1:]))
        else:
            await self._client.delete_table(self._choice.choice(TABLES[1:]))

    async def _write_rows(self) -> None:
        choice = self._choice
        request = WriteRowsRequest(
            namespace=self._client.namespace, table=choice.choice(TABLES), create_if_missing=True
        )
        for key in choice.sample(range(_KEYS), k=choice.choice((1, 100, BATCH))):
            raw = b"key \xff %d" % key
            if choice.random() < 0.2:
                request.writes.add().delete.key = raw
                continue
            put = request.writes.add().put
            put.key, put.value = raw, b"value %d" % choice.randrange(10 ** choice.randrange(9))
            put.ttl_change = choice.choice((TTL_CHANGE_KEEP, TTL_CHANGE_SET, TTL_CHANGE_CLEAR))
            if put.ttl_change == TTL_CHANGE_SET:
                put.ttl_ms = choice.randrange(1, 3000)
        await self._all([(self._session.submit_write_rows, request)])

    async def _all(self, requests: Sequence[tuple[Callable[..., int], Message]]) -> list[SessionResult]:
        """Send all at once; their results, in order. What failed is counted and no more."""
        if not self._session.connected:
            await self._session.wait_connected(_HANG_SECONDS_MAX)
        results: list[SessionResult] = [SessionResult()] * len(requests)
        done = asyncio.Event()
        left = len(requests)

        def keep(at: int, result: SessionResult) -> None:
            nonlocal left
            results[at] = result
            self._told.failures += result.HasField("failure")
            left -= 1
            if not left:
                done.set()

        for at, (submit, request) in enumerate(requests):
            submit(self._owner, request, lambda result, at=at: keep(at, result))
        if left:
            await done.wait()
        return results
