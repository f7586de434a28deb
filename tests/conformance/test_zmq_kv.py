"""The ZeroMQ key-value protocol on the wire: what plain REQ and DEALER sockets send, and the replies they get."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import zmq
from quintet.v1.table_pb2 import Row
from quintet.v1.table_service_pb2 import GetRowRequest, PutRowRequest
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from tests.support.stack import AdapterPart, Stack, until
from tests.support.zmq_kv import (
    CREATE_TABLE,
    DELETE,
    DELETE_TABLE,
    ERROR,
    GET,
    OK,
    UPDATE,
    DealerClient,
    ReqClient,
    requests_of,
    ttl,
)

_tables = itertools.count(1)
SECOND_MS = 1000


@pytest.fixture(scope="module")
def adapter(stack: Stack) -> Iterator[AdapterPart]:
    """In front of the core that all conformance tests share."""
    part = stack.further_adapter("zmq-kv")
    part.start()
    yield part
    part.kill9()


@pytest.fixture
def client(adapter: AdapterPart) -> Iterator[ReqClient]:
    with ReqClient(requests_of(adapter)) as opened:
        yield opened


@pytest.fixture
def dealer(adapter: AdapterPart) -> Iterator[DealerClient]:
    with DealerClient(requests_of(adapter)) as opened:
        yield opened


@pytest.fixture
def table(client: ReqClient) -> bytes:
    """A table that no other test uses."""
    name = b"table-%d" % next(_tables)
    assert client.create_table(name) == [OK]
    return name


@pytest.fixture
def started(stack: Stack) -> Iterator[Callable[..., AdapterPart]]:
    """Starts adapters with settings of their own, which are ended after the test."""
    parts: list[AdapterPart] = []

    def start(**environment: str) -> AdapterPart:
        parts.append(stack.further_adapter("zmq-kv"))
        parts[-1].environment.update(environment)
        parts[-1].start()
        return parts[-1]

    yield start
    for part in parts:
        part.kill9()


def row_of(stack: Stack, table: bytes, key: bytes) -> Row:
    """As the core has it."""
    with grpc.insecure_channel(stack.core.target) as channel:
        return TableServiceStub(channel).GetRow(GetRowRequest(table=table.decode(), key=key)).row


class TestTables:
    def test_are_created_and_deleted_once(self, client: ReqClient) -> None:
        assert client.create_table(b"fresh") == [OK]
        assert client.create_table(b"fresh") == [ERROR, b"table exists"]
        assert client.delete_table(b"fresh") == [OK]
        assert client.delete_table(b"fresh") == [ERROR, b"no such table"]

    def test_are_empty_when_they_come_again(self, client: ReqClient) -> None:
        client.create_table(b"again")
        client.update(b"again", b"k", b"v")
        assert client.delete_table(b"again") == [OK]
        assert client.get(b"again", b"k") == [ERROR, b"no such table"]
        assert client.create_table(b"again") == [OK]
        assert client.get(b"again", b"k") == [ERROR, b"no such row"]

    @pytest.mark.parametrize("name", [b"t", b"\xd1\x82", b"n" * 254, b" ", b"\x01"])
    def test_have_the_same_name_with_and_without_a_final_nul(self, client: ReqClient, name: bytes) -> None:
        assert client.create_table(name) == [OK]
        assert client.update(name + b"\x00", b"k", b"v") == [OK]
        assert client.get(name, b"k") == [OK, b"v"]
        assert client.delete_table(name + b"\x00") == [OK]

    def test_of_two_names_do_not_meet(self, client: ReqClient, table: bytes) -> None:
        client.create_table(table + b"x")
        client.update(table, b"k", b"v")
        assert client.get(table + b"x", b"k") == [ERROR, b"no such row"]


class TestRows:
    def test_are_inserted_replaced_read_and_removed(self, client: ReqClient, table: bytes) -> None:
        assert client.get(table, b"k") == [ERROR, b"no such row"]
        assert client.update(table, b"k", b"one") == [OK]
        assert client.update(table, b"k", b"two") == [OK]
        assert client.get(table, b"k") == [OK, b"two"]
        assert client.delete(table, b"k") == [OK, b"two"]
        assert client.delete(table, b"k") == [ERROR, b"no such row"]

    @pytest.mark.parametrize("command", [UPDATE, DELETE, GET])
    def test_need_their_table(self, client: ReqClient, command: bytes) -> None:
        frames = [command, b"nowhere", b"k", *([b"v"] if command == UPDATE else [])]
        assert client.ask(*frames) == [ERROR, b"no such table"]

    @pytest.mark.parametrize("size", [0, 1, 1023, 1024])
    def test_hold_values_of_every_size(self, client: ReqClient, table: bytes, size: int) -> None:
        value = os.urandom(size)
        assert client.update(table, b"k", value) == [OK]
        assert client.get(table, b"k") == [OK, value]
        assert client.delete(table, b"k") == [OK, value]

    @pytest.mark.parametrize("key", [b"", b"\x00", bytes(range(64)), b"\xff" * 64, b"\r\n"])
    def test_have_keys_of_any_bytes(self, client: ReqClient, table: bytes, key: bytes) -> None:
        assert client.update(table, key, b"v") == [OK]
        assert client.get(table, key) == [OK, b"v"]
        assert client.delete(table, key) == [OK, b"v"]

    def test_too_large_are_refused_and_change_nothing(self, client: ReqClient, table: bytes) -> None:
        client.update(table, b"k", b"v")
        assert client.update(table, b"k", b"x" * 1025) == [ERROR, b"the value has more than 1024 bytes"]
        assert client.update(table, b"k" * 65, b"x") == [ERROR, b"the key has more than 64 bytes"]
        assert client.update(table, b"k", b"x" * 65536) == [ERROR, b"the value has more than 1024 bytes"]
        assert client.get(table, b"k") == [OK, b"v"]

    def test_that_another_tongue_put_are_read_as_they_are(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        with grpc.insecure_channel(stack.core.target) as channel:
            TableServiceStub(channel).PutRow(PutRowRequest(table=table.decode(), key=b"k", value=b"x" * 5000))
        assert client.get(table, b"k") == [OK, b"x" * 5000]


class TestTimesToLive:
    def test_end_a_row(self, client: ReqClient, table: bytes) -> None:
        assert client.update(table, b"k", b"v", ttl_seconds=1) == [OK]
        until(lambda: client.get(table, b"k") == [ERROR, b"no such row"], "the row to expire")
        assert client.delete(table, b"k") == [ERROR, b"no such row"]

    def test_are_seconds_from_the_update(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        client.update(table, b"short", b"v", ttl_seconds=60)
        client.update(table, b"long", b"v", ttl_seconds=1_000_060)
        between_ms = row_of(stack, table, b"long").expires_at_ms - row_of(stack, table, b"short").expires_at_ms
        assert abs(between_ms - 1_000_000 * SECOND_MS) < 60 * SECOND_MS

    def test_stay_when_an_update_names_none(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        client.update(table, b"k", b"one", ttl_seconds=1000)
        deadline_ms = row_of(stack, table, b"k").expires_at_ms
        assert deadline_ms
        client.update(table, b"k", b"two")
        assert row_of(stack, table, b"k").expires_at_ms == deadline_ms

    def test_are_removed_by_zero(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        client.update(table, b"k", b"one", ttl_seconds=1000)
        assert client.update(table, b"k", b"two", ttl_seconds=0) == [OK]
        assert row_of(stack, table, b"k").expires_at_ms == 0

    def test_are_not_given_to_a_new_row_that_names_none(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        client.update(table, b"k", b"one")
        assert row_of(stack, table, b"k").expires_at_ms == 0

    @pytest.mark.parametrize("seconds", [3_153_600_001, 2**62, 2**63, 2**64 - 1])
    def test_too_large_for_the_clock_are_never(
        self, stack: Stack, client: ReqClient, table: bytes, seconds: int
    ) -> None:
        assert client.update(table, b"k", b"one", ttl_seconds=5) == [OK]
        assert client.update(table, b"k", b"two", ttl_seconds=seconds) == [OK]
        assert row_of(stack, table, b"k").expires_at_ms == 0

    def test_of_a_hundred_years_are_kept(self, stack: Stack, client: ReqClient, table: bytes) -> None:
        assert client.update(table, b"k", b"v", ttl_seconds=3_153_600_000) == [OK]
        assert row_of(stack, table, b"k").expires_at_ms > 0

    @pytest.mark.parametrize("size", [0, 1, 4, 7, 9, 64])
    def test_of_another_length_are_refused(self, client: ReqClient, table: bytes, size: int) -> None:
        assert client.ask(UPDATE, table, b"k", b"v", bytes(size)) == [
            ERROR,
            b"the time to live does not have 8 bytes",
        ]
        assert client.get(table, b"k") == [ERROR, b"no such row"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("frames", "reason"),
        [
            ([b"\x05", b"t"], b"unknown command"),
            ([b"\xff"], b"unknown command"),
            ([b""], b"unknown command"),
            ([b"UPDATE", b"t", b"k", b"v"], b"unknown command"),
            ([CREATE_TABLE], b"wrong number of frames"),
            ([CREATE_TABLE, b"t", b"x"], b"wrong number of frames"),
            ([DELETE_TABLE], b"wrong number of frames"),
            ([UPDATE, b"t", b"k"], b"wrong number of frames"),
            ([UPDATE, b"t", b"k", b"v", ttl(1), b""], b"wrong number of frames"),
            ([DELETE, b"t"], b"wrong number of frames"),
            ([GET, b"t", b"k", b"v"], b"wrong number of frames"),
            ([CREATE_TABLE, b""], b"the table name is empty"),
            ([CREATE_TABLE, b"\x00"], b"the table name is empty"),
            ([CREATE_TABLE, b"n" * 255], b"the table name has more than 254 bytes"),
            ([GET, b"n" * 65536, b"k"], b"the table name has more than 254 bytes"),
            ([CREATE_TABLE, b"a\x00b"], b"the table name contains NUL"),
            ([CREATE_TABLE, b"\xc3\x28"], b"the table name is not UTF-8"),
        ],
    )
    def test_are_an_error_with_a_reason(self, client: ReqClient, frames: list[bytes], reason: bytes) -> None:
        assert client.ask(*frames) == [ERROR, reason]

    @pytest.mark.parametrize("size", [65_536, 1024 * 1024])
    def test_of_frames_up_to_the_limit_are_replied(self, client: ReqClient, size: int) -> None:
        assert client.ask(b"x" * size) == [ERROR, b"unknown command"]
        assert client.ask(UPDATE, b"t", b"k", b"v" * size) == [ERROR, b"the value has more than 1024 bytes"]

    def test_of_many_frames_are_replied(self, client: ReqClient) -> None:
        assert client.ask(*[GET] * 1000) == [ERROR, b"wrong number of frames"]
        assert client.ask(*[GET] * 5000) == [ERROR, b"too many frames"]

    def test_a_longer_frame_cuts_its_sender_off_and_nobody_else(self, adapter: AdapterPart, client: ReqClient) -> None:
        with DealerClient(requests_of(adapter)) as rude:
            monitor = rude.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            monitor.setsockopt(zmq.RCVTIMEO, 30_000)
            rude.pipeline([[b"\x09"]])
            assert rude.read_replies(1) == [[ERROR, b"unknown command"]]
            rude.send(b"", b"x" * (1024 * 1024 + 1))
            assert monitor.recv_multipart()
            rude.socket.disable_monitor()
        assert client.ask(b"\x09") == [ERROR, b"unknown command"]


class TestEnvelopes:
    @pytest.mark.parametrize(
        "envelope", [[], [b""], [b"route", b""], [b"route-%d" % number for number in range(100)] + [b""]]
    )
    def test_are_mirrored(self, dealer: DealerClient, table: bytes, envelope: list[bytes]) -> None:
        dealer.send(*envelope, UPDATE, table, b"k", b"v")
        assert dealer.read() == [*envelope, OK]
        dealer.send(*envelope, GET, table, b"k")
        assert dealer.read() == [*envelope, OK, b"v"]
        dealer.send(*envelope, GET, table)
        assert dealer.read() == [*envelope, ERROR, b"wrong number of frames"]

    def test_with_nothing_behind_are_an_error(self, dealer: DealerClient) -> None:
        for envelope in ([b""], [b"route", b""]):
            dealer.send(*envelope)
            assert dealer.read() == [*envelope, ERROR, b"the request is empty"]

    def test_of_two_proxies_bring_replies_home(self, adapter: AdapterPart, table: bytes) -> None:
        """REQ clients behind a ROUTER/DEALER proxy, as libzmq has it."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        port = front.bind_to_random_port("tcp://127.0.0.1")
        back.connect(requests_of(adapter))
        with ReqClient(f"tcp://127.0.0.1:{port}") as one, ReqClient(f"tcp://127.0.0.1:{port}") as other:
            for number, behind in enumerate((one, other)):
                behind.socket.send_multipart([UPDATE, table, b"k-%d" % number, b"v"])
                back.send_multipart(front.recv_multipart())
            for _ in range(2):
                front.send_multipart(back.recv_multipart())
            assert (one.read(), other.read()) == ([OK], [OK])
        context.destroy(linger=0)


