"""One face for the four queue protocols: put, take, end, give back, each in the words that its wire has."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tests.support.clients import JobCentreClient, TextClient
from tests.support.etzel import EtzelLinesClient
from tests.support.stack import AdapterPart
from tests.support.taskflux import ACK, NACK, Nothing, Ok, Record, TaskFluxClient


@dataclass(frozen=True)
class Taken:
    """A job as its client was told of it. None: what the wire does not tell. `body` as it stood on the wire."""

    body: bytes
    job_id: int | None = None
    rank: int | None = None


class Tongue(ABC):
    """One client of a protocol. Who took a job ends it or gives it back, unless said otherwise."""

    name: str

    def __init__(self, stack: ExitStack, adapter: AdapterPart) -> None:
        self._stack = stack
        self.adapter = adapter

    @abstractmethod
    def put(self, queue: str, body: bytes, rank: int = 0) -> int | None:
        """The id, where the wire tells it. Of ranks each can say only some."""

    @abstractmethod
    def take(self, queue: str) -> Taken | None:
        """The best job, or None."""

    @abstractmethod
    def end(self, queue: str, taken: Taken) -> bool:
        """Whether the job that it took is over, by this."""

    def give_back(self, queue: str, taken: Taken) -> None:
        """The job that it took goes back."""
        raise NotImplementedError(f"{self.name} has no word for it")

    def delete(self, queue: str, job_id: int) -> bool:
        """End a job that anybody may hold; whether it was there, as far as the wire tells."""
        raise NotImplementedError(f"{self.name} has no word for it")


class Text(Tongue):
    """The text queue: a connection for each command."""

    name = "text-queue"

    def __init__(self, stack: ExitStack, adapter: AdapterPart) -> None:
        super().__init__(stack, adapter)
        self.client = TextClient(adapter.address)

    def put(self, queue: str, body: bytes, rank: int = 0) -> int | None:
        assert rank == 0
        return int(self.client.add(queue, body), 16)

    def take(self, queue: str) -> Taken | None:
        found = self.client.get(queue)
        return Taken(found[1], _number(found[0])) if found else None

    def end(self, queue: str, taken: Taken) -> bool:
        return self.delete(queue, taken.job_id or 0)

    def delete(self, queue: str, job_id: int) -> bool:
        """ACK: of a job that somebody holds."""
        return {b"OK": True, b"NO": False}[self.client.ack(queue, b"%016x" % job_id)]


class JobCentre(Tongue):
    """Job Centre: one connection."""

    name = "job-centre"

    def __init__(self, stack: ExitStack, adapter: AdapterPart) -> None:
        super().__init__(stack, adapter)
        self.client = stack.enter_context(JobCentreClient(adapter.address))

    def put(self, queue: str, body: bytes, rank: int = 0) -> int | None:
        line = b'{"request":"put","queue":%b,"pri":%d,"job":%b}' % (json.dumps(queue).encode(), -rank, body)
        answer = self.client.ask(line)
        assert answer["status"] == "ok", answer
        return int(answer["id"])

    def take(self, queue: str) -> Taken | None:
        self.client.send({"request": "get", "queues": [queue]})
        line = self.client.read_line()
        answer = json.loads(line)
        if answer["status"] == "no-job":
            return None
        assert answer["queue"] == queue
        return Taken(source_of(line, "job"), answer["id"], -answer["pri"])

    def end(self, queue: str, taken: Taken) -> bool:
        return self.delete(queue, taken.job_id or 0)

    def give_back(self, queue: str, taken: Taken) -> None:
        assert self.client.abort(taken.job_id or 0) == "ok"

    def delete(self, queue: str, job_id: int) -> bool:
        return {"ok": True, "no-job": False}[self.client.delete(job_id)]


class TaskFlux(Tongue):
    """TaskFlux: one connection, on which one record at a time is out. Queues are created first."""

    name = "taskflux"

    def __init__(self, stack: ExitStack, adapter: AdapterPart) -> None:
        super().__init__(stack, adapter)
        self.client = stack.enter_context(TaskFluxClient(adapter.address))

    def put(self, queue: str, body: bytes, rank: int = 0) -> int | None:
        answer = self.client.put(queue, body, rank)
        assert answer == Ok(), answer
        return None

    def take(self, queue: str) -> Taken | None:
        answer = self.client.get(queue)
        if not isinstance(answer, Record):
            assert answer == Nothing(), answer
            return None
        return Taken(answer.payload, None, answer.key)

    def end(self, queue: str, taken: Taken) -> bool:
        return self.client.ask(ACK) == Ok()

    def give_back(self, queue: str, taken: Taken) -> None:
        assert self.client.ask(NACK) == Ok()


class Etzel(Tongue):
    """Etzel by lines: one connection."""

    name = "etzel"

    def __init__(self, stack: ExitStack, adapter: AdapterPart) -> None:
        super().__init__(stack, adapter)
        self.client = stack.enter_context(EtzelLinesClient(adapter.address_of("etzel-lines")))

    def put(self, queue: str, body: bytes, rank: int = 0, **options: float) -> int | None:
        assert rank == 0
        head = json.dumps({"cmd": "PUB", "qname": queue, **options}).encode()
        answer = self.client.ask(head[:-1] + b',"message":' + body + b"}")
        assert answer["cmd"] == "ok", answer
        return _number(answer["uid"].encode())

    def take(self, queue: str) -> Taken | None:
        self.client.send({"cmd": "FET", "qname": queue})
        line = self.client.read_source()
        answer = json.loads(line)
        if answer["cmd"] == "nomsg" or answer.get("err") == "Q_NOT_FOUND":
            return None
        assert (answer["cmd"], answer["qname"]) == ("msg", queue)
        return Taken(source_of(line, "msg"), _number(answer["uid"].encode()))

    def end(self, queue: str, taken: Taken) -> bool:
        return self.delete(queue, taken.job_id or 0)

    def delete(self, queue: str, job_id: int) -> bool:
        """ACK, which says the same of an unknown uid."""
        self.client.acknowledge(queue, f"{job_id:016x}")
        return True


def source_of(line: bytes, member: str) -> bytes:
    """The source of the value of a member of the object that a line is, as it stands there."""
    text = line.decode()
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while True:
        name, at = decoder.raw_decode(text, at)
        begin = text.index(":", at) + 1
        _, at = decoder.raw_decode(text, begin)
        if name == member:
            return text[begin:at].encode()
        at = text.index(",", at) + 1


def _number(job_id: bytes) -> int:
    """Of an id as 16 lowercase hexadecimal digits."""
    number = int(job_id, 16)
    assert job_id == b"%016x" % number, job_id
    return number


TONGUES: dict[str, type[Tongue]] = {tongue.name: tongue for tongue in (Text, JobCentre, TaskFlux, Etzel)}


def as_dict(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object."""
    return dict(json.loads(body))
