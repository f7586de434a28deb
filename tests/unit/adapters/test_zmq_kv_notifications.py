"""When the watch behind ZeroMQ's notifications runs, and who is let in meanwhile. Only the watch is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import zmq
from prometheus_client import CollectorRegistry
from quintet.v1 import event_pb2
from quintet.v1.table_service_pb2 import WatchRowsResponse
from quintet_adapters.metrics import ZmqKvMetrics
from quintet_adapters.transports.zeromq import notifications as module
from quintet_adapters.transports.zeromq.notifications import Notifications
from quintet_client.errors import OffsetTrimmedError

Step = WatchRowsResponse | Exception


class ScriptedWatch:
    """Tells what `script` has, then waits; each exception in it ends one call of `responses`."""

    def __init__(self, script: list[Step]) -> None:
        self.script = script
        self.stands = False
        self.closed = asyncio.Event()

    async def responses(self) -> AsyncIterator[WatchRowsResponse]:
        while self.script:
            step = self.script.pop(0)
            if isinstance(step, Exception):
                self.stands = False
                raise step
            self.stands = True
            yield step
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed.set()


def told(*keys: bytes) -> WatchRowsResponse:
    kind = event_pb2.EVENT_KIND_ROW_PUT
    return WatchRowsResponse(changes=[event_pb2.Event(kind=kind, table="t", key=key) for key in keys])


@pytest.fixture
def publisher() -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened = context.socket(zmq.PUB)
    opened.bind("inproc://notifications")
    yield opened
    context.destroy(linger=0)


@pytest.fixture
def metrics() -> ZmqKvMetrics:
    return ZmqKvMetrics(CollectorRegistry())


async def opened(notifications: Notifications) -> None:
    """Returns when clients may come in."""
    is_open = asyncio.Event()
    notifications.call_when_open(is_open.set)
    await asyncio.wait_for(is_open.wait(), 30)


async def test_nothing_is_watched_until_somebody_comes(publisher: zmq.Socket[bytes], metrics: ZmqKvMetrics) -> None:
    made: list[ScriptedWatch] = []

    def new_watch() -> ScriptedWatch:
        made.append(ScriptedWatch([told()]))
        return made[-1]

    notifications = Notifications(metrics, publisher, new_watch, 10)
    notifications.start()
    await asyncio.sleep(0)
    assert made == []
    await opened(notifications)
    await opened(notifications)
    assert len(made) == 1
    await notifications.close()
    assert made[0].closed.is_set()


async def test_the_watch_ends_when_the_last_has_gone_and_begins_anew(
    publisher: zmq.Socket[bytes], metrics: ZmqKvMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.0)
    made: list[ScriptedWatch] = []

    def new_watch() -> ScriptedWatch:
        made.append(ScriptedWatch([told()]))
        return made[-1]

    notifications = Notifications(metrics, publisher, new_watch, 10)
    notifications.start()
    notifications.count_subscribers(1)
    await opened(notifications)
    notifications.count_subscribers(0)
    await asyncio.wait_for(made[0].closed.wait(), 30)
    await opened(notifications)
    assert len(made) == 2
    await notifications.close()


@pytest.mark.parametrize(
    ("fault", "gaps"), [(OffsetTrimmedError("trimmed"), 1), (OSError("no token"), 0), (ValueError("ours"), 0)]
)
async def test_faults_of_the_watch_are_survived(
    publisher: zmq.Socket[bytes],
    metrics: ZmqKvMetrics,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    gaps: int,
) -> None:
    monkeypatch.setattr(module, "_TRY_AGAIN_S", 0.0)
    subscriber = publisher.context.socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.setsockopt(zmq.RCVTIMEO, 30_000)
    subscriber.connect("inproc://notifications")
    watch = ScriptedWatch([told(), told(b"1"), fault, told(b"2", b"3"), told()])
    notifications = Notifications(metrics, publisher, lambda: watch, 10)
    notifications.start()
    await opened(notifications)
    while watch.script:
        await asyncio.sleep(0)
    assert [subscriber.recv_multipart()[2] for _ in range(3)] == [b"1", b"2", b"3"]
    assert (metrics.published.count, metrics.gaps.count) == (3, gaps)
    await notifications.close()


async def test_a_watch_that_cannot_be_made_is_tried_again(
    publisher: zmq.Socket[bytes], metrics: ZmqKvMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRY_AGAIN_S", 0.0)
    attempts: list[Callable[[], ScriptedWatch]] = [fail, fail, lambda: ScriptedWatch([told()])]
    notifications = Notifications(metrics, publisher, lambda: attempts.pop(0)(), 10)
    notifications.start()
    await opened(notifications)
    assert attempts == []
    await notifications.close()


def fail() -> ScriptedWatch:
    raise OSError("the token's file is not there")
