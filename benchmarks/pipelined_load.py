"""One Job Centre connection that keeps many requests in flight."""

from __future__ import annotations

import socket
import time
from collections import deque

from benchmarks.load import ANSWER_BYTES_MAX, STALL_SECONDS
from benchmarks.measurement import Samples
from benchmarks.processes import CpuMeter
from benchmarks.tongues import JobCentre, Step

REQUESTS_IN_FLIGHT = 300


class PipelinedLoad:
    """REQUESTS_IN_FLIGHT lifecycles on one connection, each sending its next request when its answer came.

    All answers that arrive together are answered with one write, as a pipelining client does.
    """

    def __init__(self, address: tuple[str, int], queue: str) -> None:
        self._tongue = JobCentre(queue)
        self._socket = socket.create_connection(address, timeout=STALL_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._awaited: deque[tuple[Step, float]] = deque()
        self._rest = b""
        self._samples = Samples()

    def run(self, warm_up_seconds: float, seconds: float, meter: CpuMeter) -> Samples:
        """Run; what happens in the first `warm_up_seconds` is not counted."""
        with self._socket:
            self._awaited.extend([(Step.PUT, time.perf_counter())] * REQUESTS_IN_FLIGHT)
            self._socket.sendall(self._tongue.put * REQUESTS_IN_FLIGHT)
            self._until(time.perf_counter() + warm_up_seconds)
            self._samples = samples = Samples()
            meter.start()
            started = time.perf_counter()
            self._until(started + seconds)
            samples.seconds = time.perf_counter() - started
            samples.cpu_seconds = meter.stop()
            samples.operations = len(samples.operation_latencies)
        return samples

    def _until(self, deadline: float) -> None:
        while (now := time.perf_counter()) < deadline:
            *answers, self._rest = (self._rest + self._socket.recv(ANSWER_BYTES_MAX)).split(b"\n")
            if answers:
                self._socket.sendall(b"".join([self._request_after(answer + b"\n", now) for answer in answers]))

    def _request_after(self, answer: bytes, now: float) -> bytes:
        step, sent = self._awaited.popleft()
        self._samples.operation_latencies.append(now - sent)
        tongue = self._tongue
        if step is Step.PUT:
            tongue.is_put(answer)
            self._awaited.append((Step.TAKE, now))
            return tongue.take
        if step is Step.TAKE:
            tongue.is_taken(answer)
            self._awaited.append((Step.DELETE, now))
            return tongue.delete(answer)
        tongue.is_deleted(answer)
        self._samples.lifecycles += 1
        self._awaited.append((Step.PUT, now))
        return tongue.put
