"""Notifications of the ZeroMQ key-value adapter on the wire: plain SUB sockets, whoever makes the change."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
import zmq
from quintet.v1 import table_service_pb2 as api
from quintet.v1.event_service_pb2 import ListPartitionsRequest
from quintet.v1.event_service_pb2_grpc import EventServiceStub
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from tests.support.stack import AdapterPart, Stack, until
from tests.support.zmq_kv import (
    CREATE_TABLE,
    DELETE,
    DELETE_TABLE,
    DELETED,
    ERROR,
    OK,
    UPDATE,
    UPDATED,
    DealerClient,
    ReqClient,
    SubClient,
    notifications_of,
    requests_of,
    ttl,
)

_tables = itertools.count(1)


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Whose parts these tests may kill or freeze."""
    with Stack(QUINTET_SESSION_TTL_MS="1500") as stack:
        yield stack


@pytest.fixture(scope="module")
def adapter(own_stack: Stack) -> Iterator[AdapterPart]:
    part = own_stack.further_adapter("zmq-kv")
    part.start()
    yield part
    part.kill9()


@pytest.fixture
def client(adapter: AdapterPart) -> Iterator[ReqClient]:
    with ReqClient(requests_of(adapter)) as opened:
        yield opened


@pytest.fixture
def table(client: ReqClient) -> bytes:
    """A table that no other test uses, and no other's name begins with."""
    name = b"table-%d." % next(_tables)
    assert client.create_table(name) == [OK]
    return name


@pytest.fixture
def subscriber(adapter: AdapterPart, table: bytes) -> Iterator[SubClient]:
    """Hears of that table."""
    with SubClient(notifications_of(adapter), table) as opened:
        yield opened


@contextmanager
def rows_of(stack: Stack) -> Iterator[TableServiceStub]:
    """The core's tables by gRPC."""
    with grpc.insecure_channel(stack.core.target) as channel:
        yield TableServiceStub(channel)


class TestChanges:
    def test_of_rows_are_told_in_order(self, client: ReqClient, subscriber: SubClient, table: bytes) -> None:
        client.update(table, b"a", b"1")
        client.update(table, b"b", b"1")
        client.update(table, b"a", b"2")
        client.delete(table, b"a")
        client.update(table + b"\x00", b"\x00\xff", b"")
        assert subscriber.hear(5) == [
            (table, UPDATED, b"a"),
            (table, UPDATED, b"b"),
            (table, UPDATED, b"a"),
            (table, DELETED, b"a"),
            (table, UPDATED, b"\x00\xff"),
        ]
        assert subscriber.is_silent()

    def test_that_did_not_happen_are_not_told(self, client: ReqClient, subscriber: SubClient, table: bytes) -> None:
        assert client.delete(table, b"none")[0] == ERROR
        assert client.get(table, b"none")[0] == ERROR
        assert client.update(table, b"k" * 65, b"v")[0] == ERROR
        assert client.create_table(table)[0] == ERROR
        assert subscriber.is_silent()

    def test_are_told_of_the_shortest_and_the_longest_names_and_keys(
        self, adapter: AdapterPart, client: ReqClient
    ) -> None:
        for name, key in ((b"~", b""), (b"\xd1\x8f" * 127, b"\xff" * 64)):
            with SubClient(notifications_of(adapter), name) as subscriber:
                client.create_table(name)
                client.update(name, key, b"v")
                assert subscriber.hear(1) == [(name, UPDATED, key)]

    def test_of_thousands_of_pipelined_updates_are_all_told_in_order(
        self, adapter: AdapterPart, subscriber: SubClient, table: bytes
    ) -> None:
        count = 5000
        with DealerClient(requests_of(adapter)) as dealer:
            dealer.pipeline([UPDATE, table, b"%d" % number, b"v"] for number in range(count))
            assert dealer.read_replies(count) == [[OK]] * count
        assert subscriber.hear(count) == [(table, UPDATED, b"%d" % number) for number in range(count)]

    def test_are_told_to_many_subscribers(self, adapter: AdapterPart, client: ReqClient, table: bytes) -> None:
        subscribers = [SubClient(notifications_of(adapter), table) for _ in range(30)]
        client.update(table, b"k", b"v")
        assert [subscriber.hear(1) for subscriber in subscribers] == [[(table, UPDATED, b"k")]] * 30
        for subscriber in subscribers:
            subscriber.close()

    def test_of_other_tables_are_told_to_who_wants_them(self, adapter: AdapterPart, client: ReqClient) -> None:
        """A filter matches prefixes; a client that wants one table compares the frame."""
        for name in (b"prefix", b"prefixed"):
            client.create_table(name)
        with (
            SubClient(notifications_of(adapter), b"prefix") as both,
            SubClient(notifications_of(adapter), b"prefixed") as one,
        ):
            client.update(b"prefix", b"k", b"v")
            client.update(b"prefixed", b"k", b"v")
            assert sorted(both.hear(2)) == [(b"prefix", UPDATED, b"k"), (b"prefixed", UPDATED, b"k")]
            assert one.hear(1) == [(b"prefixed", UPDATED, b"k")]
            assert one.is_silent()


