"""Closed loops over sockets, all in one thread on one epoll.

Every loop sends its next request when the answer before it is there. All loops run in
one thread, because the load generator shares the processors with what it measures and must cost little.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable, Iterable

from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.tongues import Tongue

ANSWER_BYTES_MAX = 65536
STALL_SECONDS = 20.0


class Loop:
    """One closed loop and its connection."""

    __slots__ = ("answer", "first", "go_on", "lifecycle_started", "put", "receive", "send", "sent", "socket", "tongue")

    def __init__(self, tongue: Tongue) -> None:
        self.tongue = tongue
        self.put = tongue.put
        talk = tongue.talk()
        first = next(talk)
        assert first is not None, "a talk begins with a request"
        self.first = first
        self.go_on = talk.send
        self.answer = b""
        self.sent = 0.0
        self.lifecycle_started = 0.0

    def take(self, opened: socket.socket) -> None:
        """From now on speak over this socket."""
        self.socket = opened
        self.receive = opened.recv
        self.send = opened.send


class Load:
    """Loops that keep their connections. `address` is a TCP host and port."""

    def __init__(self, address: tuple[str, int], tongues: Iterable[Tongue]) -> None:
        self._address = address
        self._loops = [Loop(tongue) for tongue in tongues]
        self._by_descriptor: dict[int, Loop] = {}
        self._epoll = select.epoll()
        self._samples = Samples()
        self._now = time.perf_counter

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run the loops; what happens in the first `warm_up_seconds` is not counted."""
        gc.collect()
        gc.disable()
        try:
            for loop in self._loops:
                self._open(loop)
            self._until(self._now() + warm_up_seconds)
            return self._measure(seconds, meter)
        finally:
            gc.enable()
            self._close()

    def _measure(self, seconds: float, meter: CpuMeter) -> Samples:
        self._samples = samples = Samples()
        meter.start()
        started = self._now()
        self._until(started + seconds)
        samples.seconds = self._now() - started
        samples.cpu_seconds = meter.stop()
        samples.operations = len(samples.operation_latencies)
        samples.lifecycles = len(samples.lifecycle_latencies)
        return samples

    def _until(self, deadline: float) -> None:
        poll, by_descriptor, on_readable, now = self._epoll.poll, self._by_descriptor, self._on_readable, self._now
        while now() < deadline:
            events = poll(STALL_SECONDS)
            if not events:
                raise TimeoutError(f"no answer from {self._address} for {STALL_SECONDS:.0f} s")
            for descriptor, _ in events:
                on_readable(by_descriptor[descriptor])

    def _open(self, loop: Loop) -> None:
        opened = socket.create_connection(self._address, timeout=STALL_SECONDS)
        loop.take(opened)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.tongue.greet(opened)
        opened.setblocking(False)
        self._by_descriptor[opened.fileno()] = loop
        self._epoll.register(opened.fileno(), select.EPOLLIN)
        loop.sent = loop.lifecycle_started = self._now()
        opened.send(loop.first)

    def _on_readable(self, loop: Loop) -> None:
        data = loop.receive(ANSWER_BYTES_MAX)
        if not data:
            raise ConnectionError(f"{self._address} closed a connection")
        request = loop.go_on(data)
        if request is not None:
            self._record(loop, request)
            # A request is small and the one before it is answered, so the socket's buffer has room for it.
            loop.send(request)

    def _record(self, loop: Loop, request: bytes) -> None:
        """The loop's request is answered, and the next is about to be sent."""
        now = self._now()
        self._samples.operation_latencies.append(now - loop.sent)
        loop.sent = now
        if request is loop.put:
            self._samples.lifecycle_latencies.append(now - loop.lifecycle_started)
            loop.lifecycle_started = now

    def _close(self) -> None:
        self._epoll.close()
        for loop in self._by_descriptor.values():
            loop.socket.close()


class ReconnectingLoad(Load):
    """Loops that open a connection for each request; the answer ends with the connection."""

    def _open(self, loop: Loop) -> None:
        loop.sent = loop.lifecycle_started = self._now()
        self._send(loop, loop.first)

    def _send(self, loop: Loop, request: bytes) -> None:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        loop.take(opened)
        # On loopback a connection is made within the call, so that sending at once works.
        opened.connect(self._address)
        opened.send(request)
        opened.setblocking(False)
        self._by_descriptor[opened.fileno()] = loop
        self._epoll.register(opened.fileno(), select.EPOLLIN)

    def _on_readable(self, loop: Loop) -> None:
        data = loop.receive(ANSWER_BYTES_MAX)
        if data:
            loop.answer += data
            return
        del self._by_descriptor[loop.socket.fileno()]
        loop.socket.close()
        answer, loop.answer = loop.answer, b""
        request = loop.go_on(answer)
        assert request is not None, "an answer that ends with its connection is whole"
        self._record(loop, request)
        self._send(loop, request)


def tongues_of(make: Callable[[str], Tongue], queue_prefix: str, loops: int, queues: int) -> list[Tongue]:
    """One tongue per loop, the loops spread evenly over `queues` queues."""
    shared = [make(f"{queue_prefix}-{index}") for index in range(queues)]
    return [shared[index % queues] for index in range(loops)]
