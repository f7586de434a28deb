"""Load on tables through ZeroMQ. Its replies tell no versions and no deadlines: the event log does, afterwards."""

from __future__ import annotations

import zmq

from tests.support.row_history import Outcome, RowName, RowOperation, Ttl
from tests.support.stack import AdapterPart
from tests.support.table_load import KEYS, TableLoad
from tests.support.workload import DisconnectedError, LoadClient
from tests.support.zmq_kv import OK, Frames, ReqClient, requests_of

LOST_MS = 3000
"""ZeroMQ connects again by itself and says nothing of requests that were lost: no reply for so long is taken for it."""
_OUTCOMES = {
    b"no such row": Outcome.NOT_FOUND,
    b"no such table": Outcome.NOT_FOUND,
    b"unavailable, try again": Outcome.IN_DOUBT,
    b"shutting down, try again": Outcome.REFUSED,
}


class KeyValueClient(LoadClient):
    """A REQ socket for each life."""

    def __init__(self, tables: TableLoad, name: str, seed: int, adapter: AdapterPart) -> None:
        super().__init__(tables.load, name, seed)
        self.tables = tables
        self.endpoint = requests_of(adapter)

    def live(self) -> None:
        with ReqClient(self.endpoint, {zmq.RCVTIMEO: LOST_MS}) as req:
            for _ in range(self.random.randrange(20, 100)):
                if self.load.stopping.is_set():
                    return
                try:
                    self.step(req)
                except zmq.Again as error:
                    raise DisconnectedError from error

    def step(self, req: ReqClient) -> None:
        """One request and its reply."""
        row = self.random.choice(self.tables.tables), self.random.choice(KEYS)
        table, key = row[0].encode(), row[1]
        draw = self.random.random()
        if draw < 0.45:
            get = self.tables.history.get(self.client, row)
            self._answered(get, req.get(table, key))
        elif draw < 0.6:
            delete = self.tables.history.delete(self.client, row)
            self._answered(delete, req.delete(table, key))
        else:
            self._update(req, row)

    def _update(self, req: ReqClient, row: RowName) -> None:
        seconds = self.random.choice((None, None, 0, 1, 2))
        ttl = Ttl.KEEP if seconds is None else Ttl.SET if seconds else Ttl.CLEAR
        value = self.load.new_key(self.client).encode()
        put = self.tables.history.put(self.client, row, value, ttl, (seconds or 0) * 1000)
        self._answered(put, req.update(row[0].encode(), row[1], value, seconds))

    def _answered(self, operation: RowOperation, reply: Frames) -> None:
        if reply[0] == OK:
            operation.done(value=reply[1] if len(reply) > 1 else None)
            return
        outcome = _OUTCOMES[reply[1]]
        if outcome is Outcome.IN_DOUBT:
            self.pause()
        else:
            operation.done(outcome)
