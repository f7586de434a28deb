"""The ZeroMQ key-value database (zmq-kv.md): frames in; requests to the core, replies and notifications out.

One object serves all clients: a request says everything, and what belongs together (order, back-pressure) is the
transport's. A peer's fault becomes an ERROR reply and never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from quintet.v1 import event_pb2, reason_pb2
from quintet.v1 import table_service_pb2 as api
from quintet.v1.session_service_pb2 import Failure, SessionResult

from quintet_adapters.messages import INVALID_COMMAND, REASON_TEXTS, CommandCounts, Outcome, outcome_of

TableVerb = Literal["create_table", "delete_table", "put_row", "delete_row", "get_row"]
TableRequest = (
    api.CreateTableRequest | api.DeleteTableRequest | api.PutRowRequest | api.DeleteRowRequest | api.GetRowRequest
)
StatusBytes = Literal["ok=0,error=1", "ok=1,error=0", "text"]
ByteOrder = Literal["big", "little"]
Notification = tuple[bytes, bytes, bytes]
"""Table, code and key: the frames that are published."""

TABLE_BYTES_MAX: Final = 254
KEY_BYTES_MAX: Final = 64
VALUE_BYTES_MAX: Final = 1024
TTL_BYTES: Final = 8
TTL_SECONDS_MAX: Final = 100 * 365 * 24 * 3600
"""A longer time to live is past what the core's clock is asked to keep: never."""
_NAMES_KEPT_MAX: Final = 1024

_STATUSES: Final[dict[StatusBytes, tuple[bytes, bytes]]] = {
    "ok=0,error=1": (b"\x00", b"\x01"),
    "ok=1,error=0": (b"\x01", b"\x00"),
    "text": (b"OK", b"ERROR"),
}
_UPDATED: Final = b"\x00"
_DELETED: Final = b"\x01"
_CODES: Final = {
    event_pb2.EVENT_KIND_ROW_PUT: _UPDATED,
    event_pb2.EVENT_KIND_ROW_DELETED: _DELETED,
    event_pb2.EVENT_KIND_ROW_EXPIRED: _DELETED,
}
_NO_ENVELOPE: Final[list[bytes]] = []
_DELIMITER: Final = [b""]

EMPTY_REQUEST: Final = "the request is empty"
UNKNOWN_COMMAND: Final = "unknown command"
WRONG_FRAMES: Final = "wrong number of frames"
EMPTY_TABLE_NAME: Final = "the table name is empty"
LONG_TABLE_NAME: Final = f"the table name has more than {TABLE_BYTES_MAX} bytes"
NUL_IN_TABLE_NAME: Final = "the table name contains NUL"
TABLE_NAME_NOT_UTF8: Final = "the table name is not UTF-8"
LONG_KEY: Final = f"the key has more than {KEY_BYTES_MAX} bytes"
LONG_VALUE: Final = f"the value has more than {VALUE_BYTES_MAX} bytes"
WRONG_TTL: Final = f"the time to live does not have {TTL_BYTES} bytes"
TOO_MANY_FRAMES: Final = "too many frames"
STOPPING: Final = REASON_TEXTS[reason_pb2.REASON_DRAINING]
_REASON_TEXTS: Final = {**REASON_TEXTS, reason_pb2.REASON_PAYLOAD_TOO_LARGE: "value too large"}
"""What a client reads when the core refuses: the same words each time, without anything the client sent."""


@dataclass(frozen=True, slots=True)
class ZmqKvTerms:
    """What the adapter was told about its clients."""

    namespace: str = "default"
    status_bytes: StatusBytes = "ok=0,error=1"
    ttl_byte_order: ByteOrder = "big"


class _RefusedError(Exception):
    """The peer's fault, in words."""


class Exchange:
    """One request and its reply. The protocol fills the first half, the transport the second."""

    __slots__ = ("command", "envelope", "message", "peer", "reply", "started_at", "verb")

    def __init__(self, envelope: list[bytes]) -> None:
        self.envelope = envelope
        """The frames to be mirrored before the reply."""
        self.command = INVALID_COMMAND
        """The protocol's word for the request, a label of metrics."""
        self.verb: TableVerb = "get_row"
        self.message: TableRequest | None = None
        """What to ask the core; good until the next `read`. None: answered already."""
        self.reply: list[bytes] | None = None
        """All its frames, once known; not to be changed."""
        self.peer: object = None
        self.started_at = 0.0


