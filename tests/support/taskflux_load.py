"""Clients of TaskFlux in a mixed load. Their wire tells no ids: the key in the payload says which job it is."""

from __future__ import annotations

import json
import select
import socket
import time

from tests.support.clients import Address
from tests.support.history import Operation, Outcome
from tests.support.taskflux import ACK, NACK, Answer, End, Error, ErrorResponse, Nothing, Ok, Record, TaskFluxClient
from tests.support.taskflux import dequeue as dequeue_packet
from tests.support.taskflux import enqueue as enqueue_packet
from tests.support.workload import DisconnectedError, HungError, Load, LoadClient

_AWAY = Error(0)
_SLICE_S = 0.02


class TaskFluxLoad(LoadClient):
    """Puts and takes, with an acknowledgement mostly; now and then it says no, or vanishes between two packets."""

    def __init__(self, load: Load, name: str, seed: int, address: Address) -> None:
        super().__init__(load, name, seed)
        self.address = address
        self.seen_alive_at = 0.0

    def live(self) -> None:
        with TaskFluxClient(self.address) as client:
            for _ in range(self.random.randrange(5, 60)):
                if self.load.stopping.is_set():
                    return
                self._step(client)

    def _step(self, client: TaskFluxClient) -> None:
        choice = self.random.random()
        if choice < 0.45:
            self._put(client)
        elif choice < 0.49:
            self._put_refused(client)
        else:
            self._take(client)

    def _ask(self, client: TaskFluxClient, packet: bytes) -> Answer:
        try:
            answer = client.ask(packet)
        except TimeoutError as error:
            raise HungError(f"{self.client} has had no answer for long") from error
        if isinstance(answer, End | ErrorResponse):
            raise DisconnectedError
        if answer == _AWAY:
            self.pause()
        return answer

    def _put(self, client: TaskFluxClient) -> None:
        operation = self._enqueue(client)
        if self.random.random() < 0.03:
            # Gone before the acknowledgement: nothing is stored.
            operation.done(Outcome.REFUSED)
            raise DisconnectedError
        answer = self._ask(client, ACK)
        if answer == Ok():
            operation.done(Outcome.OK)
        else:
            assert answer == _AWAY, answer

    def _put_refused(self, client: TaskFluxClient) -> None:
        """Thought better of."""
        operation = self._enqueue(client)
        operation.done(Outcome.REFUSED)
        assert self._ask(client, NACK) == Ok()

    def _enqueue(self, client: TaskFluxClient) -> Operation:
        queue, rank = self.random.choice(self.load.queues), self.random.randrange(-2, 2)
        key = self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key, rank)
        try:
            answer = self._ask(client, enqueue_packet(queue, rank, json.dumps({"key": key}).encode()))
        except (OSError, EOFError):
            # Not acknowledged: surely not stored.
            operation.done(Outcome.REFUSED)
            raise
        assert answer == Ok(), answer
        return operation

    def _take(self, client: TaskFluxClient) -> None:
        queue = self.random.choice(self.load.queues)
        take = self.history.take(self.client, [queue])
        answer = self._ask(client, dequeue_packet(queue, self.random.choice((0, 0, 100, 1000))))
        if answer == Nothing():
            take.done(Outcome.EMPTY)
        elif isinstance(answer, Record):
            found = json.loads(answer.payload)["key"]
            take.done(Outcome.OK, key=found, rank=answer.key, queue=queue)
            self.seen_alive_at = take.returned_at
            try:
                self._work(client.connection)
            except OSError:
                take.let_go(self.seen_alive_at)
                raise
            take.let_go()
            self._settle(client, take)
        else:
            assert answer == _AWAY, answer

    def _settle(self, client: TaskFluxClient, take: Operation) -> None:
        draw = self.random.random()
        if draw < 0.05:
            raise DisconnectedError  # With the record in hand.
        acknowledges = draw < 0.8
        record = self.history.end if acknowledges else self.history.give_back
        operation = record(self.client, take.job_id, key=take.key)
        answer = self._ask(client, ACK if acknowledges else NACK)
        if answer == Ok():
            # Also when another has ended it.
            operation.done(Outcome.OVER)
        else:
            assert answer == _AWAY, answer

    def _work(self, connection: socket.socket) -> None:
        """For a moment, watching the connection: its end is the end of the lease."""
        deadline = time.monotonic() + self.random.random() * 0.05
        while (left_s := deadline - time.monotonic()) > 0:
            now = time.monotonic()
            readable, _, _ = select.select([connection], [], [], min(left_s, _SLICE_S))
            if readable:
                raise DisconnectedError
            # Nothing to read after the call began: the connection was whole then.
            self.seen_alive_at = now
