"""Mixed load on a stack that is being damaged: clients of both protocols and of the API, each a thread, all recording
what they see in one history.

Clients behave as theirs do: they reconnect, repeat what is safe to repeat, now and then vanish with jobs in their
hands. What they choose comes from one seed; how their steps interleave does not.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.clients import Address, JobCentreClient
from tests.support.history import History, Operation, Outcome, drained_out_of_order

HANG_SECONDS_MAX = 40.0
"""No answer for so long is a hang, whatever was done to the stack."""
RECONNECT_PAUSE_S = 0.02


class HungError(AssertionError):
    """A client got neither an answer nor the end of its connection."""


class DisconnectedError(ConnectionError):
    """The connection ended."""


@dataclass
class Load:
    """What the clients share. `queues` are the protocols' common ones; text jobs have rank 0."""

    history: History
    queues: Sequence[str]
    text_lease_s: float
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """Of jobs put, for clients that delete what others work on."""
    keys: Iterator[int] = field(default_factory=itertools.count)

    def new_key(self, client: str) -> str:
        """What a payload says, never the same twice."""
        return f"{client}-{next(self.keys)}"


class LoadClient(threading.Thread):
    """One client. `live` is called again and again until the load stops; connections may break at any moment."""

    def __init__(self, load: Load, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.load = load
        self.history = load.history
        self.random = random.Random(f"{seed} {name}")
        self.lives = 0

    @property
    def client(self) -> str:
        """Its name in the history: another one for each connection."""
        return f"{self.name}.{self.lives}"

    def run(self) -> None:
        while not self.load.stopping.is_set():
            self.lives += 1
            try:
                self.live()
            except (OSError, EOFError):
                self.pause()
            except BaseException as error:
                self.load.failures.append(error)
                return

    def live(self) -> None:
        """One connection, or one exchange."""
        raise NotImplementedError

    def pause(self) -> None:
        """After an answer that says: try again."""
        self.load.stopping.wait(RECONNECT_PAUSE_S)

    def some_queues(self) -> list[str]:
        """One or two of them."""
        return self.random.sample(list(self.load.queues), k=self.random.choice((1, 1, 2)))


@contextmanager
def under_load(clients: Sequence[LoadClient], load: Load) -> Iterator[None]:
    """Starts the clients; afterwards stops them and raises what any of them found."""
    for client in clients:
        client.start()
    try:
        yield
    finally:
        load.stopping.set()
        for client in clients:
            client.join(HANG_SECONDS_MAX + 5)
    if load.failures:
        raise load.failures[0]
    assert not any(client.is_alive() for client in clients), "a client hangs"


def drain(history: History, address: Address, queues: Sequence[str], *, to_tail: bool = False) -> list[str]:
    """Takes and deletes every job through Job Centre, alone; what is wrong with the order, one line each; see
    `drained_out_of_order`.

    To be called when nothing is leased any more.
    """
    wrong: list[str] = []
    with JobCentreClient(address) as client:
        for queue in queues:
            taken: list[Operation] = []
            while take := _take_alone(history, client, queue):
                end = history.end("drain", take.job_id)
                assert client.delete(take.job_id) == "ok", take
                end.done(Outcome.OK)
                taken.append(take)
            wrong += drained_out_of_order(taken, to_tail=to_tail)
    return wrong


def _take_alone(history: History, client: JobCentreClient, queue: str) -> Operation | None:
    take = history.take("drain", [queue])
    answer = client.get(queue)
    if answer["status"] == "no-job":
        take.done(Outcome.EMPTY)
        return None
    take.done(Outcome.OK, job_id=answer["id"], key=key_of(answer["job"]), rank=-answer["pri"], queue=answer["queue"])
    take.let_go()
    return take


def key_of(job: dict[str, Any]) -> str:
    """What a job's payload says. The text queue's payloads are bytes to Job Centre."""
    return str((json.loads(job["data"]) if "data" in job else job)["key"])
