"""WebSocket (RFC 6455) as a framing: the opening handshake, text messages, control frames, the closing handshake.

The `websockets` library's sans-I/O `ServerProtocol` decides everything but the one case that every hot message is: an
unfragmented, uncompressed text frame. That is read and written here, in a tenth of the time. So that both can
take turns, the library is given whole frames only, or the head of one that fails by its head.

Compressed messages (permessage-deflate) are understood and never sent: RFC 7692 leaves that to the sender.
"""

from __future__ import annotations

import http
import logging
import struct
from typing import Final

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from quintet_adapters.protocols.framing import Framing, Over, Unfit
from quintet_adapters.protocols.payload import is_utf8

try:
    from websockets.speedups import apply_mask
except ImportError:  # no wheel for this machine
    from websockets.utils import apply_mask

_HEAD_BYTES_MAX: Final = 32 * 1024
_HEAD_END: Final = b"\r\n\r\n"
_WHOLE_TEXT: Final = 0x81
_MASKED: Final = 0x80
_OPCODES: Final = frozenset(Opcode)
_DEFLATE: Final = (
    # Nothing is compressed here, so there is no context to keep. Clients keep theirs within 4 KiB where they can.
    ServerPerMessageDeflateFactory(server_no_context_takeover=True, client_max_window_bits=12),
)
_SHORT_FRAME_BYTES: Final = 6 + 126
_GREETING: Final = "Quintet speaks Etzel by WebSocket at {path}\n"

# The library logs messages when debugging, which are nobody's business.
_log = logging.getLogger("websockets.server")
_log.setLevel(logging.WARNING)


