"""Load on tables while a stack is being damaged: what clients do with rows, through unary calls and through a session.

Rows of `tables` are recorded in a history that is to be linearizable. The table `churn` is deleted and made again all
the time; only the event log judges it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from grpc_status import rpc_status
from quintet.v1 import table_service_pb2 as wire
from quintet.v1.reason_pb2 import Reason
from quintet.v1.session_service_pb2 import SessionResult
from quintet.v1.table_service_pb2_grpc import TableServiceStub
from quintet_client.client import Client

from tests.support.row_history import Outcome, RowHistory, RowName, RowOperation, Ttl
from tests.support.workload import HANG_SECONDS_MAX, DisconnectedError, HungError, Load, LoadClient

CHURN = "churn"
KEYS = tuple(b"key-%d" % number for number in range(5))
_CHANNEL_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200))
_OUTCOMES = {
    Reason.REASON_ROW_NOT_FOUND: Outcome.NOT_FOUND,
    Reason.REASON_TABLE_NOT_FOUND: Outcome.NOT_FOUND,
    Reason.REASON_VERSION_MISMATCH: Outcome.MISMATCH,
    Reason.REASON_DRAINING: Outcome.REFUSED,
    Reason.REASON_MEMORY_FULL: Outcome.REFUSED,
    Reason.REASON_UNAVAILABLE: Outcome.IN_DOUBT,
    Reason.REASON_UNSPECIFIED: Outcome.IN_DOUBT,
}
_TTL_CHANGES = {Ttl.KEEP: wire.TTL_CHANGE_KEEP, Ttl.SET: wire.TTL_CHANGE_SET, Ttl.CLEAR: wire.TTL_CHANGE_CLEAR}
_METHODS = {
    "put_row": "PutRow",
    "get_row": "GetRow",
    "delete_row": "DeleteRow",
    "scan_rows": "ScanRows",
    "write_rows": "WriteRows",
    "delete_table": "DeleteTable",
}


@dataclass
class Step:
    """One request, and the operations that it is to the rows of the history."""

    verb: str
    request: Any
    operations: list[RowOperation] = field(default_factory=list)

    def answered(self, response: Any) -> None:
        """What the core answered."""
        match self.verb:
            case "put_row":
                for put in self.operations:
                    put.done(version=response.version, expires_at_ms=response.expires_at_ms, created=response.created)
            case "write_rows":
                for put, version in zip(self.operations, response.versions, strict=bool(self.operations)):
                    put.done(version=version, expires_at_ms=0)
            case "get_row" | "delete_row":
                for operation in self.operations:
                    _found(operation, response.row)
            case "scan_rows":
                rows = {row.key: row for row in response.rows}
                for get in self.operations:
                    _found(get, rows.get(get.row[1]))

    def refused(self, reason: int) -> bool:
        """Whether it is known now what became of it. Raises AssertionError for a reason that it cannot have."""
        assert reason in _OUTCOMES, f"{self.verb} was refused: {Reason.Name(reason)}: {self.request}"  # type: ignore[arg-type]
        outcome = _OUTCOMES[reason]  # type: ignore[index]
        if outcome is Outcome.IN_DOUBT:
            return False
        for operation in self.operations:
            operation.done(outcome)
        return True


def _found(operation: RowOperation, row: Any) -> None:
    if row is None:
        operation.done(Outcome.NOT_FOUND)
    else:
        operation.done(value=row.value, version=row.version, expires_at_ms=row.expires_at_ms)


@dataclass
class TableLoad:
    """What the clients of tables share."""

    load: Load
    tables: Sequence[str]
    history: RowHistory = field(default_factory=RowHistory)
    versions: dict[RowName, int] = field(default_factory=dict)
    """The last version that anybody was told of."""

    def choose(self, client: str, choice: random.Random) -> Step:
        """What a client might do next."""
        row = choice.choice(self.tables), choice.choice(KEYS)
        draw = choice.random()
        if draw < 0.35:
            return self._put(client, row, choice)
        if draw < 0.60:
            return Step("get_row", wire.GetRowRequest(table=row[0], key=row[1]), [self.history.get(client, row)])
        if draw < 0.70:
            return self._delete(client, row, choice)
        if draw < 0.78:
            return self._write(client, row[0], choice)
        if draw < 0.85:
            gets = [self.history.get(client, (row[0], key)) for key in KEYS]
            return Step("scan_rows", wire.ScanRowsRequest(table=row[0], page_size=1000), gets)
        return self._churn(client, choice)

    def _value(self, client: str) -> bytes:
        return self.load.new_key(client).encode()

    def _put(self, client: str, row: RowName, choice: random.Random) -> Step:
        ttl = choice.choices((Ttl.KEEP, Ttl.SET, Ttl.CLEAR), (5, 3, 2))[0]
        ttl_ms = choice.randrange(20, 1500) if ttl is Ttl.SET else 0
        expected = choice.choices((None, self.versions.get(row, 0), 0), (6, 3, 1))[0]
        put = self.history.put(client, row, self._value(client), ttl, ttl_ms, expected)
        request = wire.PutRowRequest(
            table=row[0],
            key=row[1],
            value=put.value,
            ttl_change=_TTL_CHANGES[ttl],
            ttl_ms=ttl_ms,
            expected_version=expected,
            create_if_missing=True,
        )
        return Step("put_row", request, [put])

    def _delete(self, client: str, row: RowName, choice: random.Random) -> Step:
        expected = self.versions.get(row) if choice.random() < 0.3 else None
        delete = self.history.delete(client, row, expected)
        return Step("delete_row", wire.DeleteRowRequest(table=row[0], key=row[1], expected_version=expected), [delete])

    def _write(self, client: str, table: str, choice: random.Random) -> Step:
        """Several rows at once. What its reply does not tell is set, so that the history knows it."""
        keys, value = choice.sample(KEYS, k=choice.randrange(2, 4)), self._value(client)
        puts = [
            self.history.put(client, (table, key), b"%b#%d/%d" % (value, number, len(keys)), Ttl.CLEAR)
            for number, key in enumerate(keys)
        ]
        writes = [
            wire.RowWrite(put=wire.RowPut(key=put.row[1], value=put.value, ttl_change=wire.TTL_CHANGE_CLEAR))
            for put in puts
        ]
        return Step("write_rows", wire.WriteRowsRequest(table=table, writes=writes, create_if_missing=True), puts)

    def _churn(self, client: str, choice: random.Random) -> Step:
        if choice.random() < 0.2:
            return Step("delete_table", wire.DeleteTableRequest(table=CHURN))
        value = self._value(client)
        keys = [b"churn-%d" % number for number in choice.sample(range(500), k=choice.randrange(1, 30))]
        writes = [
            wire.RowWrite(
                put=wire.RowPut(
                    key=key,
                    value=b"%b#%d/%d" % (value, number, len(keys)),
                    ttl_change=wire.TTL_CHANGE_SET,
                    ttl_ms=choice.randrange(20, 3000),
                )
            )
            for number, key in enumerate(keys)
        ]
        return Step("write_rows", wire.WriteRowsRequest(table=CHURN, writes=writes, create_if_missing=True))

    def learn(self, step: Step) -> None:
        """Note what `step` told of versions."""
        for operation in step.operations:
            if operation.outcome is Outcome.OK and operation.version:
                self.versions[operation.row] = operation.version


class UnaryTableClient(LoadClient):
    """A client of the unary calls: a connection for each life."""

    def __init__(self, tables: TableLoad, name: str, seed: int, target: str) -> None:
        super().__init__(tables.load, name, seed)
        self.tables = tables
        self.target = target

    def live(self) -> None:
        with table_service(self.target) as service:
            for _ in range(self.random.randrange(20, 200)):
                if self.load.stopping.is_set():
                    return
                self.step(service)

    def step(self, service: Any) -> None:
        """One request and its answer."""
        step = self.tables.choose(self.client, self.random)
        try:
            response = getattr(service, _METHODS[step.verb])(step.request, timeout=HANG_SECONDS_MAX)
        except grpc.RpcError as error:
            reason = reason_of(error)
            if reason is None:
                raise HungError(f"{self.client} waits for an answer since {HANG_SECONDS_MAX:g} s") from error
            if not step.refused(reason):
                raise DisconnectedError from error
        else:
            step.answered(response)
            self.tables.learn(step)


async def work_on_tables(tables: TableLoad, worker: LoadClient, client: Client) -> None:
    """The same through the session of `client`, until the load stops."""
    owner = client.session.new_owner()
    while not tables.load.stopping.is_set():
        if not client.session.connected:
            await client.session.wait_connected(HANG_SECONDS_MAX)
        step = tables.choose(worker.client, worker.random)
        future: asyncio.Future[SessionResult] = asyncio.get_running_loop().create_future()
        submit = getattr(client.session, f"submit_{step.verb}")
        submit(owner, step.request, partial(_into, future))
        async with asyncio.timeout(HANG_SECONDS_MAX):
            result = await future
        if result.HasField("failure"):
            if not step.refused(result.failure.reason):
                await asyncio.sleep(0.02)
        else:
            step.answered(getattr(result, step.verb))
            tables.learn(step)


def _into(future: asyncio.Future[SessionResult], result: SessionResult) -> None:
    if not future.done():
        future.set_result(result)


@contextmanager
def table_service(target: str) -> Iterator[Any]:
    """Unary calls over a connection of its own."""
    with grpc.insecure_channel(target, options=_CHANNEL_OPTIONS) as channel:
        yield TableServiceStub(channel)


def reason_of(error: grpc.RpcError) -> int | None:
    """Why a call failed; UNSPECIFIED when its connection did; None when it took too long."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return None
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    for detail in status.details if status else ():
        info = ErrorInfo()
        if detail.Unpack(info):
            return Reason.Value(f"REASON_{info.reason}")
    return Reason.REASON_UNSPECIFIED
