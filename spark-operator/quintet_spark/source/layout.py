"""Where the records of a block are: bytes as columns of numbers, without a loop over them where that can be helped.

The layout is that of ReadBlocksResponse (proto/quintet/v1/event_service.proto).

Arrow's arrays are made of buffers here: `pa.array` and `pa.scalar` would import pandas, which nothing needs and every
process that reads would wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from quintet.v1 import event_service_pb2 as wire

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

EVENT = np.dtype(
    [
        ("kind", "u1"),
        ("number", ">u4"),
        ("sequence", ">u8"),
        ("rank", ">u8"),
        ("attempt", ">u4"),
        ("wait_ms", ">u8"),
        ("service_ms", ">u8"),
        ("payload_bytes", ">u4"),
        ("state", "u1"),
        ("detail_bytes", ">u2"),
    ]
)
"""An event before its detail."""
SNAPSHOT_NUMBERS = 21
SNAPSHOT = np.dtype(
    [("kind", "u1"), ("number", ">u4"), ("numbers", ">u8", (SNAPSHOT_NUMBERS,)), ("detail_bytes", ">u2")]
)
"""A snapshot before its detail."""


class DamagedBlockError(ValueError):
    """A block is not what its layout says. Nothing of it may be used."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block that the reader is shown, in order.

    `fixed`: a structured array of the layout, one element a record; `starts`: where each begins in `packed`;
    `offsets`: their offsets; `at_ms`: when they were written. `total` counts those of kind 0 too, which are not here.
    """

    packed: bytes
    fixed: npt.NDArray[np.void]
    starts: Ints
    offsets: Ints
    at_ms: Ints
    total: int

    @classmethod
    def of_block(cls, block: wire.ReadBlocksResponse, layout: np.dtype[np.void]) -> Records:
        """Raises DamagedBlockError."""
        packed = block.records
        starts = record_starts(packed, layout.itemsize)
        fixed = _gathered(packed, starts, layout)
        offsets = np.arange(block.first_offset, block.first_offset + len(starts), dtype=np.int64)
        at_ms = _times(block, starts, len(packed))
        shown = fixed["kind"] != 0
        if shown.all():
            return cls(packed, fixed, starts, offsets, at_ms, len(starts))
        return cls(packed, fixed[shown], starts[shown], offsets[shown], at_ms[shown], len(starts))

    def __len__(self) -> int:
        return len(self.starts)

    def details(self, wanted: Flags) -> pa.Array:
        """Binary, null where not wanted."""
        lengths = np.where(wanted, self.fixed["detail_bytes"], 0).astype(np.int64)
        begins = (self.starts + self.fixed.dtype.itemsize)[lengths > 0]
        packed = self.packed
        ends = begins + lengths[lengths > 0]
        pieces = [packed[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return binaries(b"".join(pieces), lengths, wanted)


def record_starts(packed: bytes, fixed_bytes: int) -> Ints:
    """Where each record begins, when each is `fixed_bytes` and a detail, whose length is in the last two of them."""
    end = len(packed)
    if end % fixed_bytes == 0:
        # If none of the records that would be there had a detail, then these are the records.
        rows = np.frombuffer(packed, np.uint8).reshape(-1, fixed_bytes)
        if not rows[:, -2:].any():
            return np.arange(0, end, fixed_bytes, dtype=np.int64)
    starts, at = list[int](), 0
    high, low = fixed_bytes - 2, fixed_bytes - 1
    try:
        while at < end:
            starts.append(at)
            at += fixed_bytes + (packed[at + high] << 8 | packed[at + low])
    except IndexError:
        at = -1
    if at != end:
        raise DamagedBlockError("the last record of a block is cut short")
    return np.array(starts, dtype=np.int64)


def _gathered(packed: bytes, starts: Ints, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    if len(starts) * layout.itemsize == len(packed):
        return np.frombuffer(packed, layout)
    # One window begins at each byte; the windows that are records are copied.
    windows: npt.NDArray[np.void] = np.ndarray(
        (len(packed) - layout.itemsize + 1,), np.dtype((np.void, layout.itemsize)), packed, strides=(1,)
    )
    return windows[starts].view(layout)


def _times(block: wire.ReadBlocksResponse, starts: Ints, end: int) -> Ints:
    entry_ends = np.cumsum(np.array(block.entry_bytes, dtype=np.int64))
    if len(entry_ends) != len(block.entry_at_ms) or (entry_ends[-1] if len(entry_ends) else 0) != end:
        raise DamagedBlockError("the entries of a block are not as long as its records")
    counts = np.diff(np.searchsorted(starts, entry_ends), prepend=0)
    return np.repeat(np.array(block.entry_at_ms, dtype=np.int64), counts)


class Names:
    """Namespaces and names of the queues and tables in a block, by number."""

    def __init__(self, block: wire.ReadBlocksResponse) -> None:
        numbers = np.array(block.numbers, dtype=np.int64)
        if not len(numbers) == len(block.namespaces) == len(block.names):
            raise DamagedBlockError("the names of a block are not as many as its numbers")
        self._order = np.argsort(numbers)
        self._sorted = numbers[self._order]
        self.namespaces = words(block.namespaces)
        self.names = words(block.names)

    def places(self, numbers: Ints, named: Flags) -> Ints:
        """Where in `namespaces` and `names` each number stands; any place where it is not `named`."""
        if not len(self._sorted):
            if named.any():
                raise DamagedBlockError("a record is of a queue or table that its block does not name")
            return np.zeros(len(numbers), dtype=np.int64)
        found = np.minimum(np.searchsorted(self._sorted, numbers), len(self._sorted) - 1)
        if (named & (self._sorted[found] != numbers)).any():
            raise DamagedBlockError("a record is of a queue or table that its block does not name")
        places: Ints = self._order[found]
        return places


class BlockColumns:
    """What the columns of a block of any log have in common."""

    def __init__(self, block: wire.ReadBlocksResponse, partition: int, layout: np.dtype[np.void]) -> None:
        self._block = block
        self._partition = partition
        self._records = Records.of_block(block, layout)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def total(self) -> int:
        """Records of the block, with those that are not shown."""
        return self._records.total

    @cached_property
    def _names(self) -> Names:
        return Names(self._block)

    def _partition_column(self) -> pa.Array:
        return plain(np.full(len(self), self._partition, dtype=np.int32), pa.int32())

    def _offset(self) -> pa.Array:
        return plain(self._records.offsets, pa.int64())

    def _at(self) -> pa.Array:
        return instants(self._records.at_ms)


def taken(values: pa.Array, places: npt.NDArray[np.integer], shown: Flags | None = None) -> pa.Array:
    """The value at each place; null where not shown."""
    return values.take(plain(places, pa.from_numpy_dtype(places.dtype), shown))


def binaries(joined: bytes, lengths: Ints, shown: Flags, kind: pa.DataType | None = None) -> pa.Array:
    """Values, binary unless of another kind, that stand one behind another in `joined`, which is not copied; null where
    not shown."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    if ends[-1] != len(joined):
        raise DamagedBlockError("a block carries more or less than its records say")
    buffers = [_validity(shown), pa.py_buffer(ends), pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind or pa.binary(), len(lengths), buffers)


