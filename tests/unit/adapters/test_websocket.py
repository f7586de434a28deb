"""WebSocket framing without sockets: handshakes, frames however split, faults, what the library decides."""

from __future__ import annotations

import itertools
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quintet_adapters.protocols.framing import Over, Unfit
from quintet_adapters.protocols.websocket import WebSocket
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

BYTES_MAX = 1000
HEAD = (
    b"GET %b HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"


def handshake(path: bytes = b"/connect", more: bytes = b"") -> bytes:
    return HEAD % path + more + b"\r\n"


def framing(path: str = "/connect") -> WebSocket:
    return WebSocket(path, BYTES_MAX)


def opened(more: bytes = b"") -> WebSocket:
    websocket = framing()
    assert take(websocket, handshake(more=more)) == []
    assert websocket.replies.pop().startswith(b"HTTP/1.1 101 ")
    return websocket


def take(websocket: WebSocket, *pieces: bytes) -> list[bytes | str]:
    """Every message that comes of the bytes; of an unfit one the reason."""
    messages: list[bytes | str] = []
    for piece in pieces:
        sole = websocket.sole_message(piece)
        if sole is not None:
            messages.append(sole)
            continue
        websocket.feed(piece)
        while (message := websocket.next_message()) is not None:
            messages.append(message.reason if isinstance(message, Unfit) else message)
    return messages


def text(data: bytes, *, fin: bool = True) -> bytes:
    return Frame(Opcode.TEXT, data, fin).serialize(mask=True)


def more(data: bytes, *, fin: bool = False) -> bytes:
    return Frame(Opcode.CONT, data, fin).serialize(mask=True)


def close_code(websocket: WebSocket) -> int:
    goodbye = websocket.goodbye()
    assert goodbye[0] == 0x88
    assert goodbye[1] == len(goodbye) - 2
    return int.from_bytes(goodbye[2:4], "big")


def compressed(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-12)
    body = squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH)
    return marked_compressed(body[:-4])


def marked_compressed(body: bytes) -> bytes:
    frame = text(body)
    return bytes([frame[0] | 0x40]) + frame[1:]


class TestTheOpeningHandshake:
    @pytest.mark.parametrize("path", [b"/connect", b"/connect/", b"/connect?token=1", b"/connect/?"])
    def test_succeeds_at_the_path_with_or_without_a_slash(self, path: bytes) -> None:
        websocket = framing()
        assert take(websocket, handshake(path)) == []
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in websocket.replies[0]
        assert websocket.over is None

    def test_may_come_in_any_pieces_with_frames_behind_it(self) -> None:
        websocket = framing()
        data = handshake() + text(b"{}")
        assert take(websocket, *(data[at : at + 1] for at in range(len(data)))) == [b"{}"]

    def test_frames_in_the_same_piece_are_taken_after_it(self) -> None:
        websocket = framing()
        assert take(websocket, handshake() + text(b"1") + text(b"2")) == [b"1", b"2"]
        assert len(websocket.replies) == 1

    @pytest.mark.parametrize("path", [b"/", b"/?lb=1"])
    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    def test_a_plain_request_for_the_root_reads_a_line_of_text(self, path: bytes, version: bytes) -> None:
        websocket = framing()
        take(websocket, b"GET %b HTTP/%b\r\n\r\n" % (path, version))
        head, _, body = websocket.goodbye().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"Content-Type: text/plain" in head
        assert body.count(b"\n") == 1
        assert body.endswith(b"\n")
        assert websocket.over is Over.FAILED

    def test_a_head_request_for_the_root_reads_no_body(self) -> None:
        websocket = framing()
        take(websocket, b"HEAD / HTTP/1.1\r\n\r\n")
        assert websocket.goodbye().startswith(b"HTTP/1.1 200 ")
        assert websocket.goodbye().endswith(b"\r\n\r\n")

    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        [
            (handshake(b"/elsewhere"), 404),
            (handshake(b"/connect//"), 404),
            (b"GET /elsewhere HTTP/1.1\r\n\r\n", 404),
            (b"GET /connect HTTP/1.1\r\n\r\n", 426),
            (b"POST / HTTP/1.1\r\n\r\n", 405),
            (handshake().replace(b"GET", b"PUT"), 405),
            (handshake().replace(b"Version: 13", b"Version: 8"), 400),
            (handshake().replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), 400),
            (handshake().replace(b"HTTP/1.1", b"HTTP/1.0"), 505),
            (b"nonsense\r\n\r\n", 400),
            (b"\x16\x03\x01\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
            (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
            (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000, 431),
            (b"x" * 40_000, 431),
        ],
    )
    def test_anything_else_is_refused_in_http(self, request_bytes: bytes, status: int) -> None:
        websocket = framing()
        assert take(websocket, request_bytes) == []
        assert websocket.goodbye().startswith(b"HTTP/1.1 %d " % status)
        assert websocket.over is Over.FAILED

    def test_the_root_itself_may_be_the_path(self) -> None:
        websocket = framing("/")
        take(websocket, handshake(b"/"))
        assert websocket.replies
        plain = framing("/")
        take(plain, b"GET / HTTP/1.1\r\n\r\n")
        assert plain.goodbye().startswith(b"HTTP/1.1 200 ")


