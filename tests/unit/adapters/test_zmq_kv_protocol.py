"""The ZeroMQ key-value protocol without sockets: what frames ask, what is replied, what is published."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet.v1 import event_pb2, reason_pb2, table_pb2
from quintet.v1 import table_service_pb2 as api
from quintet.v1.reason_pb2 import Reason
from quintet.v1.session_service_pb2 import Failure, SessionResult
from quintet_adapters.messages import OUTCOMES, CommandCounts
from quintet_adapters.protocols import zmq_kv
from quintet_adapters.protocols.zmq_kv import Exchange, ZmqKv, ZmqKvTerms, notification

OK, ERROR = b"\x00", b"\x01"
REQ = [b""]
REASONS = [reason for reason in Reason.values() if reason]


def protocol(counts: CommandCounts | None = None, **terms: Any) -> ZmqKv:
    return ZmqKv(ZmqKvTerms(**terms), Counter() if counts is None else counts)


def read(*frames: bytes, **terms: Any) -> Exchange:
    return protocol(**terms).read(list(frames))


def refusal(*frames: bytes) -> str:
    """The REASON of the reply to a REQ client."""
    reply = read(b"", *frames).reply
    assert reply is not None
    assert reply[:2] == [b"", ERROR]
    return reply[2].decode()


def reply_to(result: SessionResult, *frames: bytes, **terms: Any) -> list[bytes] | None:
    kv = protocol(**terms)
    exchange = kv.read(list(frames))
    assert exchange.reply is None
    kv.answer(exchange, result)
    return exchange.reply


def row(value: bytes) -> SessionResult:
    return SessionResult(get_row=api.GetRowResponse(row=table_pb2.Row(value=value)))


def failed(reason: Reason.ValueType) -> SessionResult:
    return SessionResult(failure=Failure(reason=reason, message="secret", metadata={"value": "secret"}))


PUT = SessionResult(put_row=api.PutRowResponse(version=1))


class TestRequests:
    def test_create_table(self) -> None:
        exchange = read(b"", b"\x00", b"table", namespace="n")
        assert (exchange.verb, exchange.message) == (
            "create_table",
            api.CreateTableRequest(namespace="n", table="table"),
        )

    def test_delete_table(self) -> None:
        exchange = read(b"", b"\x01", b"table")
        assert exchange.verb == "delete_table"
        assert exchange.message == api.DeleteTableRequest(namespace="default", table="table")

    def test_update_keeps_a_running_deadline_unless_it_names_one(self) -> None:
        exchange = read(b"", b"\x02", b"table", b"key", b"value")
        assert exchange.verb == "put_row"
        assert exchange.message == api.PutRowRequest(
            namespace="default", table="table", key=b"key", value=b"value", ttl_change=api.TTL_CHANGE_KEEP
        )

    def test_delete_and_get(self) -> None:
        deleted, got = read(b"", b"\x03", b"table", b"key"), read(b"", b"\x04", b"table", b"key")
        assert (deleted.verb, got.verb) == ("delete_row", "get_row")
        assert deleted.message == api.DeleteRowRequest(namespace="default", table="table", key=b"key")
        assert got.message == api.GetRowRequest(namespace="default", table="table", key=b"key")

    def test_nothing_of_a_request_is_left_for_the_next(self) -> None:
        kv = protocol()
        kv.read([b"", b"\x02", b"t", b"k", b"v", bytes(7) + b"\x05"])
        exchange = kv.read([b"", b"\x02", b"t", b"", b""])
        assert exchange.message == api.PutRowRequest(namespace="default", table="t")

    @pytest.mark.parametrize("name", ["t", "таблица", "t" * 254])
    def test_a_name_means_the_same_with_and_without_its_final_nul(self, name: str) -> None:
        kv = protocol()
        for sent in (name.encode(), name.encode() + b"\x00"):
            message = kv.read([b"", b"\x00", sent]).message
            assert message is not None
            assert message.table == name

    def test_names_are_read_anew_when_too_many_were_kept(self) -> None:
        kv = protocol()
        for number in range(3000):
            message = kv.read([b"", b"\x00", b"%d" % number]).message
            assert message is not None
            assert message.table == str(number)


class TestTimesToLive:
    def ttl_of(self, ttl: bytes, **terms: Any) -> tuple[int, int]:
        message = read(b"", b"\x02", b"t", b"k", b"v", ttl, **terms).message
        assert isinstance(message, api.PutRowRequest)
        return message.ttl_change, message.ttl_ms

    def test_seconds_are_set(self) -> None:
        assert self.ttl_of(bytes(7) + b"\x05") == (api.TTL_CHANGE_SET, 5000)

    def test_the_byte_order_is_a_setting(self) -> None:
        assert self.ttl_of(b"\x05" + bytes(7), ttl_byte_order="little") == (api.TTL_CHANGE_SET, 5000)

    def test_zero_removes_the_deadline(self) -> None:
        assert self.ttl_of(bytes(8)) == (api.TTL_CHANGE_CLEAR, 0)

    @pytest.mark.parametrize("seconds", [zmq_kv.TTL_SECONDS_MAX + 1, 2**63, 2**64 - 1])
    def test_what_is_too_large_for_the_clock_is_never(self, seconds: int) -> None:
        assert self.ttl_of(seconds.to_bytes(8, "big")) == (api.TTL_CHANGE_CLEAR, 0)

    def test_the_longest_is_still_set(self) -> None:
        seconds = zmq_kv.TTL_SECONDS_MAX
        assert self.ttl_of(seconds.to_bytes(8, "big")) == (api.TTL_CHANGE_SET, seconds * 1000)


class TestRefusals:
    @pytest.mark.parametrize(
        ("frames", "reason"),
        [
            ([], zmq_kv.EMPTY_REQUEST),
            ([b"\x05", b"t"], zmq_kv.UNKNOWN_COMMAND),
            ([b"", b"t"], zmq_kv.UNKNOWN_COMMAND),
            ([b"\x00\x00", b"t"], zmq_kv.UNKNOWN_COMMAND),
            ([b"\x00"], zmq_kv.WRONG_FRAMES),
            ([b"\x00", b"t", b""], zmq_kv.WRONG_FRAMES),
            ([b"\x01", b"t", b"k"], zmq_kv.WRONG_FRAMES),
            ([b"\x02", b"t", b"k"], zmq_kv.WRONG_FRAMES),
            ([b"\x02", b"t", b"k", b"v", bytes(8), b""], zmq_kv.WRONG_FRAMES),
            ([b"\x03", b"t"], zmq_kv.WRONG_FRAMES),
            ([b"\x04", b"t", b"k", b"v"], zmq_kv.WRONG_FRAMES),
            ([b"\x00", b""], zmq_kv.EMPTY_TABLE_NAME),
            ([b"\x00", b"\x00"], zmq_kv.EMPTY_TABLE_NAME),
            ([b"\x00", b"t" * 255], zmq_kv.LONG_TABLE_NAME),
            ([b"\x00", b"t" * 255 + b"\x00"], zmq_kv.LONG_TABLE_NAME),
            ([b"\x00", b"a\x00b"], zmq_kv.NUL_IN_TABLE_NAME),
            ([b"\x00", b"a\x00\x00"], zmq_kv.NUL_IN_TABLE_NAME),
            ([b"\x00", b"\xff"], zmq_kv.TABLE_NAME_NOT_UTF8),
            ([b"\x00", b"\xed\xa0\x80"], zmq_kv.TABLE_NAME_NOT_UTF8),
            ([b"\x02", b"t", b"k" * 65, b"v"], zmq_kv.LONG_KEY),
            ([b"\x03", b"t", b"k" * 65], zmq_kv.LONG_KEY),
            ([b"\x04", b"t", b"k" * 65], zmq_kv.LONG_KEY),
            ([b"\x02", b"t", b"k", b"v" * 1025], zmq_kv.LONG_VALUE),
            ([b"\x02", b"t", b"k", b"v", bytes(7)], zmq_kv.WRONG_TTL),
            ([b"\x02", b"t", b"k", b"v", b""], zmq_kv.WRONG_TTL),
            ([b"\x02", b"t", b"k", b"v", bytes(64)], zmq_kv.WRONG_TTL),
        ],
    )
    def test_each_has_its_sentence(self, frames: list[bytes], reason: str) -> None:
        assert refusal(*frames) == reason

    def test_the_largest_of_everything_is_taken(self) -> None:
        exchange = read(b"", b"\x02", b"t" * 254 + b"\x00", b"k" * 64, b"v" * 1024, bytes(8))
        assert exchange.reply is None

    @given(st.lists(st.binary(max_size=40) | st.sampled_from([b"", b"\x00", b"\x02", b"\x04", b"t"]), min_size=1))
    def test_any_frames_are_asked_of_the_core_or_answered(self, frames: list[bytes]) -> None:
        exchange = read(*frames)
        assert (exchange.reply is None) is (exchange.message is not None)
        assert exchange.command in ZmqKv.commands
        if exchange.reply is not None:
            assert exchange.reply[:-2] == exchange.envelope
            assert exchange.reply[-2] == ERROR

    @given(st.lists(st.binary(min_size=4, max_size=40), min_size=1))
    def test_no_reason_holds_what_the_client_sent(self, frames: list[bytes]) -> None:
        reply = read(b"", *frames).reply
        assert reply is not None
        assert not any(frame in reply[-1] for frame in frames)


class TestEnvelopes:
    @pytest.mark.parametrize(
        "envelope", [[], [b""], [b"route", b""], [b"a-1", b"b-2", b"\x00\x01", b""], [b"x" * 65536, b""]]
    )
    def test_are_mirrored(self, envelope: list[bytes]) -> None:
        assert reply_to(PUT, *envelope, b"\x02", b"t", b"k", b"v") == [*envelope, OK]
        assert reply_to(row(b"v"), *envelope, b"\x04", b"t", b"k") == [*envelope, OK, b"v"]
        assert read(*envelope, b"\x09").reply == [*envelope, ERROR, zmq_kv.UNKNOWN_COMMAND.encode()]

    def test_end_at_the_first_empty_frame(self) -> None:
        assert reply_to(row(b""), b"route", b"", b"\x04", b"t", b"") == [b"route", b"", OK, b""]

    def test_there_is_none_when_the_first_frame_is_one_byte(self) -> None:
        assert reply_to(row(b"v"), b"\x04", b"t", b"") == [OK, b"v"]

    def test_without_an_empty_frame_there_is_none(self) -> None:
        assert read(b"route", b"\x04", b"t").reply == [ERROR, zmq_kv.UNKNOWN_COMMAND.encode()]

    def test_with_nothing_behind_is_an_error(self) -> None:
        assert read(b"route", b"").reply == [b"route", b"", ERROR, zmq_kv.EMPTY_REQUEST.encode()]


class TestReplies:
    def test_get_and_delete_give_the_value(self) -> None:
        removed = SessionResult(delete_row=api.DeleteRowResponse(row=table_pb2.Row(value=b"\x00v")))
        assert reply_to(removed, b"", b"\x03", b"t", b"k") == [b"", OK, b"\x00v"]
        assert reply_to(row(b""), b"", b"\x04", b"t", b"k") == [b"", OK, b""]

    @pytest.mark.parametrize(
        ("status_bytes", "ok", "error"), [("ok=1,error=0", b"\x01", b"\x00"), ("text", b"OK", b"ERROR")]
    )
    def test_the_status_is_a_setting(self, status_bytes: str, ok: bytes, error: bytes) -> None:
        for request in ([b"\x02", b"t", b"k", b"v"], [b"", b"\x02", b"t", b"k", b"v"]):
            reply = reply_to(PUT, *request, status_bytes=status_bytes)
            assert reply is not None
            assert reply[-1] == ok
        refused = read(b"", b"\x07", status_bytes=status_bytes).reply
        assert refused is not None
        assert refused[:2] == [b"", error]

    @pytest.mark.parametrize("reason", REASONS, ids=lambda reason: Reason.Name(reason))
    def test_every_reason_of_the_api_has_its_words(self, reason: Reason.ValueType) -> None:
        reply = reply_to(failed(reason), b"", b"\x04", b"t", b"k")
        assert reply is not None
        assert reply[:2] == [b"", ERROR]
        words = reply[2].decode()
        assert words
        assert "secret" not in words
        if words == "internal error":
            assert reason in {reason_pb2.REASON_INTERNAL, reason_pb2.REASON_DAMAGED}

    def test_are_counted(self) -> None:
        counts: CommandCounts = Counter()
        kv = protocol(counts)
        kv.answer(kv.read([b"", b"\x02", b"t", b"k", b"v"]), PUT)
        kv.answer(kv.read([b"", b"\x04", b"t", b"k"]), failed(reason_pb2.REASON_ROW_NOT_FOUND))
        kv.answer(kv.read([b"", b"\x00", b"t"]), failed(reason_pb2.REASON_UNAVAILABLE))
        kv.read([b"", b"\x03"])
        kv.read([b"x"])
        kv.refuse_unread([b"", b"\x04"], zmq_kv.STOPPING)
        assert counts == {
            ("update", "ok"): 1,
            ("get", "empty"): 1,
            ("create_table", "unavailable"): 1,
            ("delete", "refused"): 1,
            ("invalid", "refused"): 1,
            ("invalid", "unavailable"): 1,
        }
        assert all(command in ZmqKv.commands and outcome in OUTCOMES for command, outcome in counts)


class TestNotifications:
    def test_a_put_is_updated(self) -> None:
        assert notification(change("PUT")) == (b"t", b"\x00", b"k")

    @pytest.mark.parametrize("kind", ["DELETED", "EXPIRED"])
    def test_a_delete_and_an_expiry_are_deleted(self, kind: str) -> None:
        assert notification(change(kind)) == (b"t", b"\x01", b"k")

    def test_of_a_table_itself_there_is_none(self) -> None:
        created = event_pb2.Event(kind=event_pb2.EVENT_KIND_TABLE_CREATED, table="t")
        assert notification(created) is None

    @pytest.mark.parametrize("table", ["", "a\x00b", "a\x00", "t" * 255, "я" * 128])
    def test_of_a_name_that_the_protocol_cannot_write_there_is_none(self, table: str) -> None:
        assert notification(change("PUT", table=table)) is None

    @pytest.mark.parametrize("table", ["t" * 254, "я" * 127])
    def test_the_longest_name_is_published(self, table: str) -> None:
        assert notification(change("PUT", table=table)) == (table.encode(), b"\x00", b"k")

    def test_a_key_that_the_protocol_cannot_write_is_not_published(self) -> None:
        assert notification(change("PUT", key=b"k" * 65)) is None
        assert notification(change("PUT", key=b"k" * 64)) is not None


def change(kind: str, table: str = "t", key: bytes = b"k") -> event_pb2.Event:
    return event_pb2.Event(kind=event_pb2.EventKind.Value(f"EVENT_KIND_ROW_{kind}"), table=table, key=key)