class ZmqKv:
    """The protocol."""

    commands: ClassVar[tuple[str, ...]] = ("create_table", "delete_table", "update", "delete", "get", INVALID_COMMAND)

    def __init__(self, terms: ZmqKvTerms, counts: CommandCounts) -> None:
        self._counts = counts
        self._ok, self._error = _STATUSES[terms.status_bytes]
        self._done = [b"", self._ok]
        self._ttl_byte_order: ByteOrder = terms.ttl_byte_order
        self._names: dict[bytes, str] = {}
        # One message of each kind, filled anew by every request: making one costs more than all the rest of reading.
        self._create_table = api.CreateTableRequest(namespace=terms.namespace)
        self._delete_table = api.DeleteTableRequest(namespace=terms.namespace)
        self._put_row = api.PutRowRequest(namespace=terms.namespace)
        self._delete_row = api.DeleteRowRequest(namespace=terms.namespace)
        self._get_row = api.GetRowRequest(namespace=terms.namespace)
        self._readers: dict[bytes, Callable[[Exchange, list[bytes], int], None]] = {
            b"\x00": self._read_create_table,
            b"\x01": self._read_delete_table,
            b"\x02": self._read_update,
            b"\x03": self._read_delete,
            b"\x04": self._read_get,
        }

    # Requests.

    def read(self, frames: list[bytes]) -> Exchange:
        """One message of a client, without the routing frame that the socket put before it; at least one frame."""
        start = _request_start(frames)
        if start == 0:
            exchange = Exchange(_NO_ENVELOPE)
        elif start == 1:
            exchange = Exchange(_DELIMITER)
        else:
            exchange = Exchange(frames[:start])
        try:
            if start == len(frames):
                raise _RefusedError(EMPTY_REQUEST)
            reader = self._readers.get(frames[start])
            if reader is None:
                raise _RefusedError(UNKNOWN_COMMAND)
            reader(exchange, frames, start)
        except _RefusedError as refusal:
            self._refuse(exchange, str(refusal), "refused")
        return exchange

    def refuse_unread(self, frames: list[bytes], reason: str) -> Exchange:
        """The answer to a message that is not looked into."""
        exchange = Exchange(frames[: _request_start(frames)])
        self._refuse(exchange, reason, "unavailable" if reason == STOPPING else "refused")
        return exchange

    def _read_create_table(self, exchange: Exchange, frames: list[bytes], start: int) -> None:
        exchange.command = "create_table"
        self._create_table.table = self._only_table(frames, start)
        exchange.verb, exchange.message = "create_table", self._create_table

    def _read_delete_table(self, exchange: Exchange, frames: list[bytes], start: int) -> None:
        exchange.command = "delete_table"
        self._delete_table.table = self._only_table(frames, start)
        exchange.verb, exchange.message = "delete_table", self._delete_table

    def _read_update(self, exchange: Exchange, frames: list[bytes], start: int) -> None:
        exchange.command = "update"
        count = len(frames) - start
        if count != 4 and count != 5:
            raise _RefusedError(WRONG_FRAMES)
        request = self._put_row
        request.table = self._table(frames[start + 1])
        request.key = _key(frames[start + 2])
        value = frames[start + 3]
        if len(value) > VALUE_BYTES_MAX:
            raise _RefusedError(LONG_VALUE)
        request.value = value
        if count == 4:
            request.ttl_change = api.TTL_CHANGE_KEEP
            request.ttl_ms = 0
        else:
            self._read_ttl(request, frames[start + 4])
        exchange.verb, exchange.message = "put_row", request

    def _read_delete(self, exchange: Exchange, frames: list[bytes], start: int) -> None:
        exchange.command = "delete"
        if len(frames) - start != 3:
            raise _RefusedError(WRONG_FRAMES)
        self._delete_row.table = self._table(frames[start + 1])
        self._delete_row.key = _key(frames[start + 2])
        exchange.verb, exchange.message = "delete_row", self._delete_row

    def _read_get(self, exchange: Exchange, frames: list[bytes], start: int) -> None:
        exchange.command = "get"
        if len(frames) - start != 3:
            raise _RefusedError(WRONG_FRAMES)
        self._get_row.table = self._table(frames[start + 1])
        self._get_row.key = _key(frames[start + 2])
        exchange.verb, exchange.message = "get_row", self._get_row

    def _read_ttl(self, request: api.PutRowRequest, ttl: bytes) -> None:
        if len(ttl) != TTL_BYTES:
            raise _RefusedError(WRONG_TTL)
        seconds = int.from_bytes(ttl, self._ttl_byte_order)
        if seconds == 0 or seconds > TTL_SECONDS_MAX:
            request.ttl_change = api.TTL_CHANGE_CLEAR
            request.ttl_ms = 0
        else:
            request.ttl_change = api.TTL_CHANGE_SET
            request.ttl_ms = seconds * 1000

    def _only_table(self, frames: list[bytes], start: int) -> str:
        if len(frames) - start != 2:
            raise _RefusedError(WRONG_FRAMES)
        return self._table(frames[start + 1])

    def _table(self, name: bytes) -> str:
        known = self._names.get(name)
        if known is not None:
            return known
        decoded = _read_table(name)
        if len(self._names) >= _NAMES_KEPT_MAX:
            self._names.clear()
        self._names[name] = decoded
        return decoded

    # Replies.

    def answer(self, exchange: Exchange, result: SessionResult) -> None:
        """Gives the exchange its reply: what the core said."""
        if result.HasField("failure"):
            self._answer_failure(exchange, result.failure)
            return
        command = exchange.command
        if command == "get":
            exchange.reply = [*exchange.envelope, self._ok, result.get_row.row.value]
        elif command == "delete":
            exchange.reply = [*exchange.envelope, self._ok, result.delete_row.row.value]
        else:
            exchange.reply = self._done if exchange.envelope is _DELIMITER else [*exchange.envelope, self._ok]
        self._counts[command, "ok"] += 1

    def _answer_failure(self, exchange: Exchange, failure: Failure) -> None:
        is_absent = failure.reason == reason_pb2.REASON_ROW_NOT_FOUND
        text = _REASON_TEXTS.get(failure.reason, REASON_TEXTS[reason_pb2.REASON_INTERNAL])
        self._refuse(exchange, text, "empty" if is_absent else outcome_of(failure))

    def _refuse(self, exchange: Exchange, reason: str, outcome: Outcome) -> None:
        exchange.reply = [*exchange.envelope, self._error, reason.encode()]
        self._counts[exchange.command, outcome] += 1