class TestPipelines:
    def test_of_thousands_are_answered_in_order(self, dealer: DealerClient, table: bytes) -> None:
        count = 5000
        dealer.pipeline([UPDATE, table, b"k-%d" % (number % 7), b"%d" % number] for number in range(count))
        dealer.pipeline([GET, table, b"k-%d" % number] for number in range(7))
        replies = dealer.read_replies(count + 7)
        assert replies[:count] == [[OK]] * count
        last = {number % 7: number for number in range(count)}
        assert replies[count:] == [[OK, b"%d" % last[number]] for number in range(7)]

    def test_keep_the_order_between_what_is_refused_at_once_and_what_is_not(
        self, dealer: DealerClient, table: bytes
    ) -> None:
        chance = random.Random(5)
        wanted: list[list[bytes]] = []
        requests: list[list[bytes]] = []
        for number in range(2000):
            key = b"key-%d" % number
            requests.append(chance.choice([[UPDATE, table, key, key], [GET, table, b"none"], [GET], [b"\x77"]]))
            wanted.append(
                {
                    UPDATE: [OK],
                    GET: [ERROR, b"no such row" if len(requests[-1]) == 3 else b"wrong number of frames"],
                    b"\x77": [ERROR, b"unknown command"],
                }[requests[-1][0]]
            )
        dealer.pipeline(requests)
        assert dealer.read_replies(2000) == wanted

    def test_take_effect_in_order_over_several_tables(self, dealer: DealerClient) -> None:
        names = [b"ordered-%d" % number for number in range(8)]
        dealer.pipeline([CREATE_TABLE, name] for name in names)
        dealer.pipeline([UPDATE, name, b"k", b"%d" % number] for number in range(50) for name in names)
        dealer.pipeline([DELETE, name, b"k"] for name in names)
        dealer.pipeline([DELETE_TABLE, name] for name in names)
        replies = dealer.read_replies(8 + 400 + 8 + 8)
        assert replies == [[OK]] * 408 + [[OK, b"49"]] * 8 + [[OK]] * 8

    def test_of_many_clients_at_once_all_get_their_own(self, adapter: AdapterPart, table: bytes) -> None:
        def talk(number: int) -> bool:
            with ReqClient(requests_of(adapter)) as one:
                key = b"client-%d" % number
                return all(
                    one.update(table, key, b"%d" % turn) == [OK] and one.get(table, key) == [OK, b"%d" % turn]
                    for turn in range(20)
                )

        with ThreadPoolExecutor(40) as pool:
            assert all(pool.map(talk, range(120)))

    def test_of_one_row_are_atomic(self, adapter: AdapterPart, table: bytes) -> None:
        """Of many clients that delete what one has put, one gets it."""

        def remove(_: int) -> list[bytes]:
            with ReqClient(requests_of(adapter)) as one:
                return one.delete(table, b"k")

        with ReqClient(requests_of(adapter)) as putter, ThreadPoolExecutor(10) as pool:
            for turn in range(10):
                putter.update(table, b"k", b"%d" % turn)
                removed = list(pool.map(remove, range(10)))
                assert sorted(reply[0] for reply in removed) == [OK] + [ERROR] * 9
                assert [OK, b"%d" % turn] in removed


