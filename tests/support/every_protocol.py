"""A little of everything on a `quintet up`, again and again: every protocol, gRPC, things that fail."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from quintet_client import Client

from tests.support.clients import JobCentreClient, TextClient
from tests.support.etzel import EtzelLinesClient
from tests.support.taskflux import Ok, TaskFluxClient, create
from tests.support.up import Up
from tests.support.zmq_kv import ReqClient

QUEUE = "watched"
TABLE = "watched"
NAMESPACE = "default"
REST_S = 0.25


class EveryProtocol:
    """A load in a thread of its own, from its beginning to the end of the block."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._load())
        except BaseException as failure:
            self._failure = failure

    async def _load(self) -> None:
        with ExitStack() as stack:
            text = TextClient(self._up.address("text-queue"))
            job_centre = stack.enter_context(JobCentreClient(self._up.address("job-centre")))
            taskflux = stack.enter_context(TaskFluxClient(self._up.address("taskflux")))
            etzel = stack.enter_context(EtzelLinesClient(self._up.address("etzel", "etzel-lines")))
            database = stack.enter_context(ReqClient("tcp://{}:{}".format(*self._up.address("zmq-kv"))))
            database.create_table(TABLE.encode())
            assert taskflux.ask(create("taskflux")) == Ok()
            async with Client("{}:{}".format(*self._up.address("core", "core-grpc"))) as client:
                number = 0
                while not self._stop.is_set():
                    number += 1
                    _text(text)
                    _job_centre(job_centre)
                    _taskflux(taskflux)
                    _etzel(etzel)
                    _database(database, number)
                    await _client(client, number)
                    await asyncio.sleep(REST_S)


def _text(client: TextClient) -> None:
    client.add(QUEUE, b"x")
    if found := client.get(QUEUE):
        client.ack(QUEUE, found[0])


def _job_centre(client: JobCentreClient) -> None:
    client.put("job-centre")
    found = client.get("job-centre")
    if found["status"] == "ok":
        client.abort(found["id"])
        client.delete(found["id"])


def _taskflux(client: TaskFluxClient) -> None:
    assert client.put("taskflux", b"x") == Ok()
    client.take("taskflux")


def _etzel(client: EtzelLinesClient) -> None:
    client.publish("etzel", "x")
    client.acknowledge("etzel", client.fetch("etzel")["uid"])


def _database(client: ReqClient, number: int) -> None:
    key = b"%d" % (number % 10)
    client.update(TABLE.encode(), key, b"value")
    client.get(TABLE.encode(), key)
    client.get(TABLE.encode(), b"missing")
    if number % 10 == 9:
        client.delete(TABLE.encode(), key)


async def _client(client: Client, number: int) -> None:
    await client.enqueue(QUEUE, b"stays" if number % 2 else b"later", delay_ms=0 if number % 2 else 3_600_000)
    for job in await client.dequeue(QUEUE, lease_ms=60_000):
        await (client.release(job) if number % 3 else client.acknowledge(job))
    await client.put_row(TABLE, b"%d" % number, b"value", ttl_ms=2000)
