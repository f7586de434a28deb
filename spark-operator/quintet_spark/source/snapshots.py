"""Blocks of the metrics log as columns of `quintet_spark.schemas.METRICS`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from quintet.v1 import event_service_pb2 as wire

from quintet_spark.schemas import METRIC_KINDS, TOTALS
from quintet_spark.source.layout import (
    SNAPSHOT,
    BlockColumns,
    DamagedBlockError,
    Flags,
    maps,
    numbers_of,
    taken,
    words,
    words_by_number,
)

_PROCESS = 3
_KINDS = words_by_number(METRIC_KINDS, 256, "kind")
_NUMBERS = ("interval_ms", "ready", "delayed", "leased", "dead", "oldest_ready_age_ms", *TOTALS)
_OF_ALL = {"interval_ms"}


class SnapshotColumns(BlockColumns):
    """The columns of one block."""

    def __init__(self, block: wire.ReadBlocksResponse, partition: int) -> None:
        super().__init__(block, partition, SNAPSHOT)
        self._of_process: Flags = self._records.fixed["kind"] == _PROCESS

    def column(self, name: str) -> pa.Array:
        """One column of METRICS, by its name."""
        return _COLUMNS[name](self)

    @cached_property
    def _places(self) -> np.ndarray:
        return self._names.places(self._records.fixed["number"].astype(np.int64), ~self._of_process)

    @cached_property
    def _processes(self) -> list[dict[str, Any] | None]:
        """What processes say, by record; there are few of them."""
        details = self._records.details(self._of_process).to_pylist()
        try:
            return [None if each is None else _process(json.loads(each)) for each in details]
        except ValueError as error:
            raise DamagedBlockError("the snapshot of a process is not what it should be") from error

    def _kind(self) -> pa.Array:
        return taken(_KINDS, self._records.fixed["kind"])

    def _namespace(self) -> pa.Array:
        return taken(self._names.namespaces, self._places, ~self._of_process)

    def _name(self) -> pa.Array:
        return taken(self._names.names, self._places, ~self._of_process)

    def _number(self, name: str) -> pa.Array:
        shown = None if name in _OF_ALL else ~self._of_process
        return numbers_of(self._records.fixed["numbers"][:, _NUMBERS.index(name)], pa.int64(), shown)

    def _of_processes(self, name: str) -> list[Any]:
        return [None if each is None else each[name] for each in self._processes]


def _process(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or not isinstance(told.get("values", {}), dict):
        raise ValueError("not an object")
    values = [(str(series), _value(value)) for series, value in told.get("values", {}).items()]
    return {"process": str(told.get("process", "")), "replica": str(told.get("replica", "")), "values": values}


def _value(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _numbered(name: str) -> Callable[[SnapshotColumns], pa.Array]:
    return lambda columns: columns._number(name)


_COLUMNS: dict[str, Callable[[SnapshotColumns], pa.Array]] = {
    "partition": SnapshotColumns._partition_column,
    "offset": SnapshotColumns._offset,
    "at": SnapshotColumns._at,
    "kind": SnapshotColumns._kind,
    "namespace": SnapshotColumns._namespace,
    "name": SnapshotColumns._name,
    **{name: _numbered(name) for name in _NUMBERS},
    "process": lambda columns: words(columns._of_processes("process")),
    "replica": lambda columns: words(columns._of_processes("replica")),
    "values": lambda columns: maps(columns._of_processes("values")),
}