def notification(change: event_pb2.Event) -> Notification | None:
    """What to publish about a change: nothing when it is no row's, or when this protocol could not have written it."""
    code = _CODES.get(change.kind)
    if code is None or len(change.key) > KEY_BYTES_MAX:
        return None
    table = change.table.encode()
    if not table or len(table) > TABLE_BYTES_MAX or b"\x00" in table:
        return None
    return table, code, change.key


def _request_start(frames: Sequence[bytes]) -> int:
    """Where the request begins: at once when the first frame is one byte long, else behind the first empty frame."""
    first = frames[0]
    if not first:
        return 1
    if len(first) == 1 or b"" not in frames:
        return 0
    return frames.index(b"") + 1


def _read_table(name: bytes) -> str:
    name = name.removesuffix(b"\x00")
    if not name:
        raise _RefusedError(EMPTY_TABLE_NAME)
    if len(name) > TABLE_BYTES_MAX:
        raise _RefusedError(LONG_TABLE_NAME)
    if b"\x00" in name:
        raise _RefusedError(NUL_IN_TABLE_NAME)
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _RefusedError(TABLE_NAME_NOT_UTF8) from None


def _key(key: bytes) -> bytes:
    if len(key) > KEY_BYTES_MAX:
        raise _RefusedError(LONG_KEY)
    return key