class TestExpiries:
    def test_are_told(self, client: ReqClient, subscriber: SubClient, table: bytes) -> None:
        client.update(table, b"k", b"v", ttl_seconds=1)
        assert subscriber.hear(2) == [(table, UPDATED, b"k"), (table, DELETED, b"k")]
        assert subscriber.is_silent()

    def test_are_told_within_a_second(
        self, own_stack: Stack, client: ReqClient, subscriber: SubClient, table: bytes
    ) -> None:
        """By the core's clock: the next write to the partition, made when the notice comes, is within a second."""
        client.update(table, b"k", b"v", ttl_seconds=3)
        with rows_of(own_stack) as rows:
            row = rows.GetRow(api.GetRowRequest(table=table.decode(), key=b"k")).row
            subscriber.hear(2)
            client.update(table, b"later", b"v", ttl_seconds=1)
            later = rows.GetRow(api.GetRowRequest(table=table.decode(), key=b"later")).row
        assert later.expires_at_ms - 1000 - row.expires_at_ms <= 1000

    def test_precede_an_update_past_the_deadline(
        self, own_stack: Stack, adapter: AdapterPart, client: ReqClient, subscriber: SubClient, table: bytes
    ) -> None:
        client.update(table, b"k", b"v", ttl_seconds=1)
        assert subscriber.hear(1) == [(table, UPDATED, b"k")]
        while client.get(table, b"k")[0] == OK:
            pass
        client.update(table, b"k", b"w")
        assert subscriber.hear(2) == [(table, DELETED, b"k"), (table, UPDATED, b"k")]
        assert subscriber.is_silent()


class TestDeletedTables:
    def test_tell_of_every_row_before_anything_of_a_later_table(
        self, adapter: AdapterPart, subscriber: SubClient, table: bytes
    ) -> None:
        count = 3000
        with DealerClient(requests_of(adapter)) as dealer:
            dealer.pipeline([UPDATE, table, b"%d" % number, b"v"] for number in range(count))
            dealer.pipeline([[DELETE_TABLE, table], [CREATE_TABLE, table], [UPDATE, table, b"new", b"v"]])
            assert dealer.read_replies(count + 3) == [[OK]] * (count + 3)
        assert subscriber.hear(count) == [(table, UPDATED, b"%d" % number) for number in range(count)]
        gone = subscriber.hear(count)
        assert sorted(gone) == sorted((table, DELETED, b"%d" % number) for number in range(count))
        assert subscriber.hear(1) == [(table, UPDATED, b"new")]
        assert subscriber.is_silent()

    def test_tell_nothing_twice_of_rows_that_went_before(
        self, client: ReqClient, subscriber: SubClient, table: bytes
    ) -> None:
        client.update(table, b"a", b"v")
        client.update(table, b"b", b"v")
        client.delete(table, b"a")
        client.delete_table(table)
        assert subscriber.hear(4) == [
            (table, UPDATED, b"a"),
            (table, UPDATED, b"b"),
            (table, DELETED, b"a"),
            (table, DELETED, b"b"),
        ]
        assert subscriber.is_silent()