class TestMessages:
    @pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 999, 1000])
    def test_of_any_size_within_the_limit_are_taken(self, size: int) -> None:
        assert take(opened(), text(b"x" * size)) == [b"x" * size]

    def test_with_line_ends_are_still_one(self) -> None:
        assert take(opened(), text(b'{\n"a":\r\n1}\n')) == [b'{\n"a":\r\n1}\n']

    @settings(max_examples=60)
    @given(st.data())
    def test_are_the_same_however_they_are_fragmented_and_split(self, data: st.DataObject) -> None:
        expected: list[bytes | str] = []
        stream = b""
        for message in data.draw(st.lists(st.text(max_size=300), max_size=6)):
            source = message.encode()
            expected.append(source)
            cuts = sorted(data.draw(st.lists(st.integers(0, len(source)), max_size=3)))
            if not cuts:
                stream += text(source)
                continue
            stream += text(source[: cuts[0]], fin=False)
            for start, end in itertools.pairwise(cuts):
                stream += more(source[start:end]) + Frame(Opcode.PING, b"?").serialize(mask=True)
            stream += more(source[cuts[-1] :], fin=True)
        ends = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
        pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
        websocket = opened()
        assert take(websocket, *(piece for piece in pieces if piece)) == expected
        assert websocket.over is None

    def test_compressed_are_inflated(self) -> None:
        websocket = opened(DEFLATE)
        assert take(websocket, compressed(b"z" * 900), text(b"plain")) == [b"z" * 900, b"plain"]

    def test_binary_ones_are_unfit_and_the_connection_goes_on(self) -> None:
        binary = Frame(Opcode.BINARY, b"{}").serialize(mask=True)
        reasons = take(opened(), binary, text(b"1"))
        assert "binary" in str(reasons[0])
        assert reasons[1] == b"1"

    @pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 100_000])
    def test_are_written_as_the_library_writes_them(self, size: int) -> None:
        output: list[bytes] = []
        opened().write(b"x" * size, output)
        assert b"".join(output) == Frame(Opcode.TEXT, b"x" * size).serialize(mask=False)

    def test_are_written_uncompressed_even_to_a_client_that_compresses(self) -> None:
        output: list[bytes] = []
        opened(DEFLATE).write(b"x" * 300, output)
        assert b"".join(output) == Frame(Opcode.TEXT, b"x" * 300).serialize(mask=False)


class TestControlFrames:
    def test_a_ping_is_answered_with_its_own_words(self) -> None:
        websocket = opened()
        take(websocket, Frame(Opcode.PING, b"are you there").serialize(mask=True))
        assert websocket.replies == [Frame(Opcode.PONG, b"are you there").serialize(mask=False)]

    def test_a_pong_nobody_asked_for_is_nothing(self) -> None:
        websocket = opened()
        assert take(websocket, Frame(Opcode.PONG, b"").serialize(mask=True), text(b"1")) == [b"1"]
        assert websocket.replies == []

    @pytest.mark.parametrize("body", [b"", Close(1000, "bye").serialize(), Close(4321, "").serialize()])
    def test_a_close_is_echoed_and_ends_it(self, body: bytes) -> None:
        websocket = opened()
        assert take(websocket, Frame(Opcode.CLOSE, body).serialize(mask=True) + text(b"late")) == []
        assert websocket.over is Over.LEFT
        assert websocket.goodbye() == Frame(Opcode.CLOSE, body).serialize(mask=False)

    def test_an_end_of_ours_says_going_away(self) -> None:
        assert close_code(opened()) == 1001


