"""What becomes of ZeroMQ clients that do not read, that go; of everybody when the core, Redis or the adapter goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import zmq

from tests.support.stack import AdapterPart, Stack, until
from tests.support.zmq_kv import ERROR, GET, OK, UPDATE, DealerClient, ReqClient, requests_of

TABLE = b"t"
VALUE = b"v" * 1024
UNREAD_MS = 1500
AWAY = {b"unavailable, try again", b"the store does not write to disk", b"shutting down, try again"}


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Whose parts these tests may kill or freeze."""
    with Stack(QUINTET_SESSION_TTL_MS="1500") as stack:
        yield stack


@pytest.fixture
def adapter(own_stack: Stack) -> Iterator[AdapterPart]:
    part = own_stack.further_adapter("zmq-kv")
    yield from served(part)


@pytest.fixture
def narrow(own_stack: Stack) -> Iterator[AdapterPart]:
    """Keeps little for clients that do not read, and not for long."""
    part = own_stack.further_adapter(
        "zmq-kv", QUINTET_UNREAD_BYTES_MAX=str(1024 * 1024), QUINTET_UNREAD_MS=str(UNREAD_MS)
    )
    yield from served(part)


def served(part: AdapterPart) -> Iterator[AdapterPart]:
    part.start()
    with ReqClient(requests_of(part)) as client:
        client.create_table(TABLE)
        assert client.update(TABLE, b"k", VALUE) == [OK]
    yield part
    part.kill9()


def works(adapter: AdapterPart) -> bool:
    with ReqClient(requests_of(adapter)) as client:
        return client.update(TABLE, b"works", b"1") == [OK] and client.get(TABLE, b"works") == [OK, b"1"]


def recovers(adapter: AdapterPart) -> None:
    """One client, asking again and again, gets errors of the one kind until it gets answers again."""
    with ReqClient(requests_of(adapter)) as client:

        def answered() -> bool:
            status, *reason = client.get(TABLE, b"k")
            assert status == OK or reason[0] in AWAY
            return status == OK

        until(answered, "the adapter to recover")


def requests_answered(adapter: AdapterPart) -> float:
    return sum(count for name, count in adapter.metrics().items() if name.startswith("quintet_adapter_requests_total"))


SLOW: dict[int, int | bytes] = {zmq.RCVHWM: 1, zmq.RCVBUF: 4096, zmq.SNDHWM: 0}


class TestClientsThatDoNotRead:
    def test_get_every_reply_when_they_do_and_keep_nobody_waiting(self, adapter: AdapterPart) -> None:
        count = 20_000
        with DealerClient(requests_of(adapter), SLOW) as lazy, ReqClient(requests_of(adapter)) as other:
            lazy.pipeline([[GET, TABLE, b"k"]] * count)
            while requests_answered(adapter) < count:
                assert other.get(TABLE, b"k") == [OK, VALUE]
            assert all(reply == [OK, VALUE] for reply in lazy.read_replies(count))
            assert lazy.is_silent()
        assert adapter.metrics()["quintet_zmq_kv_replies_undeliverable_total"] == 0

    def test_hold_up_requests_when_too_much_is_kept_but_lose_nothing_by_it(self, own_stack: Stack) -> None:
        adapter = own_stack.further_adapter("zmq-kv", QUINTET_UNREAD_BYTES_MAX="100000", QUINTET_UNREAD_MS="600000")
        for _ in served(adapter):
            count = 20_000
            with DealerClient(requests_of(adapter), SLOW) as lazy:
                lazy.pipeline([[GET, TABLE, b"k"]] * count)
                until(lambda: is_still(adapter), "the adapter to read no more")
                assert requests_answered(adapter) < count
                assert all(reply == [OK, VALUE] for reply in lazy.read_replies(count))
                assert lazy.is_silent()
            assert works(adapter)

    def test_lose_what_is_kept_for_them_in_the_end_and_are_served_again_when_they_read(
        self, narrow: AdapterPart
    ) -> None:
        count = 30_000
        with DealerClient(requests_of(narrow), SLOW) as lazy, ReqClient(requests_of(narrow)) as other:
            lazy.pipeline([[GET, TABLE, b"k"]] * count)
            until(lambda: undeliverable(narrow) > 0, "what is kept to be dropped")
            for _ in range(10):
                assert other.get(TABLE, b"k") == [OK, VALUE]
            until(lambda: requests_answered(narrow) >= count, "all requests to be read")
            read = 0
            while not lazy.is_silent():
                assert lazy.read() == [b"", OK, VALUE]
                read += 1
            assert 0 < read < count
            lazy.pipeline([[GET, TABLE, b"none"]])
            assert lazy.read_replies(1) == [[ERROR, b"no such row"]]
        assert "replies_dropped" in narrow.log.read_text()


def undeliverable(adapter: AdapterPart) -> float:
    return adapter.metrics()["quintet_zmq_kv_replies_undeliverable_total"]


def is_still(adapter: AdapterPart) -> bool:
    """Whether it answers nobody, with requests waiting to be read."""
    before = requests_answered(adapter)
    with DealerClient(requests_of(adapter)) as further:
        further.pipeline([[b"\x09"]])
        return further.is_silent(200) and requests_answered(adapter) == before


