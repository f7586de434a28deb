"""Blocks of the event log as columns of `quintet_spark.schemas.EVENTS`: those of them that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from quintet.v1 import event_service_pb2 as wire

from quintet_spark.schemas import EVENT_KINDS, JOB_STATES
from quintet_spark.source.layout import (
    EVENT,
    BlockColumns,
    Flags,
    binaries,
    flags,
    instants,
    numbers_of,
    taken,
    texts,
    words,
    words_by_number,
)

FIRST_TABLE = 1 << 31
"""Numbers from here on are of tables."""
_ROW_PUT, _FIRST_OF_TABLE = 30, 40
_STATE_BITS, _PAYLOAD_CARRIED, _VALUE_CARRIED, _TABLE_DELETED = 63, 64, 1, 2
_SIGN = np.uint64(1 << 63)
_KINDS = words_by_number(EVENT_KINDS, 256, "kind")
_STATES = words_by_number(JOB_STATES, 64, "state")
_TOLD_OF_TABLE_DELETED = words(["table deleted"])[0]


class EventColumns(BlockColumns):
    """The columns of one block. `partitions`: how many Quintet has, which is part of a job's id."""

    def __init__(
        self, block: wire.ReadBlocksResponse, partition: int, partitions: int, *, with_carried: bool = False
    ) -> None:
        super().__init__(block, partition, EVENT)
        self._with_carried = with_carried
        self._partitions = partitions
        fixed = self._records.fixed
        self._numbers = fixed["number"].astype(np.int64)
        self._of_table: Flags = self._numbers >= FIRST_TABLE
        self._of_job: Flags = fixed["sequence"] != 0
        self._of_row: Flags = self._of_table & (fixed["kind"] >= _ROW_PUT) & (fixed["kind"] < _FIRST_OF_TABLE)

    def column(self, name: str) -> pa.Array:
        """One column of EVENTS, by its name."""
        return _COLUMNS[name](self)

    @cached_property
    def _places(self) -> np.ndarray:
        return self._names.places(self._numbers, np.ones(len(self), dtype=np.bool_))

    def _kind(self) -> pa.Array:
        return taken(_KINDS, self._records.fixed["kind"])

    def _namespace(self) -> pa.Array:
        return taken(self._names.namespaces, self._places)

    def _queue(self) -> pa.Array:
        return taken(self._names.names, self._places, ~self._of_table)

    def _table(self) -> pa.Array:
        return taken(self._names.names, self._places, self._of_table)

    def _job_id(self) -> pa.Array:
        sequences = self._records.fixed["sequence"].astype(np.int64)
        return numbers_of(sequences * self._partitions + self._partition, pa.int64(), self._of_job)

    def _rank(self) -> pa.Array:
        ranks = self._records.fixed["rank"].astype(np.uint64) ^ _SIGN
        return numbers_of(ranks.view(np.int64), pa.int64(), self._of_job)

    def _state(self) -> pa.Array:
        states = self._records.fixed["state"] & _STATE_BITS
        return taken(_STATES, states, ~self._of_table & (states != 0))

    def _detail(self) -> pa.Array:
        fixed = self._records.fixed
        told = texts(self._records.details(~self._of_row & (fixed["detail_bytes"] > 0)))
        with_its_table = self._of_row & ((fixed["state"] & _TABLE_DELETED) != 0)
        if not with_its_table.any():
            return told
        return pc.if_else(flags(with_its_table), _TOLD_OF_TABLE_DELETED, told)

    def _key(self) -> pa.Array:
        return self._records.details(self._of_row)

    def _expires_at(self) -> pa.Array:
        deadlines = self._records.fixed["rank"].astype(np.int64)
        shown = self._of_row & (deadlines != 0)
        return instants(np.where(shown, deadlines, 0), shown)

    def _payload(self) -> pa.Array:
        fixed, carried = self._records.fixed, self._block.carried
        if not self._with_carried:
            return pa.nulls(len(self), pa.binary())
        flag = np.where(self._of_table, _VALUE_CARRIED, _PAYLOAD_CARRIED)
        shown: Flags = (fixed["state"] & flag) != 0
        return binaries(carried, np.where(shown, fixed["payload_bytes"], 0).astype(np.int64), shown)


def _number(name: str, kind: pa.DataType) -> Callable[[EventColumns], pa.Array]:
    return lambda columns: numbers_of(columns._records.fixed[name], kind)


_COLUMNS: dict[str, Callable[[EventColumns], pa.Array]] = {
    "partition": EventColumns._partition_column,
    "offset": EventColumns._offset,
    "kind": EventColumns._kind,
    "at": EventColumns._at,
    "namespace": EventColumns._namespace,
    "queue": EventColumns._queue,
    "job_id": EventColumns._job_id,
    "rank": EventColumns._rank,
    "attempt": _number("attempt", pa.int32()),
    "wait_ms": _number("wait_ms", pa.int64()),
    "service_ms": _number("service_ms", pa.int64()),
    "payload_bytes": _number("payload_bytes", pa.int32()),
    "state": EventColumns._state,
    "detail": EventColumns._detail,
    "table": EventColumns._table,
    "key": EventColumns._key,
    "expires_at": EventColumns._expires_at,
    "payload": EventColumns._payload,
}
