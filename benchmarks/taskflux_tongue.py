"""TaskFlux: lifecycles of four round trips, each change with its acknowledgement."""

from __future__ import annotations

import socket
import struct

from benchmarks.tongues import GREETING_BYTES_MAX, PAYLOAD_BYTES, Talk, UnexpectedAnswerError

_AUTHORIZATION = b"AN"
_BOOTSTRAP = b"B" + struct.pack(">iii", 1, 0, 0)
_ACKNOWLEDGE = b"Q"
_OK = b"k"
_KEY = struct.pack(">q", 100)
_PAYLOAD = b"x" * PAYLOAD_BYTES
_RECORD = b"cd\x01" + _KEY + struct.pack(">i", PAYLOAD_BYTES) + _PAYLOAD
_NO_LIMITS = struct.pack(">iii", 1, -1, -1) + b"\0"


class TaskFlux:
    """Enqueue, its Ack, dequeue, its Ack."""

    def __init__(self, queue: str) -> None:
        name = bytes([len(queue)]) + queue.encode()
        self._create = b"CQ" + name + _NO_LIMITS
        self.put = b"CE" + name + _KEY + struct.pack(">i", PAYLOAD_BYTES) + _PAYLOAD
        self._dequeue = b"CD" + name + struct.pack(">I", 0)

    def greet(self, opened: socket.socket) -> None:
        """Hand-shake, and make the queue unless another connection has (its answer says which)."""
        for request, wanted in ((_AUTHORIZATION, b"a\x01"), (_BOOTSTRAP, b"b\x01"), (self._create, b"")):
            opened.sendall(request)
            answer = opened.recv(GREETING_BYTES_MAX)
            if wanted not in answer:
                raise UnexpectedAnswerError(answer)

    def talk(self) -> Talk:
        """Lifecycles without end."""
        while True:
            for request in (self.put, _ACKNOWLEDGE):
                answer = yield request
                if answer != _OK:
                    raise UnexpectedAnswerError(answer)
            answer = yield self._dequeue
            # All records are alike: the answer is whole when it has their length, or it is none.
            while answer != _RECORD:
                if not _RECORD.startswith(answer):
                    raise UnexpectedAnswerError(answer)
                answer += yield None
            answer = yield _ACKNOWLEDGE
            if answer != _OK:
                raise UnexpectedAnswerError(answer)