class TestOthersChanges:
    def test_by_grpc_are_told(self, own_stack: Stack, subscriber: SubClient, table: bytes) -> None:
        name = table.decode()
        with rows_of(own_stack) as rows:
            rows.PutRow(api.PutRowRequest(table=name, key=b"k", value=b"x" * 5000))
            rows.WriteRows(
                api.WriteRowsRequest(
                    table=name,
                    writes=[
                        api.RowWrite(put=api.RowPut(key=b"a", value=b"v")),
                        api.RowWrite(delete=api.RowDelete(key=b"k")),
                    ],
                )
            )
        assert subscriber.hear(3) == [(table, UPDATED, b"k"), (table, UPDATED, b"a"), (table, DELETED, b"k")]

    def test_through_another_adapter_and_another_core_are_told(
        self, own_stack: Stack, subscriber: SubClient, table: bytes
    ) -> None:
        other_core = own_stack.second_core()
        other_core.start()
        other = own_stack.further_adapter("zmq-kv", other_core)
        other.start()
        with ReqClient(requests_of(other)) as elsewhere:
            for number in range(100):
                assert elsewhere.update(table, b"%d" % number, b"v") == [OK]
        assert subscriber.hear(100) == [(table, UPDATED, b"%d" % number) for number in range(100)]
        other.kill9()
        other_core.kill9()

    def test_that_this_protocol_cannot_write_are_not_told(
        self, own_stack: Stack, adapter: AdapterPart, client: ReqClient, table: bytes
    ) -> None:
        with SubClient(notifications_of(adapter), b"") as everything, rows_of(own_stack) as rows:
            for name in ("", "a\x00b", "n" * 255):
                rows.PutRow(api.PutRowRequest(table=name, key=b"k", value=b"v", create_if_missing=True))
            rows.PutRow(api.PutRowRequest(table=table.decode(), key=b"k" * 65, value=b"v"))
            client.update(table, b"told", b"v")
            until(lambda: (table, UPDATED, b"told") in everything.hear(1), "the last to be told")
            assert everything.is_silent()

    def test_of_another_namespace_are_not_told(
        self, own_stack: Stack, client: ReqClient, subscriber: SubClient, table: bytes
    ) -> None:
        with rows_of(own_stack) as rows:
            rows.PutRow(
                api.PutRowRequest(namespace="other", table=table.decode(), key=b"k", value=b"v", create_if_missing=True)
            )
        client.update(table, b"ours", b"v")
        assert subscriber.hear(1) == [(table, UPDATED, b"ours")]