class TestClientsThatGo:
    def test_leave_nothing_behind(self, adapter: AdapterPart) -> None:
        for _ in range(20):
            with DealerClient(requests_of(adapter)) as hasty:
                hasty.pipeline([[UPDATE, TABLE, b"gone", b"%d" % number] for number in range(500)])
        assert works(adapter)
        until(lambda: adapter.metrics()["quintet_adapter_connections"] == 0, "every connection to be gone")
        until(lambda: adapter.metrics()["quintet_adapter_operations_in_flight"] == 0, "every operation to be over")
        assert "Traceback" not in adapter.log.read_text()

    def test_by_the_thousand_are_forgotten(self, own_stack: Stack) -> None:
        adapter = own_stack.further_adapter("zmq-kv", QUINTET_CONNECTIONS_MAX="10")
        for _ in served(adapter):
            for _ in range(60):
                assert works(adapter)


class TestTheWorld:
    def test_away_is_an_error_and_back_is_served(self, own_stack: Stack, adapter: AdapterPart) -> None:
        own_stack.core.kill9()
        with ReqClient(requests_of(adapter)) as client:
            for frames in ([UPDATE, TABLE, b"k", VALUE], [GET, TABLE, b"k"], [b"\x00", b"new"], [b"\x01", b"new"]):
                assert client.ask(*frames) == [ERROR, b"unavailable, try again"]
            assert client.ask(GET) == [ERROR, b"wrong number of frames"]
        assert adapter.readiness() == (503, "the core cannot be reached")
        own_stack.core.start()
        recovers(adapter)
        assert works(adapter)

    def test_without_redis_is_an_error(self, own_stack: Stack, adapter: AdapterPart) -> None:
        own_stack.redis.kill9()
        with ReqClient(requests_of(adapter)) as client:
            status, reason = client.update(TABLE, b"k", VALUE)
            assert status == ERROR
            assert reason in AWAY
        own_stack.redis.start()
        recovers(adapter)
        assert works(adapter)

    def test_that_goes_while_requests_are_under_way_answers_each_once(
        self, own_stack: Stack, adapter: AdapterPart
    ) -> None:
        count = 3000
        with DealerClient(requests_of(adapter)) as dealer:
            with own_stack.redis.frozen():
                dealer.pipeline([UPDATE, TABLE, b"k-%d" % number, VALUE] for number in range(count))
                until(lambda: adapter.metrics()["quintet_adapter_operations_in_flight"] > 0, "requests to be under way")
                own_stack.core.kill9()
            own_stack.core.start()
            replies = dealer.read_replies(count)
            assert dealer.is_silent()
        assert {reply[0] for reply in replies} <= {OK, ERROR}
        assert {reply[1] for reply in replies if reply[0] == ERROR} <= AWAY
        recovers(adapter)

    def test_not_there_yet_is_waited_for(self) -> None:
        with Stack() as stack:
            adapter = stack.further_adapter("zmq-kv")
            adapter.start()
            stack.core.kill9()
            adapter.kill9()
            adapter.start(wait=False)
            # Not ready, so it has no ready file; its ports are the ones it had.
            with ReqClient(requests_of(adapter)) as client:
                assert client.create_table(TABLE) == [ERROR, b"unavailable, try again"]
                stack.core.start()
                adapter.wait_ready()
                assert client.create_table(TABLE) == [OK]


class TestTheEnd:
    def test_requests_under_way_are_answered(self, own_stack: Stack, adapter: AdapterPart) -> None:
        with DealerClient(requests_of(adapter)) as dealer:
            with own_stack.redis.frozen():
                dealer.pipeline([UPDATE, TABLE, b"last-%d" % number, b"v"] for number in range(100))
                until(
                    lambda: adapter.metrics()["quintet_adapter_operations_in_flight"] >= 100, "requests to be under way"
                )
                os.kill(adapter.pid, signal.SIGTERM)
            assert dealer.read_replies(100) == [[OK]] * 100
        until(lambda: not adapter.is_running, "the process to end")
        assert '"finished":true' in adapter.log.read_text()

    def test_replies_that_nobody_reads_do_not_keep_the_process(self, own_stack: Stack) -> None:
        adapter = own_stack.further_adapter("zmq-kv", QUINTET_GRACE_MS="500", QUINTET_CLOSE_MS="200")
        for _ in served(adapter):
            with DealerClient(requests_of(adapter), SLOW) as lazy:
                lazy.pipeline([[GET, TABLE, b"k"]] * 20_000)
                until(lambda: requests_answered(adapter) >= 20_000, "all requests to be answered")
                assert adapter.terminate() == 0

    def test_load_does_not_keep_the_process(self, adapter: AdapterPart) -> None:
        with DealerClient(requests_of(adapter)) as dealer:
            dealer.pipeline([[GET, TABLE, b"k"]] * 100)
            os.kill(adapter.pid, signal.SIGTERM)
            while adapter.is_running:
                dealer.pipeline([[GET, TABLE, b"k"]] * 10)
        assert '"finished":true' in adapter.log.read_text()
