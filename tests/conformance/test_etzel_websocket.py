"""Etzel's WebSocket port by raw sockets: the handshakes, frames and faults of RFC 6455, byte by byte."""

from __future__ import annotations

import json
import os
import signal
import socket
import zlib
from collections.abc import Iterator
from typing import Self

import pytest
from websockets.frames import Frame, Opcode

from tests.support.clients import connect, read_all
from tests.support.etzel import EtzelWebSocketClient
from tests.support.stack import AdapterPart, Stack, until

MIB = 1024 * 1024
UPGRADE = (
    b"Host: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
NO_QUEUE = {"cmd": "nok", "err": "Q_NOT_FOUND"}


class RawWebSocket:
    """A client that does exactly as it is told."""

    def __init__(self, adapter: AdapterPart, path: bytes = b"/connect", headers: bytes = UPGRADE) -> None:
        self.connection = connect(adapter.address)
        self._stream = self.connection.makefile("rb")
        self.connection.sendall(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, headers))
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self._stream.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self.connection.close()

    def send(self, *frames: bytes) -> None:
        self.connection.sendall(b"".join(frames))

    def read_frame(self) -> tuple[int, bytes]:
        """First byte and payload of the next frame, which must be unmasked; (0, b"") at the end of the stream."""
        head = self._stream.read(2)
        if not head:
            return 0, b""
        assert head[1] < 128, "a server never masks"
        extended = {126: 2, 127: 8}.get(head[1], 0)
        length = int.from_bytes(self._stream.read(extended), "big") if extended else head[1]
        return head[0], self._stream.read(length)

    def read(self) -> dict[str, object]:
        """The next message, which must be one whole uncompressed text frame."""
        first, payload = self.read_frame()
        assert first == 0x81, (first, payload)
        return dict(json.loads(payload))

    def close_code(self) -> int:
        """Of the close frame that must come next, and be the last."""
        first, payload = self.read_frame()
        assert first == 0x88, (first, payload)
        assert self.read_frame() == (0, b"")
        return int.from_bytes(payload[:2], "big")


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def fetch(queue: str) -> bytes:
    return json.dumps({"cmd": "FET", "qname": queue}).encode()


def compressed(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-12)
    body = (squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH))[:-4]
    plain = frame(Opcode.TEXT, body)
    return bytes([plain[0] | 0x40]) + plain[1:]


@pytest.fixture
def raw(etzel: AdapterPart) -> Iterator[RawWebSocket]:
    """A client that has shaken hands."""
    with RawWebSocket(etzel) as client:
        assert client.head.startswith(b"HTTP/1.1 101 ")
        yield client


@pytest.fixture
def deflating(etzel: AdapterPart) -> Iterator[RawWebSocket]:
    """One that compresses."""
    with RawWebSocket(etzel, headers=UPGRADE + DEFLATE) as client:
        assert b"permessage-deflate" in client.head
        yield client