class TestSubscribers:
    def test_hear_everything_from_their_handshake_on(
        self, adapter: AdapterPart, client: ReqClient, table: bytes
    ) -> None:
        """Also the first, for whom the watch begins, and who comes after all have gone."""
        for turn in range(5):
            with SubClient(notifications_of(adapter), table) as subscriber:
                until(lambda: has_subscription(adapter, subscriber, client, table), "the subscription to arrive")
                client.update(table, b"%d" % turn, b"v")
                heard = subscriber.hear(1)
                while heard[-1] != (table, UPDATED, b"%d" % turn):
                    assert heard[-1][2] == b"probe"
                    heard = subscriber.hear(1)

    def test_that_are_slow_miss_some_and_harm_nobody(self, own_stack: Stack, table: bytes) -> None:
        adapter = own_stack.further_adapter("zmq-kv", QUINTET_PUB_QUEUED_MAX="10")
        adapter.start()
        count = 60_000
        small: dict[int, int | bytes] = {zmq.RCVHWM: 1, zmq.RCVBUF: 4096}
        with (
            SubClient(notifications_of(adapter), table, options=small) as slow,
            DealerClient(requests_of(adapter)) as dealer,
            SubClient(notifications_of(adapter), table) as quick,
        ):
            heard: list[tuple[bytes, bytes, bytes]] = []
            listener = threading.Thread(target=lambda: heard.extend(hear_until(quick, b"last")))
            listener.start()
            for first in range(0, count, 5000):
                dealer.pipeline([UPDATE, table, b"%060d" % number, b"v"] for number in range(first, first + 5000))
                assert dealer.read_replies(5000) == [[OK]] * 5000
            while listener.is_alive():
                dealer.pipeline([[UPDATE, table, b"last", b"v"]])
                dealer.read_replies(1)
                listener.join(0.05)
            numbers = [int(key) for _, _, key in heard]
            assert numbers == sorted(set(numbers))
            missed = []
            while not slow.is_silent():
                missed.append(slow.hear(1)[0][2])
            assert 0 < len(missed) < count
        with ReqClient(requests_of(adapter)) as client:
            assert client.update(table, b"k", b"v") == [OK]
        adapter.kill9()


