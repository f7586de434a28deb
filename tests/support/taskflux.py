"""A plain blocking client of TaskFlux, as its users write it: its encoding shares nothing with the adapter."""

from __future__ import annotations

import select
import socket
import struct
from dataclasses import dataclass
from typing import Literal, Self

from tests.support.clients import Address, connect, reset

Dialect = Literal["document", "csharp"]
HAND_SHAKE = bytes.fromhex("41 4e  42 00000001 00000000 00000000")
HAND_SHAKEN = bytes.fromhex("61 01  62 01")
ACK, ACK_TOO, NACK, LIST, METADATA = b"Q", b"K", b"N", b"CL", b"M"
NO_LIMIT = -1
BAD_NAMES = (b" ", b"a b", b"\x20a", b"\x7f", b"\x00", b"\n", b"\xc3\xa9", b"\xff", b"x" * 254 + b" ")
"""Of queues."""


@dataclass(frozen=True)
class Ok:
    """`k`."""


@dataclass(frozen=True)
class Record:
    """A record, leased: to be acknowledged or not."""

    key: int
    payload: bytes


@dataclass(frozen=True)
class Nothing:
    """A dequeue that found nothing."""


@dataclass(frozen=True)
class Count:
    """How many records a queue has."""

    records: int


@dataclass(frozen=True)
class Listed:
    """A queue of a list."""

    name: str
    records: int
    policies: dict[str, str]


@dataclass(frozen=True)
class Queues:
    """The answer to List."""

    queues: tuple[Listed, ...]

    def named(self, name: str) -> Listed | None:
        """The queue of a name, if it is listed."""
        return next((queue for queue in self.queues if queue.name == name), None)


@dataclass(frozen=True)
class Error:
    """`c x` or, in the dialect csharp, `c e`. Equal when the codes are."""

    code: int
    details: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Error) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)


@dataclass(frozen=True)
class PolicyViolation:
    """`c p` with the data of its policy, whose code here is that of the dialect document."""

    policy: int
    data: tuple[int | str, ...]


@dataclass(frozen=True)
class ErrorResponse:
    """`e`: the server closes after it."""

    code: int
    details: str


@dataclass(frozen=True)
class Metadata:
    """`m`."""

    addresses: tuple[str, ...]
    leader: int
    own: int


@dataclass(frozen=True)
class Authorization:
    """`a` or `b`."""

    kind: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class End:
    """The server closed the connection."""


Answer = (
    Ok | Record | Nothing | Count | Queues | Error | PolicyViolation | ErrorResponse | Metadata | Authorization | End
)


def name_bytes(queue: str | bytes) -> bytes:
    """A QueueName."""
    name = queue.encode() if isinstance(queue, str) else queue
    return struct.pack(">B", len(name)) + name


def enqueue(queue: str | bytes, key: int, payload: bytes) -> bytes:
    """The packet, to be acknowledged after `k`."""
    return b"CE" + name_bytes(queue) + struct.pack(">qi", key, len(payload)) + payload


def dequeue(queue: str | bytes, wait_ms: int = 0) -> bytes:
    """The packet."""
    return b"CD" + name_bytes(queue) + struct.pack(">I", wait_ms)


def count(queue: str | bytes) -> bytes:
    """The packet."""
    return b"CC" + name_bytes(queue)


def create(
    queue: str | bytes,
    structure: int = 1,
    size_max: int = NO_LIMIT,
    payload_max: int = NO_LIMIT,
    keys: tuple[int, int] | None = None,
) -> bytes:
    """The packet."""
    numbers = struct.pack(">iii", structure, size_max, payload_max)
    return b"CQ" + name_bytes(queue) + numbers + (b"\1" + struct.pack(">qq", *keys) if keys else b"\0")


def delete(queue: str | bytes) -> bytes:
    """The packet."""
    return b"CR" + name_bytes(queue)