class TestIdentities:
    def test_come_back_after_a_crash(self, adapter: AdapterPart, table: bytes) -> None:
        for turn in range(5):
            with DealerClient(requests_of(adapter), {zmq.ROUTING_ID: b"reborn"}) as one:
                one.pipeline([[UPDATE, table, b"k", b"%d" % turn], [GET, table, b"k"]])
                assert one.read_replies(2) == [[OK], [OK, b"%d" % turn]]

    def test_pass_to_who_comes_last(self, adapter: AdapterPart, table: bytes) -> None:
        """A half-open connection does not keep its owner out."""
        with DealerClient(requests_of(adapter), {zmq.ROUTING_ID: b"twice", zmq.RECONNECT_IVL: -1}) as first:
            first.pipeline([[GET, table, b"k"]])
            assert first.read_replies(1) == [[ERROR, b"no such row"]]
            with DealerClient(requests_of(adapter), {zmq.ROUTING_ID: b"twice"}) as second:
                second.pipeline([[GET, table, b"k"]])
                assert second.read_replies(1) == [[ERROR, b"no such row"]]


class TestSettings:
    def test_status_bytes_and_byte_order_are_the_clients_choice(
        self, stack: Stack, started: Callable[..., AdapterPart]
    ) -> None:
        reversed_ = started(QUINTET_STATUS_BYTES="ok=1,error=0", QUINTET_TTL_BYTE_ORDER="little")
        words = started(QUINTET_STATUS_BYTES="text")
        with ReqClient(requests_of(reversed_)) as one, ReqClient(requests_of(words)) as other:
            assert one.create_table(b"chosen") == [b"\x01"]
            assert one.create_table(b"chosen") == [b"\x00", b"table exists"]
            assert other.create_table(b"chosen") == [b"ERROR", b"table exists"]
            assert one.ask(UPDATE, b"chosen", b"k", b"v", (1000).to_bytes(8, "little")) == [b"\x01"]
            assert row_of(stack, b"chosen", b"k").expires_at_ms > 0
            assert other.get(b"chosen", b"k") == [b"OK", b"v"]
            assert other.update(b"chosen", b"k", b"w", ttl_seconds=0) == [b"OK"]

    def test_namespaces_do_not_see_each_other(self, started: Callable[..., AdapterPart], client: ReqClient) -> None:
        elsewhere = started(QUINTET_NAMESPACE="elsewhere")
        with ReqClient(requests_of(elsewhere)) as there:
            assert there.create_table(b"shared name") == [OK]
            assert client.get(b"shared name", b"k") == [ERROR, b"no such table"]

    def test_faulty_ones_are_reported_at_once(self, stack: Stack) -> None:
        adapter = stack.further_adapter(
            "zmq-kv",
            QUINTET_STATUS_BYTES="ok",
            QUINTET_TTL_BYTE_ORDER="middle",
            QUINTET_PUB_QUEUED_MAX="0",
        )
        with pytest.raises(RuntimeError):
            adapter.start()
        log = adapter.log.read_text()
        for fault in (
            "QUINTET_STATUS_BYTES: value 'ok'",
            "QUINTET_TTL_BYTE_ORDER",
            "QUINTET_PUB_QUEUED_MAX: value '0'",
        ):
            assert fault in log
        assert "Traceback" not in log

    def test_a_port_that_is_taken_ends_the_process_and_is_named(self, stack: Stack, adapter: AdapterPart) -> None:
        for listener in ("zmq-kv", "zmq-kv-pub"):
            second = stack.further_adapter("zmq-kv")
            second.listening[listener] = adapter.listening[listener]
            with pytest.raises(RuntimeError, match="listen_failed"):
                second.start()

    def test_connections_are_bounded(self, started: Callable[..., AdapterPart]) -> None:
        adapter = started(QUINTET_CONNECTIONS_MAX="2")
        with ReqClient(requests_of(adapter)) as one, ReqClient(requests_of(adapter)) as other:
            assert [client.ask(b"\x09")[0] for client in (one, other)] == [ERROR, ERROR]
            assert adapter.metrics()["quintet_adapter_connections"] == 2
            hurried: dict[int, int | bytes] = {zmq.HANDSHAKE_IVL: 200, zmq.RECONNECT_IVL: 50}
            with ReqClient(requests_of(adapter), hurried) as further:
                further.socket.send_multipart([b"\x09"])
                until(
                    lambda: adapter.metrics()["quintet_adapter_connections_refused_total"] >= 1,
                    "the third to be refused",
                )
                assert further.is_silent(1)
                one.close()
                assert further.read()[0] == ERROR


class TestMetrics:
    def test_tell_of_connections_requests_bytes_and_latencies(self, started: Callable[..., AdapterPart]) -> None:
        adapter = started()
        with ReqClient(requests_of(adapter)) as client:
            client.create_table(b"measured")
            client.update(b"measured", b"k", b"v" * 100)
            client.get(b"measured", b"none")
            client.ask(b"nonsense")
            metrics = adapter.metrics()
        assert metrics["quintet_adapter_connections"] == 1
        assert metrics["quintet_adapter_connections_opened_total"] == 1
        assert metrics["quintet_adapter_session_connected"] == 1
        assert metrics["quintet_adapter_received_bytes_total"] > 100
        assert metrics["quintet_adapter_sent_bytes_total"] > 10
        for command, outcome in (("create_table", "ok"), ("update", "ok"), ("get", "empty"), ("invalid", "refused")):
            label = f'{{command="{command}",outcome="{outcome}"}}'
            assert metrics[f"quintet_adapter_requests_total{label}"] == 1
        assert metrics['quintet_adapter_request_seconds_count{command="update"}'] == 1
        until(lambda: adapter.metrics()["quintet_adapter_connections"] == 0, "the client to be gone")