class TestHttp:
    @pytest.mark.parametrize("path", [b"/connect", b"/connect/", b"/connect?user=1"])
    def test_shakes_hands_at_the_path(self, etzel: AdapterPart, path: bytes, queue: str) -> None:
        with RawWebSocket(etzel, path) as client:
            assert client.head.startswith(b"HTTP/1.1 101 ")
            assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in client.head
            assert b"Extensions" not in client.head
            client.send(frame(Opcode.TEXT, fetch(queue)))
            assert client.read() == NO_QUEUE

    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        [
            (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 200),
            (b"GET / HTTP/1.0\r\n\r\n", 200),
            (b"HEAD / HTTP/1.1\r\n\r\n", 200),
            (b"GET /other HTTP/1.1\r\n" + UPGRADE + b"\r\n", 404),
            (b"GET /connect HTTP/1.1\r\nHost: here\r\n\r\n", 426),
            (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
            (b"hello\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 431),
        ],
    )
    def test_anything_else_is_answered_and_closed(self, etzel: AdapterPart, request_bytes: bytes, status: int) -> None:
        with connect(etzel.address) as connection:
            connection.sendall(request_bytes)
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.count(b"HTTP/1.1 ") == 1

    def test_the_root_says_one_line_of_plain_text(self, etzel: AdapterPart) -> None:
        with connect(etzel.address) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert b"Content-Type: text/plain; charset=utf-8" in head.split(b"\r\n")
        assert b"Content-Length: %d" % len(body) in head.split(b"\r\n")
        assert body.decode().count("\n") == 1

    def test_who_never_shakes_hands_is_closed(self, stack: Stack) -> None:
        adapter = stack.further_adapter("etzel", QUINTET_HANDSHAKE_MS="300")
        adapter.start()
        with connect(adapter.address_of("etzel")) as silent, connect(adapter.address) as slow:
            slow.sendall(b"GET /connect HTTP/1.1\r\n")
            assert (read_all(silent), read_all(slow)) == (b"", b"")
        adapter.kill9()

    def test_path_and_largest_frame_are_settings(self, stack: Stack, queue: str) -> None:
        adapter = stack.further_adapter("etzel", QUINTET_WEBSOCKET_PATH="/jobs/v1", QUINTET_FRAME_BYTES_MAX="200")
        adapter.start()
        with RawWebSocket(adapter, b"/jobs/v1/") as client:
            client.send(frame(Opcode.TEXT, fetch(queue)), frame(Opcode.TEXT, b" " * 201))
            assert client.read() == NO_QUEUE
            assert client.close_code() == 1009
        adapter.kill9()


class TestFrames:
    def test_a_message_may_come_in_fragments_with_pings_between(self, raw: RawWebSocket, queue: str) -> None:
        source = fetch(queue)
        raw.send(
            frame(Opcode.TEXT, source[:5], fin=False),
            frame(Opcode.PING, b"1"),
            frame(Opcode.CONT, b"", fin=False),
            frame(Opcode.CONT, source[5:9], fin=False),
            frame(Opcode.PONG, b"unasked"),
            frame(Opcode.CONT, source[9:]),
        )
        assert raw.read_frame() == (0x8A, b"1")
        assert raw.read() == NO_QUEUE

    def test_any_split_of_the_stream_gives_the_same(self, raw: RawWebSocket, queue: str) -> None:
        stream = frame(Opcode.TEXT, fetch(queue)) + frame(Opcode.TEXT, b" " * 300) + frame(Opcode.PING, b"end")
        for at in range(len(stream)):
            raw.send(stream[at : at + 1])
        # A pong does not wait for the answers before it.
        pongs: list[bytes] = []
        answers: list[bytes] = []
        for first, payload in (raw.read_frame() for _ in range(3)):
            (answers if first == 0x81 else pongs).append(payload)
        assert pongs == [b"end"]
        assert [json.loads(answer)["err"] for answer in answers] == ["Q_NOT_FOUND", "BAD_REQUEST"]

    def test_compressed_messages_are_understood_and_answers_are_plain(
        self, deflating: RawWebSocket, queue: str
    ) -> None:
        message = "z" * 100_000
        deflating.send(compressed(json.dumps({"cmd": "PUB", "qname": queue, "message": message}).encode()))
        assert deflating.read()["cmd"] == "ok"
        deflating.send(frame(Opcode.TEXT, fetch(queue)))
        assert deflating.read()["msg"] == message

    def test_the_libraries_own_compression_works(self, etzel: AdapterPart, queue: str) -> None:
        with EtzelWebSocketClient(etzel.address, "/connect/", compress=True) as client:
            for number in range(5):
                client.publish(queue, "same " * 1000 + str(number))
            assert [client.fetch(queue)["msg"][-1] for _ in range(5)] == list("01234")

    def test_a_binary_frame_is_a_bad_request(self, raw: RawWebSocket, queue: str) -> None:
        raw.send(frame(Opcode.BINARY, fetch(queue)), frame(Opcode.TEXT, fetch(queue)))
        answer = raw.read()
        assert (answer["err"], "binary" in str(answer["detail"])) == ("BAD_REQUEST", True)
        assert raw.read() == NO_QUEUE

    def test_the_largest_frame_is_taken(self, raw: RawWebSocket) -> None:
        raw.send(frame(Opcode.TEXT, b"{" + b" " * (8 * MIB - 1)))
        assert raw.read()["err"] == "BAD_REQUEST"


class TestFaults:
    @pytest.mark.parametrize(
        ("frames", "code"),
        [
            (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
            (b"\x83\x80mask", 1002),
            (b"\xb1\x80mask", 1002),
            (frame(Opcode.CONT, b"x"), 1002),
            (frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.TEXT, b"y"), 1002),
            (b"\x89\xfe\x00\x80mask" + b"x" * 128, 1002),
            (frame(Opcode.TEXT, b'{"cmd":"FET","qname":"\xff"}'), 1007),
            (frame(Opcode.TEXT, b"\xc3", fin=False) + frame(Opcode.CONT, b"x"), 1007),
            (b"\x81\xff" + (8 * MIB + 1).to_bytes(8, "big") + b"mask", 1009),
            (b"\x81\xff" + b"\xff" * 8 + b"mask", 1009),
            (frame(Opcode.TEXT, b"x" * 5 * MIB, fin=False) + frame(Opcode.CONT, b"x" * 5 * MIB), 1009),
        ],
        ids=lambda _: "case",
    )
    def test_close_with_their_code_after_what_is_owed(
        self, raw: RawWebSocket, queue: str, frames: bytes, code: int
    ) -> None:
        raw.send(*[frame(Opcode.TEXT, fetch(queue))] * 20, frames)
        assert [raw.read() for _ in range(20)] == [NO_QUEUE] * 20
        assert raw.close_code() == code

    def test_size_counts_after_inflation(self, deflating: RawWebSocket) -> None:
        bomb = compressed(b"x" * (8 * MIB + 1))
        assert len(bomb) < 10_000
        deflating.send(bomb)
        assert deflating.close_code() == 1009

    def test_of_one_client_leave_the_others_alone(self, etzel: AdapterPart, raw: RawWebSocket, queue: str) -> None:
        with EtzelWebSocketClient(etzel.address) as other:
            uid = other.publish(queue, 1)
            raw.send(b"\x83\x80mask")
            assert raw.close_code() == 1002
            assert other.fetch(queue)["uid"] == uid


class TestFarewells:
    def test_a_close_is_echoed_and_the_stream_ends(self, raw: RawWebSocket) -> None:
        raw.send(frame(Opcode.CLOSE, b"\x03\xe8bye"))
        assert raw.read_frame() == (0x88, b"\x03\xe8bye")
        assert raw.read_frame() == (0, b"")

    def test_what_was_published_before_a_close_is_there(
        self, etzel: AdapterPart, raw: RawWebSocket, queue: str
    ) -> None:
        source = json.dumps({"cmd": "PUB", "qname": queue, "message": 1}).encode()
        raw.send(*[frame(Opcode.TEXT, source)] * 1000, frame(Opcode.CLOSE))
        while raw.read_frame()[0] != 0x88:
            pass
        with EtzelWebSocketClient(etzel.address) as other:
            assert [other.fetch(queue)["cmd"] for _ in range(1001)] == ["msg"] * 1000 + ["nomsg"]

    def test_who_only_stops_sending_gets_its_answers(self, raw: RawWebSocket, queue: str) -> None:
        raw.send(*[frame(Opcode.TEXT, fetch(queue))] * 300)
        raw.connection.shutdown(socket.SHUT_WR)
        assert [raw.read() for _ in range(300)] == [NO_QUEUE] * 300
        assert raw.close_code() == 1001

    def test_a_drain_answers_what_is_under_way_and_says_going_away(self, stack: Stack, queue: str) -> None:
        adapter = stack.further_adapter("etzel")
        adapter.start()
        with RawWebSocket(adapter) as asleep, connect(adapter.address_of("etzel-lines")) as by_lines:
            for cmd in ("SUB", "ISLP"):
                asleep.send(frame(Opcode.TEXT, json.dumps({"cmd": cmd, "qname": queue}).encode()))
                assert asleep.read()["qname"] == queue
            by_lines.sendall(fetch(queue) + b"\n")
            until(lambda: taken(adapter) >= 3, "all three requests to be taken")
            os.kill(adapter.pid, signal.SIGTERM)
            assert asleep.close_code() == 1001
            assert b"nomsg" in read_all(by_lines)
        until(lambda: not adapter.is_running, "the process to end")


def taken(adapter: AdapterPart) -> float:
    metrics = adapter.metrics()
    return sum(count for name, count in metrics.items() if name.startswith("quintet_adapter_requests_total"))
