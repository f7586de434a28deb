"""What runs the mixed load: a client of each door, doing what such clients do, now and then badly."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from quintet_client.client import Client
from quintet_client.errors import LeaseError, NotFoundError, QuintetError

from tests.support.clients import Address, TextClient, connect, reset
from tests.support.history import Operation, Outcome
from tests.support.workload import (
    HANG_SECONDS_MAX,
    RECONNECT_PAUSE_S,
    DisconnectedError,
    HungError,
    Load,
    LoadClient,
    key_of,
)

_SLICE_S = 0.02
_RANKS = 3


class JobCentreLoad(LoadClient):
    """Puts, takes (now and then several at a time), deletes, aborts, vanishes."""

    def __init__(self, load: Load, name: str, seed: int, address: Address) -> None:
        super().__init__(load, name, seed)
        self.address = address
        self.held: list[Operation] = []
        self.seen_alive_at = 0.0
        self._buffer = bytearray()
        self._connection = socket.socket()

    def live(self) -> None:
        self._buffer.clear()
        self._connection = connect(self.address)
        self.seen_alive_at = time.monotonic()
        try:
            for _ in range(self.random.randrange(5, 60)):
                if self.load.stopping.is_set():
                    break
                self.step()
            self.leave()
        except (OSError, EOFError):
            self.let_go_all(self.seen_alive_at)
            raise
        finally:
            self._connection.close()

    def step(self) -> None:
        """Something that a client might do next."""
        choice = self.random.random()
        if choice < 0.35:
            self.put()
        elif choice < 0.40:
            self.put_many()
        elif choice < 0.42:
            self.put_refused()
        elif choice < 0.45 and self.load.ids:
            self.delete(self.random.choice(self.load.ids))
        elif choice < 0.75 or not self.held:
            self.get()
        else:
            self.settle_one()
        if self.held:
            self.work()

    def put(self) -> None:
        operation, line = self._new_put()
        self._send(line)
        self._put_answered(operation, self._answer())

    def put_many(self) -> None:
        """Pipelined: all in one segment, answers in order."""
        puts = [self._new_put() for _ in range(self.random.randrange(2, 8))]
        self._send(b"".join(line for _, line in puts))
        for operation, _ in puts:
            self._put_answered(operation, self._answer())

    def _new_put(self) -> tuple[Operation, bytes]:
        queue, rank = self.random.choice(self.load.queues), self.random.randrange(_RANKS)
        key = self.load.new_key(self.client)
        line = _line(request="put", queue=queue, pri=rank, job={"key": key})
        return self.history.put(self.client, queue, key, -rank), line

    def _put_answered(self, operation: Operation, answer: dict[str, Any]) -> None:
        if answer["status"] == "ok":
            operation.done(Outcome.OK, job_id=answer["id"])
            self.load.ids.append(answer["id"])

    def put_refused(self) -> None:
        """A negative priority."""
        queue, key = self.random.choice(self.load.queues), self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key)
        self._send(_line(request="put", queue=queue, pri=-1, job={"key": key}))
        answer = self._answer()
        assert answer["status"] == "error", answer
        operation.done(Outcome.REFUSED)

    def get(self) -> None:
        queues, wait = self.some_queues(), self.random.random() < 0.4
        operation = self.history.take(self.client, queues)
        self._send(_line(request="get", queues=queues, wait=wait))
        answer = self._answer(may_wait=wait)
        if answer["status"] == "ok":
            operation.done(
                Outcome.OK, job_id=answer["id"], key=key_of(answer["job"]), rank=-answer["pri"], queue=answer["queue"]
            )
            self.held.append(operation)
        elif answer["status"] == "no-job":
            operation.done(Outcome.EMPTY)

    def settle_one(self) -> None:
        take = self.held.pop(self.random.randrange(len(self.held)))
        take.let_go()
        if self.random.random() < 0.7:
            self.delete(take.job_id)
        else:
            self.abort(take.job_id)

    def delete(self, job_id: int) -> None:
        for take in self.held:
            if take.job_id == job_id:
                take.let_go()
        self.held = [take for take in self.held if take.job_id != job_id]
        operation = self.history.end(self.client, job_id)
        self._send(_line(request="delete", id=job_id))
        self._deed_answered(operation, self._answer())

    def abort(self, job_id: int) -> None:
        operation = self.history.give_back(self.client, job_id)
        self._send(_line(request="abort", id=job_id))
        self._deed_answered(operation, self._answer())

    def _deed_answered(self, operation: Operation, answer: dict[str, Any]) -> None:
        if answer["status"] == "ok":
            operation.done(Outcome.OK)
        elif answer["status"] == "no-job":
            operation.done(Outcome.EMPTY)
        elif "does not work on" in answer["error"]:
            operation.done(Outcome.REFUSED)

    def work(self) -> None:
        """For a moment, watching the connection: its end is the end of every lease."""
        deadline = time.monotonic() + self.random.random() * 0.05
        while (left_s := deadline - time.monotonic()) > 0:
            self._watch(min(left_s, _SLICE_S))

    def _watch(self, seconds: float) -> None:
        now = time.monotonic()
        readable, _, _ = select.select([self._connection], [], [], seconds)
        if readable:
            if not self._connection.recv(1, socket.MSG_PEEK):
                raise DisconnectedError
        else:
            # Nothing to read after the call began: the connection was whole then.
            self.seen_alive_at = now

    def leave(self) -> None:
        """Now and then with RST, and with jobs in hand: they go back."""
        self.let_go_all()
        if self.random.random() < 0.5:
            reset(self._connection)

    def let_go_all(self, at: float | None = None) -> None:
        for take in self.held:
            take.let_go(max(at, take.returned_at) if at is not None else None)
        self.held.clear()

    def _send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def _answer(self, *, may_wait: bool = False) -> dict[str, Any]:
        deadline = time.monotonic() + HANG_SECONDS_MAX
        while b"\n" not in self._buffer:
            now = time.monotonic()
            readable, _, _ = select.select([self._connection], [], [], _SLICE_S)
            if not readable:
                self.seen_alive_at = now
                if self.load.stopping.is_set() and may_wait:
                    raise DisconnectedError
                if now > deadline and not may_wait:
                    raise HungError(f"{self.client} waits for an answer since {HANG_SECONDS_MAX:g} s")
                continue
            part = self._connection.recv(1 << 16)
            if not part:
                raise DisconnectedError
            self._buffer += part
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        answer = dict(json.loads(line))
        if "try again" in answer.get("error", ""):
            self.pause()
        return answer


class TextLoad(LoadClient):
    """ADD, GET, ACK, IN; now and then it forgets to acknowledge, or vanishes before the answer."""

    def __init__(self, load: Load, name: str, seed: int, address: Address) -> None:
        super().__init__(load, name, seed)
        self.text = TextClient(address)

    def live(self) -> None:
        choice = self.random.random()
        if choice < 0.45:
            self.add()
        elif choice < 0.5:
            self.add_refused()
        elif choice < 0.55:
            self.vanish()
        else:
            self.get_and_acknowledge()

    def _ask(self, command: bytes) -> bytes:
        with no_hang(self.client):
            answer = self.text.ask(command)
        if not answer:
            raise DisconnectedError
        if b"try again" in answer:
            self.pause()
        return answer

    def add(self) -> None:
        queue, key = self.random.choice(self.load.queues), self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key)
        data = json.dumps({"key": key}).encode()
        answer = self._ask(f"ADD {queue} {len(data)} ".encode() + data)
        if not answer.startswith(b"ERROR"):
            operation.done(Outcome.OK, job_id=int(answer, 16))

    def add_refused(self) -> None:
        """A length over the limit."""
        queue, key = self.random.choice(self.load.queues), self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key)
        data = json.dumps({"key": key}).encode()
        answer = self._ask(f"ADD {queue} 1000001 ".encode() + data)
        assert answer.startswith(b"ERROR"), answer
        operation.done(Outcome.REFUSED)

    def vanish(self) -> None:
        """A GET whose client is gone: the job comes back, at once or when its lease has run out."""
        queue = self.random.choice(self.load.queues)
        with connect(self.text.address) as connection:
            self.history.take(self.client, [queue], self.load.text_lease_s)
            connection.sendall(f"GET {queue}\n".encode())
            reset(connection)

    def get_and_acknowledge(self) -> None:
        take = self._get()
        if take is None:
            return
        forgets = self.random.random() < 0.1
        self.load.stopping.wait(self.random.random() * 0.05)
        if not forgets:
            take.let_go()
            self._acknowledge(take)

    def _get(self) -> Operation | None:
        queue = self.random.choice(self.load.queues)
        take = self.history.take(self.client, [queue], self.load.text_lease_s)
        answer = self._ask(f"GET {queue}\n".encode())
        if answer == b"NONE":
            take.done(Outcome.EMPTY)
        elif not answer.startswith(b"ERROR"):
            job_id, length, data = answer.split(b" ", 2)
            assert int(length) == len(data), answer
            key = json.loads(data)["key"]
            take.done(Outcome.OK, job_id=int(job_id, 16), key=key, rank=None, queue=queue)
            return take
        return None

    def _acknowledge(self, take: Operation) -> None:
        operation = self.history.end(self.client, take.job_id)
        answer = self._ask(f"ACK {take.queue} {take.job_id:016x}\n".encode())
        if answer in (b"OK", b"NO"):
            operation.done(Outcome.OK if answer == b"OK" else Outcome.EMPTY)


class SessionLoad(LoadClient):
    """Workers on one Session stream of the API, through the client library: leases by duration, fenced ends.

    One of them per process: gRPC does not like several event loops. `beside` is what else is to be done with its
    client until the load stops.
    """

    def __init__(
        self,
        load: Load,
        name: str,
        seed: int,
        target: str,
        *,
        workers: int = 2,
        lease_ms: int = 2000,
        beside: Sequence[Callable[[SessionLoad, Client], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        super().__init__(load, name, seed)
        self.target = target
        self.workers = workers
        self.lease_ms = lease_ms
        self.beside = beside

    def live(self) -> None:
        try:
            asyncio.run(self._live())
        except* QuintetError as errors:
            raise DisconnectedError from errors
        except* TimeoutError as errors:
            raise HungError(f"{self.client} waits for an answer since {HANG_SECONDS_MAX:g} s") from errors

    async def _live(self) -> None:
        async with Client(self.target, name=self.name, patience_s=5) as client, asyncio.TaskGroup() as tasks:
            for _ in range(self.workers):
                tasks.create_task(self._work(client))
            for work in self.beside:
                tasks.create_task(work(self, client))

    async def _work(self, client: Client) -> None:
        while not self.load.stopping.is_set():
            async with asyncio.timeout(HANG_SECONDS_MAX):
                await self._step(client)
            if not client.session.connected:
                await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _step(self, client: Client) -> None:
        if self.random.random() < 0.5:
            await self._put(client)
        else:
            await self._take(client)

    async def _put(self, client: Client) -> None:
        queue, rank = self.random.choice(self.load.queues), self.random.randrange(-_RANKS, 1)
        key = self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key, rank)
        payload = json.dumps({"key": key}).encode()
        with suppress(QuintetError):
            job_id = await client.enqueue(queue, payload, rank=rank, content_type="application/json")
            operation.done(Outcome.OK, job_id=job_id)

    async def _take(self, client: Client) -> None:
        queues = self.some_queues()
        take = self.history.take(self.client, queues, self.lease_ms / 1000)
        try:
            jobs = await client.dequeue(*queues, lease_ms=self.lease_ms, wait_ms=self.random.choice((0, 100)))
        except QuintetError:
            return
        if not jobs:
            take.done(Outcome.EMPTY)
            return
        [job] = jobs
        take.done(Outcome.OK, job_id=job.id, key=json.loads(job.payload)["key"], rank=job.rank, queue=job.queue)
        await asyncio.sleep(self.random.random() * 0.05)
        take.let_go()
        acknowledges = self.random.random() < 0.8
        record = self.history.end if acknowledges else self.history.give_back
        operation = record(self.client, job.id, fenced=True)
        try:
            await (client.acknowledge(job) if acknowledges else client.release(job, delay_ms=0))
        except (LeaseError, NotFoundError):
            operation.done(Outcome.EMPTY)
        except QuintetError:
            pass
        else:
            operation.done(Outcome.OK)


@contextmanager
def no_hang(client: str) -> Iterator[None]:
    """Turns the blocking clients' timeout into a finding."""
    try:
        yield
    except TimeoutError as error:
        raise HungError(f"{client} got no answer") from error


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"