class TestFaults:
    @pytest.mark.parametrize(
        "frames",
        [
            Frame(Opcode.TEXT, b"{}").serialize(mask=False),
            b"\x83\x80mask",
            b"\xc1\x80mask",
            b"\x91\x80mask",
            more(b"x", fin=True),
            text(b"x", fin=False) + text(b"y"),
            b"\x89\xfe\x00\x80mask" + b"x" * 128,
            b"\x09\x80mask",
            b"\x88\x81mask?",
            Frame(Opcode.CLOSE, b"\x00\x05").serialize(mask=True),
            text(b"x", fin=False) + Frame(Opcode.CLOSE, b"").serialize(mask=True),
        ],
        ids=lambda _: "case",
    )
    def test_broken_framing_is_1002(self, frames: bytes) -> None:
        for pieces in ((frames,), tuple(frames[at : at + 1] for at in range(len(frames)))):
            websocket = opened()
            assert take(websocket, *pieces) == []
            assert websocket.over is Over.FAILED
            assert close_code(websocket) == 1002

    @pytest.mark.parametrize(
        "frames",
        [
            text(b"\xff"),
            text(b"\xed\xa0\x80"),
            text(b"\xc3", fin=False) + more(b"x", fin=True),
            Frame(Opcode.CLOSE, b"\x03\xe8\xff").serialize(mask=True),
        ],
        ids=lambda _: "case",
    )
    def test_what_is_not_utf_8_is_1007(self, frames: bytes) -> None:
        websocket = opened()
        assert take(websocket, frames) == []
        assert close_code(websocket) == 1007

    def test_a_character_may_be_split_between_fragments(self) -> None:
        assert take(opened(), text(b"\xc3", fin=False) + more(b"\xa9", fin=True)) == ["é".encode()]

    @pytest.mark.parametrize(
        "frames",
        [
            text(b"x" * 1001),
            text(b"x" * 1001)[:4],
            b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            text(b"x" * 600, fin=False) + more(b"x" * 401),
            b"".join([text(b"", fin=False), *[more(b"x")] * 1001]),
        ],
    )
    def test_what_is_too_large_is_1009_before_it_is_there(self, frames: bytes) -> None:
        websocket = opened()
        assert take(websocket, frames) == []
        assert close_code(websocket) == 1009

    def test_size_counts_after_inflation(self) -> None:
        websocket = opened(DEFLATE)
        assert len(compressed(b"z" * 1001)) < 50
        assert take(websocket, compressed(b"z" * 1001)) == []
        assert close_code(websocket) == 1009

    def test_what_cannot_be_inflated_is_1002(self) -> None:
        websocket = opened(DEFLATE)
        take(websocket, marked_compressed(b"\xff\xff\xff"))
        assert close_code(websocket) == 1002

    def test_messages_before_a_fault_are_taken(self) -> None:
        websocket = opened()
        assert take(websocket, text(b"1") + text(b"2") + b"\x83\x80mask" + text(b"3")) == [b"1", b"2"]
        assert websocket.over is Over.FAILED


def by_the_library(stream: bytes) -> tuple[list[bytes | str], bytes]:
    """What the library alone makes of a stream: its messages, and the last frame that it sends of itself."""
    protocol = ServerProtocol(state=State.OPEN, max_size=BYTES_MAX)
    protocol.extensions = [PerMessageDeflate(False, True, 12, 15)]
    messages: list[bytes | str] = []
    parts: list[bytes] = []
    kind = None
    protocol.receive_data(stream)
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            continue
        kind = kind if event.opcode is Opcode.CONT else event.opcode
        parts.append(bytes(event.data))
        if event.fin:
            whole, parts = b"".join(parts), []
            messages.append("binary" if kind is Opcode.BINARY else whole)
    closes = [frame for frame in protocol.data_to_send() if frame.startswith(b"\x88")]
    return messages, closes[0] if closes else b""


FRAMES = st.sampled_from(
    [
        *(text(b"short"), text(b""), text(b"x" * 126), text(b"x" * 999), text(b"part", fin=False)),
        *(more(b"more"), more(b"", fin=False), more(b"end", fin=True), compressed(b"y" * 500), compressed(b"z" * 1001)),
        *(Frame(Opcode.PING, b"?").serialize(mask=True), Frame(Opcode.PONG, b"").serialize(mask=True)),
        *(Frame(Opcode.BINARY, b"b").serialize(mask=True), Frame(Opcode.CLOSE, b"").serialize(mask=True)),
        *(Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True), text(b"x" * 1001), b"\x81\x05plain", b"\x83\x80mask"),
        *(b"\x81", b"\x81\xfe", b"\x81\xff\x00", b"\xf1\x80mask"),
    ]
)


@settings(max_examples=300)
@given(st.data())
def test_any_stream_in_any_pieces_is_taken_as_the_library_alone_would(data: st.DataObject) -> None:
    damaged = bytearray(b"".join(data.draw(st.lists(st.one_of(FRAMES, st.binary(max_size=8)), max_size=8))))
    for _ in range(data.draw(st.integers(0, 2))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    stream = bytes(damaged)
    expected, closing = by_the_library(stream)
    websocket = opened(DEFLATE)
    ends = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True) if end > start]
    messages = ["binary" if isinstance(each, str) else each for each in take(websocket, *pieces)]
    if websocket.over is Over.FAILED and close_code(websocket) == 1007:
        # The library leaves it to its users what is UTF-8.
        assert messages == expected[: len(messages)]
        return
    assert messages == expected
    assert websocket.over is (None if not closing else websocket.over)
    assert (websocket.goodbye() if websocket.over else b"") == closing