def texts(values: pa.Array) -> pa.Array:
    """Binary as text; what is no UTF-8 is replaced."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return words([None if each is None else each.decode(errors="replace") for each in values.to_pylist()])


def words(told: Sequence[str | None]) -> pa.Array:
    """As text; null where there is none."""
    encoded = [(each or "").encode() for each in told]
    lengths = np.array([len(each) for each in encoded], dtype=np.int64)
    return binaries(b"".join(encoded), lengths, _given(told), pa.string())


def maps(told: Sequence[Sequence[tuple[str, float | None]] | None]) -> pa.Array:
    """As maps of text to double; null where there is none."""
    entries = [entry for each in told for entry in each or ()]
    ends = np.cumsum([0, *(len(each or ()) for each in told)], dtype=np.int32)
    values = [value for _, value in entries]
    return pa.MapArray.from_arrays(
        plain(ends, pa.int32(), np.append(_given(told), True)),
        words([key for key, _ in entries]),
        plain(np.array([value or 0.0 for value in values], dtype=np.float64), pa.float64(), _given(values)),
    )


def flags(told: Flags) -> pa.Array:
    """As truth values."""
    return pa.Array.from_buffers(pa.bool_(), len(told), [None, _bits(told)])


def words_by_number(known: dict[int, str], numbers: int, unknown: str) -> pa.Array:
    """A word for every number below `numbers`. What a newer core writes is named `unknown` and the number."""
    return words([known.get(number, f"{unknown}_{number}") for number in range(numbers)])


def instants(at_ms: Ints, shown: Flags | None = None) -> pa.Array:
    """Epoch milliseconds as Spark's timestamps; null where not shown."""
    return plain(at_ms * 1000, pa.timestamp("us", tz="UTC"), shown)


def numbers_of(column: npt.NDArray[np.integer], kind: pa.DataType, shown: Flags | None = None) -> pa.Array:
    """Numbers of the records in the machine's order of bytes; null where not shown."""
    return plain(column.astype(kind.to_pandas_dtype()), kind, shown)


def plain(column: npt.NDArray[Any], kind: pa.DataType, shown: Flags | None = None) -> pa.Array:
    """Values that lie one behind another as Arrow keeps that kind; null where not shown."""
    buffers = [_validity(shown), pa.py_buffer(np.ascontiguousarray(column))]
    return pa.Array.from_buffers(kind, len(column), buffers)


def _given(told: Sequence[object]) -> Flags:
    return np.array([each is not None for each in told], dtype=np.bool_)


def _validity(shown: Flags | None) -> pa.Buffer | None:
    return None if shown is None or shown.all() else _bits(shown)


def _bits(told: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(told, bitorder="little"))