class WebSocket(Framing):
    """One connection of a client. Messages may have `message_bytes_max`, at least 126."""

    def __init__(self, path: str, message_bytes_max: int) -> None:
        super().__init__()
        self._paths = (path, path + "/") if path != "/" else (path,)
        self._bytes_max = message_bytes_max
        self._protocol = ServerProtocol(extensions=_DEFLATE, max_size=message_bytes_max, logger=_log)
        self._data = b""
        self._position = 0
        self._partial = bytearray()
        """The beginning of the opening handshake, or of a frame of which `_missing` bytes are to come."""
        self._missing = 0
        self._doomed = False
        """The frame at hand is not whole: its head is out of order."""
        self._at_frame = False
        """The opening handshake is done, and what comes next is the head of a frame, not within one."""
        self._kind: Opcode | None = None
        """Of the message whose fragments are coming."""
        self._fragments = bytearray()
        self._goodbye = b""

    @property
    def is_open(self) -> bool:
        """The opening handshake is done, the closing one has not begun."""
        return self._protocol.state is State.OPEN and self.over is None

    @property
    def waiting_bytes(self) -> int:
        return len(self._data) - self._position

    def feed(self, data: bytes) -> None:
        if self._position < len(self._data):
            data = self._data[self._position :] + data
        self._data, self._position = data, 0

    def next_message(self) -> bytes | Unfit | None:
        if self.over is not None or (self._protocol.state is State.CONNECTING and not self._shake_hands()):
            return None
        while (frame := self._next_frame()) is not None:
            if frame[0] == _WHOLE_TEXT and self._kind is None and not self._doomed:
                message: bytes | Unfit | None = self._unmask(frame)
            else:
                message = self._decide(frame)
            if message is not None or self.over is not None:
                return message
        return None

    def sole_message(self, data: bytes) -> bytes | None:
        if (
            len(data) > 6
            and data[0] == _WHOLE_TEXT
            and len(data) == (data[1] ^ _MASKED) + 6 < _SHORT_FRAME_BYTES
            and self._at_frame
            and self._position >= len(self._data)
        ):
            text = apply_mask(data[6:], data[2:6])
            return text if text.isascii() and self._kind is None else None
        return None

    def write(self, answer: bytes, output: list[bytes]) -> None:
        size = len(answer)
        if size < 126:
            output.append(b"\x81%c%b" % (size, answer))
        elif size < 65536:
            output.append(struct.pack("!BBH", _WHOLE_TEXT, 126, size) + answer)
        else:
            output.append(struct.pack("!BBQ", _WHOLE_TEXT, 127, size) + answer)

    def fit(self, source: bytes) -> bytes:
        return source

    def clear(self) -> None:
        self._data, self._position, self._partial, self._missing = b"", 0, bytearray(), 0
        self._fragments, self._kind = bytearray(), None
        self._at_frame = False

    def goodbye(self) -> bytes:
        if self.is_open:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._goodbye = self._written()
        return self._goodbye

    # Frames.

    def _next_frame(self) -> bytes | None:
        """The next whole frame, or the head of one that can only fail."""
        if self._missing:
            return self._go_on_with_frame()
        data, start = self._data, self._position
        available = len(data) - start
        if available < 2:
            return None
        if not data[start + 1] & _MASKED or data[start] & 0x0F not in _OPCODES:
            return self._doom()
        length = data[start + 1] & 0x7F
        size = 6 + length
        if length > 125:
            head_bytes = 4 if length == 126 else 10
            if available < head_bytes:
                return None
            length = int.from_bytes(data[start + 2 : start + head_bytes], "big")
            size = head_bytes + 4 + length
            if length > self._bytes_max:
                return self._doom()
        if size > available:
            self._partial = bytearray(memoryview(data)[start:])
            self._missing = size - available
            self._position = len(data)
            self._at_frame = False
            return None
        self._position = start + size
        return data[start : start + size]

    def _doom(self) -> bytes:
        self._doomed = True
        frame, self._position = self._data[self._position :], len(self._data)
        return frame

    def _go_on_with_frame(self) -> bytes | None:
        part = memoryview(self._data)[self._position : self._position + self._missing]
        self._partial += part
        self._position += len(part)
        self._missing -= len(part)
        if self._missing:
            return None
        frame, self._partial = bytes(self._partial), bytearray()
        self._at_frame = True
        return frame

    def _unmask(self, frame: bytes) -> bytes | None:
        """The text of an unfragmented, uncompressed frame."""
        length = frame[1] & 0x7F
        start = 6 if length < 126 else 8 if length == 126 else 14
        text = apply_mask(frame[start:], frame[start - 4 : start])
        if text.isascii() or is_utf8(text):
            return text
        self._refuse_text()
        return None

    def _refuse_text(self) -> None:
        self._protocol.fail(CloseCode.INVALID_DATA, "not UTF-8")
        self._fail()

    def _decide(self, frame: bytes) -> bytes | Unfit | None:
        """Lets the library look at a frame; the message that it completes, if any."""
        self._protocol.receive_data(frame)
        message: bytes | Unfit | None = None
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                message = self._take(event)
        if self._protocol.parser_exc is not None:
            self._fail()
            return None
        if self._protocol.close_rcvd is not None:
            self._goodbye = self._written()
            self.over = Over.LEFT
            self.clear()
        elif reply := self._written():
            self.replies.append(reply)
        return message

    def _take(self, frame: Frame) -> bytes | Unfit | None:
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self._kind = frame.opcode
        elif frame.opcode is not Opcode.CONT:
            return None
        self._fragments += frame.data
        if not frame.fin:
            return None
        kind, message = self._kind, bytes(self._fragments)
        self._kind, self._fragments = None, bytearray()
        if kind is Opcode.BINARY:
            return Unfit("a binary frame: requests are text frames")
        if not is_utf8(message):
            self._refuse_text()
            return None
        return message

    def _fail(self) -> None:
        self.over = Over.FAILED
        self._goodbye = self._written()
        self.clear()

    def _written(self) -> bytes:
        return b"".join(self._protocol.data_to_send())

    # The opening handshake.

    def _shake_hands(self) -> bool:
        """Whether messages may follow."""
        searched = max(0, len(self._partial) - len(_HEAD_END) + 1)
        self._partial += memoryview(self._data)[self._position :]
        self._data, self._position = b"", 0
        end = self._partial.find(_HEAD_END, searched)
        if end < 0:
            if len(self._partial) > _HEAD_BYTES_MAX:
                self._refuse(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's head is too large.\n")
            return False
        end += len(_HEAD_END)
        head, self._data = self._partial[:end], bytes(memoryview(self._partial)[end:])
        self._partial = bytearray()
        self._protocol.receive_data(head)
        request = next((event for event in self._protocol.events_received() if isinstance(event, Request)), None)
        if request is None:
            self._refuse(http.HTTPStatus.BAD_REQUEST, "This is no request for a WebSocket.\n")
            return False
        self._answer(request)
        return self.over is None

    def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        wants_upgrade = "Upgrade" in request.headers
        if path in self._paths and (wants_upgrade or path != "/"):
            self._respond(self._protocol.accept(request))
        elif path != "/":
            self._respond(self._protocol.reject(http.HTTPStatus.NOT_FOUND, f"There is only {self._paths[0]}\n"))
        elif request.method in ("GET", "HEAD"):
            response = self._protocol.reject(http.HTTPStatus.OK, _GREETING.format(path=self._paths[0]))
            if request.method == "HEAD":
                response.body = b""
            self._respond(response)
        else:
            self._respond(self._protocol.reject(http.HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD.\n"))

    def _respond(self, response: Response) -> None:
        self._protocol.send_response(response)
        if response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS:
            self.replies.append(self._written())
            self._at_frame = True
        else:
            self._fail()

    def _refuse(self, status: http.HTTPStatus, text: str) -> None:
        """Answers what the library would not, or has not, read as a request."""
        answered = self._written()
        self._goodbye = answered or self._protocol.reject(status, text).serialize()
        self.over = Over.FAILED
        self.clear()