class TaskFluxClient:
    """One connection, its hand shaken unless told otherwise."""

    def __init__(self, address: Address, dialect: Dialect = "document", *, shaken: bool = True) -> None:
        self.connection = connect(address)
        self._stream = self.connection.makefile("rb")
        self._dialect = dialect
        if shaken:
            self.send(HAND_SHAKE)
            assert self._read_exactly(4) == HAND_SHAKEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._stream.close()
        self.connection.close()

    def reset(self) -> None:
        """Disconnect with RST."""
        self._stream.close()
        reset(self.connection)

    def half_close(self) -> None:
        """Send nothing more."""
        self.connection.shutdown(socket.SHUT_WR)

    def send(self, *packets: bytes) -> None:
        """Send packets, all in one segment if they fit, without waiting for answers."""
        self.connection.sendall(b"".join(packets))

    # The verbs, each to its last answer.

    def put(self, queue: str, payload: bytes = b"", key: int = 0) -> Answer:
        """Enqueue with its acknowledgement: Ok when it is stored."""
        answer = self.ask(enqueue(queue, key, payload))
        return self.ask(ACK) if answer == Ok() else answer

    def get(self, queue: str, wait_ms: int = 0) -> Answer:
        """Dequeue; a Record is still to be acknowledged."""
        return self.ask(dequeue(queue, wait_ms))

    def take(self, queue: str, wait_ms: int = 0) -> Record | None:
        """Dequeue with its acknowledgement."""
        answer = self.get(queue, wait_ms)
        if not isinstance(answer, Record):
            assert answer == Nothing(), answer
            return None
        assert self.ask(ACK) == Ok()
        return answer

    def count(self, queue: str) -> int:
        """Records that can be taken or are delayed."""
        answer = self.ask(count(queue))
        assert isinstance(answer, Count), answer
        return answer.records

    def list(self) -> Queues:
        """Every queue."""
        answer = self.ask(LIST)
        assert isinstance(answer, Queues), answer
        return answer

    def ask(self, packet: bytes) -> Answer:
        """The next answer after a packet."""
        self.send(packet)
        return self.read()

    # Answers.

    def read_bytes(self, size: int) -> bytes:
        """So many bytes as they are; fewer at the end of the stream."""
        return self._stream.read(size)

    def read_rest(self) -> bytes:
        """Everything until the server closes."""
        return self._stream.read()

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether neither an answer nor the end comes for a while."""
        return not select.select([self.connection], [], [], seconds)[0]

    def read(self) -> Answer:
        """The next packet of the server."""
        match self._stream.read(1):
            case b"":
                return End()
            case b"k":
                return Ok()
            case b"c":
                return self._command_answer()
            case b"e":
                return ErrorResponse(self._int32(), self._string())
            case b"m":
                return Metadata(tuple(self._string() for _ in range(self._int32())), self._int32(), self._int32())
            case (b"a" | b"b") as kind:
                ok = self._bool()
                return Authorization(kind.decode(), ok, "" if ok else self._string())
            case other:
                raise AssertionError(f"no packet of a server: {other!r}")

    def _command_answer(self) -> Answer:
        match self._stream.read(1):
            case b"d":
                return Record(self._int64(), self._buffer()) if self._bool() else Nothing()
            case b"c":
                return Count(self._int32())
            case b"l":
                return Queues(tuple(self._listed() for _ in range(self._int32())))
            case b"p":
                return self._violation()
            case marker if marker == (b"e" if self._dialect == "csharp" else b"x"):
                return Error(self._int32(), self._string())
            case other:
                raise AssertionError(f"no answer to a command: {other!r}")

    def _listed(self) -> Listed:
        name = self._read_exactly(self._read_exactly(1)[0]).decode()
        records = self._int32()
        return Listed(name, records, {self._string(): self._string() for _ in range(self._int32())})

    def _violation(self) -> PolicyViolation:
        policy = self._int32()
        if self._dialect == "csharp":
            policy = {2: 3, 3: 2}.get(policy, policy)
        match policy:
            case 0:
                return PolicyViolation(0, (self._string(),))
            case 1 | 2:
                return PolicyViolation(policy, (self._int32(),))
            case 3:
                return PolicyViolation(3, (self._int64(), self._int64()))
            case other:
                raise AssertionError(f"no policy: {other}")

    def _read_exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise EOFError(f"the stream ended within a packet: {data!r}")
        return data

    def _bool(self) -> bool:
        return self._read_exactly(1) != b"\0"

    def _int32(self) -> int:
        return int(struct.unpack(">i", self._read_exactly(4))[0])

    def _int64(self) -> int:
        return int(struct.unpack(">q", self._read_exactly(8))[0])

    def _buffer(self) -> bytes:
        return self._read_exactly(self._int32())

    def _string(self) -> str:
        return self._buffer().decode()