def hear_until(subscriber: SubClient, last: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    while True:
        (one,) = subscriber.hear(1)
        if one[2] == last:
            return
        yield one


def has_subscription(adapter: AdapterPart, subscriber: SubClient, client: ReqClient, table: bytes) -> bool:
    client.update(table, b"probe", b"v")
    return not subscriber.is_silent(100)


class TestRestarts:
    @pytest.mark.parametrize("fault", ["core", "redis", "both", "frozen core"])
    def test_under_updates_leave_no_gap_and_no_repeat(
        self, own_stack: Stack, adapter: AdapterPart, client: ReqClient, fault: str
    ) -> None:
        """Each key is written once; an update whose reply was an error may have happened, once, or not."""
        tables = [b"restart-%d-%d" % (next(_tables), number) for number in range(4)]
        for table in tables:
            assert client.create_table(table) == [OK]
        acknowledged: dict[bytes, list[bytes]] = defaultdict(list)
        doubtful: dict[bytes, set[bytes]] = defaultdict(set)
        stop = threading.Event()

        def write() -> None:
            with ReqClient(requests_of(adapter)) as writer:
                for number in itertools.count():
                    table, key = tables[number % 4], b"%d" % number
                    if writer.update(table, key, b"v") == [OK]:
                        acknowledged[table].append(key)
                    else:
                        doubtful[table].add(key)
                    if stop.is_set():
                        return

        with SubClient(notifications_of(adapter), b"restart-") as subscriber:
            assert client.update(tables[0], b"begin", b"v") == [OK]
            while subscriber.hear(1) != [(tables[0], UPDATED, b"begin")]:
                pass
            writer = threading.Thread(target=write)
            writer.start()
            for _ in range(3):
                before = sum(map(len, acknowledged.values()))
                until(lambda: sum(map(len, acknowledged.values())) > before + 50, "updates to be made")  # noqa: B023
                FAULTS[fault](own_stack)
            before = sum(map(len, acknowledged.values()))
            until(lambda: sum(map(len, acknowledged.values())) > before + 50, "updates to be made again")
            stop.set()
            writer.join()
            for table in tables:
                until(lambda: client.update(table, b"end", b"v") == [OK], "the last update to be made")  # noqa: B023
            heard: dict[bytes, list[bytes]] = defaultdict(list)
            while sum(keys[-1:] == [b"end"] for keys in heard.values()) < 4:
                table, code, key = subscriber.hear(1)[0]
                assert code == UPDATED
                heard[table].append(key)
        for table in tables:
            keys = heard[table][:-1]
            assert len(keys) == len(set(keys)), "a notification came twice"
            assert [key for key in keys if key not in doubtful[table]] == acknowledged[table]


def both(stack: Stack) -> None:
    stack.core.kill9()
    stack.redis.restart()
    stack.core.start()


def freeze_core(stack: Stack) -> None:
    with stack.core.frozen():
        pass


FAULTS: dict[str, Callable[[Stack], None]] = {
    "core": lambda stack: stack.core.restart(),
    "redis": lambda stack: stack.redis.restart(),
    "both": both,
    "frozen core": freeze_core,
}


class TestATrimmedLog:
    def test_is_a_gap_that_is_counted_and_gone_on_from(self) -> None:
        forgetful = {"QUINTET_EVENTS_TAIL": "10", "QUINTET_EVENTS_KEEP_MS": "0"}
        with Stack(**forgetful) as stack:
            other_core = stack.second_core()
            other_core.environment.update(forgetful)
            other_core.start()
            adapter, other = stack.further_adapter("zmq-kv"), stack.further_adapter("zmq-kv", other_core)
            adapter.start()
            other.start()
            with (
                ReqClient(requests_of(other)) as client,
                SubClient(notifications_of(adapter), b"t") as subscriber,
                grpc.insecure_channel(other_core.target) as channel,
            ):
                client.create_table(b"t")
                client.update(b"t", b"before", b"v")
                assert subscriber.hear(1) == [(b"t", UPDATED, b"before")]
                stack.core.kill9()
                for number in range(200):
                    client.update(b"t", b"%d" % number, b"v")
                partitions = EventServiceStub(channel).ListPartitions
                until(
                    lambda: max(each.first_offset for each in partitions(ListPartitionsRequest()).partitions) > 100,
                    "the log to be trimmed",
                )
                stack.core.start()
                until(lambda: adapter.metrics()["quintet_zmq_kv_notification_gaps_total"] == 1, "the gap to be counted")
                until(lambda: has_subscription(adapter, subscriber, client, b"t"), "the watch to stand again")
                assert subscriber.hear(1) == [(b"t", UPDATED, b"probe")]
            assert "notifications_lost" in adapter.log.read_text()


class TestTheAdapter:
    def test_counts_what_it_published(
        self, adapter: AdapterPart, client: ReqClient, subscriber: SubClient, table: bytes
    ) -> None:
        before = adapter.metrics()["quintet_zmq_kv_notifications_total"]
        client.ask(UPDATE, table, b"k", b"v", ttl(1000))
        client.ask(DELETE, table, b"k")
        subscriber.hear(2)
        assert adapter.metrics()["quintet_zmq_kv_notifications_total"] >= before + 2
        assert adapter.metrics()["quintet_zmq_kv_notification_gaps_total"] == 0

    def test_watches_only_while_somebody_is_there(self, own_stack: Stack, client: ReqClient, table: bytes) -> None:
        adapter = own_stack.further_adapter("zmq-kv")
        adapter.start()
        with ReqClient(requests_of(adapter)) as one:
            one.update(table, b"unheard", b"v")
            with SubClient(notifications_of(adapter), table) as subscriber:
                one.update(table, b"heard", b"v")
                assert subscriber.hear(1) == [(table, UPDATED, b"heard")]
        assert adapter.metrics()["quintet_zmq_kv_notifications_total"] == 1
        adapter.kill9()

    def test_lets_subscribers_in_when_the_core_is_back(self, own_stack: Stack, client: ReqClient, table: bytes) -> None:
        adapter = own_stack.further_adapter("zmq-kv")
        adapter.start()
        own_stack.core.kill9()
        with SubClient(notifications_of(adapter), table, connected=False) as early:
            assert early.is_silent(100)
            own_stack.core.start()
            with ReqClient(requests_of(adapter)) as one:
                until(lambda: has_subscription(adapter, early, one, table), "the subscriber to be let in")
        adapter.kill9()
