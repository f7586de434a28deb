"""How long after its durable reply an update reaches a SUB socket, at a given rate of updates."""

from __future__ import annotations

import gc
import select
import socket
import time

from benchmarks import zmtp
from benchmarks.key_value_tongues import key
from benchmarks.load import ANSWER_BYTES_MAX, STALL_SECONDS
from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.tongues import UnexpectedAnswerError

WRITERS = 50
_VALUE = b"x" * 50
_POLL_SECONDS = 0.001
_CREATE, _UPDATE = b"\x00", b"\x02"
_UPDATED = b"\x00"
_OK = zmtp.message(b"", b"\0")


class NotificationLoad:
    """WRITERS clients that update rows of `table` at `updates_per_s` in all, and one subscriber to it.

    Every row is new, so that its key tells the update. Of a notification that comes before its reply (their order is
    not promised) the latency is 0.
    """

    def __init__(
        self, requests: tuple[str, int], publications: tuple[str, int], table: str, updates_per_s: float
    ) -> None:
        self._requests = requests
        self._publications = publications
        self._table = table.encode()
        self._updates_per_s = updates_per_s
        self._epoll = select.epoll()
        self._writers: dict[int, socket.socket] = {}
        self._idle: list[socket.socket] = []
        self._key_of: dict[int, bytes] = {}
        self._replied_at: dict[bytes, float] = {}
        self._early: set[bytes] = set()
        self._rest = b""
        self._sent = 0
        self._latencies: list[float] = []

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run; what happens in the first `warm_up_seconds` is not counted."""
        gc.collect()
        gc.disable()
        try:
            self._open()
            self._update_for(warm_up_seconds)
            self._latencies = []
            samples = Samples()
            meter.start()
            started = time.perf_counter()
            self._update_for(seconds)
            samples.seconds = time.perf_counter() - started
            samples.cpu_seconds = meter.stop()
            samples.operation_latencies = self._latencies
            samples.operations = len(self._latencies)
            self._finish()
            return samples
        finally:
            gc.enable()
            self._close()

    def _open(self) -> None:
        for _ in range(WRITERS):
            writer = self._connect(self._requests, b"REQ")
            self._writers[writer.fileno()] = writer
            self._idle.append(writer)
        writer = self._idle[0]
        writer.sendall(zmtp.message(b"", _CREATE, self._table))
        _expect_ok(writer.recv(ANSWER_BYTES_MAX))
        self._subscriber = self._connect(self._publications, b"SUB")
        self._subscriber.sendall(zmtp.subscription(self._table))
        self._until_subscribed(writer)
        for opened in (*self._idle, self._subscriber):
            opened.setblocking(False)
            self._epoll.register(opened.fileno(), select.EPOLLIN)

    def _connect(self, address: tuple[str, int], socket_type: bytes) -> socket.socket:
        opened = socket.create_connection(address, timeout=STALL_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        zmtp.greet(opened, socket_type)
        return opened

    def _until_subscribed(self, writer: socket.socket) -> None:
        """Updates until one is heard: a subscription is not answered. All that are told are heard before the return."""
        deadline = time.perf_counter() + STALL_SECONDS
        heard = False
        while time.perf_counter() < deadline:
            if not heard:
                writer.sendall(zmtp.message(b"", _UPDATE, self._table, b"probe", _VALUE))
                _expect_ok(writer.recv(ANSWER_BYTES_MAX))
            if select.select([self._subscriber], [], [], 0.2)[0]:
                self._subscriber.recv(ANSWER_BYTES_MAX)
                heard = True
            elif heard:
                return
        raise TimeoutError(f"no notification for {STALL_SECONDS:.0f} s")

    def _update_for(self, seconds: float) -> None:
        started = now = time.perf_counter()
        due_before = self._sent
        while now < started + seconds:
            due = due_before + int((now - started) * self._updates_per_s) - self._sent
            for _ in range(min(due, len(self._idle))):
                self._update()
            self._poll(_POLL_SECONDS)
            now = time.perf_counter()

    def _update(self) -> None:
        row = key(self._sent)
        self._sent += 1
        writer = self._idle.pop()
        self._key_of[writer.fileno()] = row
        writer.send(zmtp.message(b"", _UPDATE, self._table, row, _VALUE))

    def _poll(self, timeout_seconds: float) -> bool:
        events = self._epoll.poll(timeout_seconds)
        for descriptor, _ in events:
            writer = self._writers.get(descriptor)
            if writer is None:
                self._on_notifications()
            else:
                self._on_reply(writer)
        return bool(events)

    def _on_reply(self, writer: socket.socket) -> None:
        _expect_ok(writer.recv(ANSWER_BYTES_MAX))
        row = self._key_of.pop(writer.fileno())
        self._idle.append(writer)
        if row in self._early:
            self._early.remove(row)
            self._latencies.append(0.0)
        else:
            self._replied_at[row] = time.perf_counter()

    def _on_notifications(self) -> None:
        data = self._subscriber.recv(ANSWER_BYTES_MAX)
        now = time.perf_counter()
        messages, self._rest = zmtp.parse(self._rest + data)
        for table, code, row in messages:
            if table != self._table or code != _UPDATED:
                raise UnexpectedAnswerError((table, code, row))
            replied_at = self._replied_at.pop(row, None)
            if replied_at is None:
                self._early.add(row)
            else:
                self._latencies.append(now - replied_at)

    def _finish(self) -> None:
        """Wait for what is under way; a notification that never comes ends the run, as one too many does."""
        while self._key_of or self._replied_at:
            if not self._poll(STALL_SECONDS):
                raise TimeoutError(f"{len(self._replied_at)} notifications did not come")
        if self._early:
            raise UnexpectedAnswerError(f"{len(self._early)} notifications came twice")

    def _close(self) -> None:
        self._epoll.close()
        for writer in self._writers.values():
            writer.close()
        if hasattr(self, "_subscriber"):
            self._subscriber.close()


def _expect_ok(answer: bytes) -> None:
    if answer != _OK:
        raise UnexpectedAnswerError(answer)
