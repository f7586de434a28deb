"""Clients of Etzel in a mixed load: publishers, and workers that nap while there is nothing; not all well-mannered."""

from __future__ import annotations

import time
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.support.clients import ANSWER_SECONDS_MAX, Address, reset
from tests.support.etzel import EtzelClient, EtzelLinesClient, EtzelWebSocketClient
from tests.support.history import Operation, Outcome
from tests.support.workload import HungError, Load, LoadClient, key_of

_NAP_SECONDS_MAX = 0.3


class EtzelLoad(LoadClient):
    """Publishes, fetches, acknowledges, deletes what others work on, naps; now and then it forgets, or vanishes.

    `lease_s` is the lease of the load's queues: nobody here gives a message a timeout of its own.
    """

    def __init__(
        self, load: Load, name: str, seed: int, address: Address, *, by_websocket: bool, lease_s: float
    ) -> None:
        super().__init__(load, name, seed)
        self.address = address
        self.by_websocket = by_websocket
        self.lease_s = lease_s
        self.published: list[tuple[str, int]] = []

    def live(self) -> None:
        try:
            self._live_once()
        except ConnectionClosed as error:
            raise EOFError(str(error)) from error

    def _live_once(self) -> None:
        with self._connect() as client:
            for _ in range(self.random.randrange(5, 60)):
                if self.load.stopping.is_set():
                    break
                self._step(client)
            self._leave(client)

    def _connect(self) -> EtzelClient:
        return EtzelWebSocketClient(self.address) if self.by_websocket else EtzelLinesClient(self.address)

    def _step(self, client: EtzelClient) -> None:
        choice = self.random.random()
        if choice < 0.4:
            self._publish(client)
        elif choice < 0.43:
            self._publish_refused(client)
        elif choice < 0.47 and self.published:
            self._acknowledge(client, *self.random.choice(self.published))
        elif choice < 0.55:
            self._nap(client)
        else:
            self._fetch_and_acknowledge(client)

    def _ask(self, client: EtzelClient, cmd: str, **fields: Any) -> dict[str, Any]:
        try:
            answer = client.ask({"cmd": cmd, **fields})
        except TimeoutError as error:
            raise HungError(f"{self.client} has had no answer for {ANSWER_SECONDS_MAX:g} s") from error
        if answer.get("err") == "UNAVAILABLE":
            self.pause()
        return answer

    def _publish(self, client: EtzelClient) -> None:
        queue, key = self.random.choice(self.load.queues), self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key)
        answer = self._ask(client, "PUB", qname=queue, message={"key": key})
        if answer["cmd"] == "ok":
            operation.done(Outcome.OK, job_id=int(answer["uid"], 16))
            self.load.ids.append(operation.job_id)
            self.published.append((queue, operation.job_id))

    def _publish_refused(self, client: EtzelClient) -> None:
        """A timeout that is too short."""
        queue, key = self.random.choice(self.load.queues), self.load.new_key(self.client)
        operation = self.history.put(self.client, queue, key)
        answer = self._ask(client, "PUB", qname=queue, message={"key": key}, timeout=1)
        assert answer["err"] == "BAD_REQUEST", answer
        operation.done(Outcome.REFUSED)

    def _fetch_and_acknowledge(self, client: EtzelClient) -> None:
        take = self._fetch(client)
        if take is None:
            return
        forgets = self.random.random() < 0.1
        self.load.stopping.wait(self.random.random() * 0.05)
        take.let_go()
        if not forgets:
            self._acknowledge(client, take.queue, take.job_id)

    def _fetch(self, client: EtzelClient) -> Operation | None:
        queue = self.random.choice(self.load.queues)
        take = self.history.take(self.client, [queue], self.lease_s)
        answer = self._ask(client, "FET", qname=queue)
        if answer["cmd"] == "msg":
            job_id, key = int(answer["uid"], 16), key_of(answer["msg"])
            take.done(Outcome.OK, job_id=job_id, key=key, rank=None, queue=queue)
            return take
        if answer.get("err") != "UNAVAILABLE":
            take.done(Outcome.EMPTY)
        return None

    def _acknowledge(self, client: EtzelClient, queue: str, job_id: int) -> None:
        """Whether or not the job is still there, the answer is the same."""
        operation = self.history.end(self.client, job_id)
        answer = self._ask(client, "ACK", qname=queue, uid=f"{job_id:016x}")
        if answer["cmd"] == "okack":
            operation.done(Outcome.OVER)

    def _nap(self, client: EtzelClient) -> None:
        """Asleep for a moment; what wakes it is left to whoever fetches."""
        queue = self.random.choice(self.load.queues)
        if self._ask(client, "SUB", qname=queue)["cmd"] != "oksub":
            return
        answer = self._ask(client, "ISLP", qname=queue)
        assert answer["cmd"] == "okslp", answer
        deadline = time.monotonic() + self.random.random() * _NAP_SECONDS_MAX
        try:
            client.awake(max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            return

    def _leave(self, client: EtzelClient) -> None:
        """Now and then with RST, an answer on its way."""
        if isinstance(client, EtzelLinesClient) and self.random.random() < 0.5:
            queue = self.random.choice(self.load.queues)
            self.history.take(self.client, [queue], self.lease_s)
            client.send({"cmd": "FET", "qname": queue})
            reset(client.connection)
