"""TaskFlux on the wire, against real processes: set-up, what comes out of place, faults, idleness, ends."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.conftest import NewTaskFlux
from tests.support import taskflux as tf
from tests.support.stack import AdapterPart, Stack, until
from tests.support.taskflux import (
    ACK,
    ACK_TOO,
    HAND_SHAKE,
    HAND_SHAKEN,
    NACK,
    Authorization,
    Count,
    End,
    Error,
    ErrorResponse,
    Metadata,
    Nothing,
    Ok,
    Record,
    TaskFluxClient,
)

IDLE_MS = 400
PACKET_BYTES_MAX = 4096
MIB = 1024 * 1024


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def string(data: bytes) -> bytes:
    return int32(len(data)) + data


SERVER_PACKETS = {
    "a accepted": b"a\1",
    "a refused": b"a\0" + string(b"no"),
    "b accepted": b"b\1",
    "b refused": b"b\0" + string(b""),
    "k": b"k",
    "m": b"m" + int32(2) + string(b"here:1") + string(b"there:2") + int32(0) + int32(0),
    "m of nobody": b"m" + int32(0) + int32(0) + int32(0),
    "e": b"e" + int32(0) + string(b"why"),
    "l": b"l" + int32(1),
    "c d": b"cd\1" + struct.pack(">q", -5) + string(b"hi"),
    "c d nothing": b"cd\0",
    "c c": b"cc" + int32(7),
    "c l": b"cl" + int32(2) + b"\1q" + int32(3) + int32(1) + string(b"k") + string(b"v") + b"\0" + int32(0) + int32(0),
    "c l of none": b"cl" + int32(0),
    "c x": b"cx" + int32(2) + string(b"details"),
    "c p 0": b"cp" + int32(0) + string(b"other"),
    "c p 1": b"cp" + int32(1) + int32(7),
    "c p 2": b"cp" + int32(2) + int32(7),
    "c p 3": b"cp" + int32(3) + struct.pack(">qq", -1, 1),
}
FAULTS = {
    "unknown packet": b"z",
    "zero": b"\0",
    "unknown command": b"Cz",
    "unknown answer": b"cz",
    "unknown policy": b"cp" + int32(4),
    "negative length": b"CE\1q" + struct.pack(">qi", 0, -1),
    "most negative length": b"CE\1q" + struct.pack(">qi", 0, -(2**31)),
    "length over the limit": b"CE\1q" + struct.pack(">qi", 0, 16 * MIB + 1),
    "greatest length": b"CE\1q" + struct.pack(">qi", 0, 2**31 - 1),
    "negative length in a server's packet": b"e" + int32(0) + int32(-1),
    "negative count in a server's packet": b"m" + int32(-1),
    "length over the limit in a server's packet": b"cd\1" + struct.pack(">qi", 0, 16 * MIB + 1),
    "count over the limit in a server's packet": b"cl" + int32(16 * MIB + 1),
    "many lengths over the limit in a server's packet": b"m" + int32(2) + string(b"x" * 9 * MIB) + int32(9 * MIB),
}


@pytest.fixture
def client(new_taskflux: NewTaskFlux) -> TaskFluxClient:
    return new_taskflux()


@pytest.fixture
def made(client: TaskFluxClient, queue: str) -> str:
    """A queue without limits."""
    assert client.ask(tf.create(queue)) == Ok()
    return queue


@pytest.fixture
def raw(taskflux: AdapterPart) -> Iterator[TaskFluxClient]:
    """A client that has not shaken hands."""
    with TaskFluxClient(taskflux.address, shaken=False) as client:
        yield client


class TestSetUp:
    def test_is_accepted_also_when_it_comes_byte_by_byte(self, raw: TaskFluxClient) -> None:
        for byte in HAND_SHAKE + tf.count(""):
            raw.send(bytes([byte]))
        assert raw.read_bytes(4) == HAND_SHAKEN
        assert isinstance(raw.read(), Count)

    @pytest.mark.parametrize("patch", [0, 1, 7, -1, 2**31 - 1])
    def test_is_for_every_patch_of_the_version(self, raw: TaskFluxClient, patch: int) -> None:
        raw.send(b"AN", b"B", struct.pack(">iii", 1, 0, patch))
        assert (raw.read(), raw.read()) == (Authorization("a", True), Authorization("b", True))

    @pytest.mark.parametrize("version", [(0, 0), (2, 0), (1, 1), (0, 1), (-1, 0), (1, -1), (2**31 - 1, 0)])
    def test_of_another_version_is_refused_with_a_reason(self, raw: TaskFluxClient, version: tuple[int, int]) -> None:
        raw.send(b"AN", b"B", struct.pack(">iii", *version, 0))
        assert raw.read() == Authorization("a", True)
        refusal = raw.read()
        assert isinstance(refusal, Authorization)
        assert (refusal.kind, refusal.ok, bool(refusal.reason)) == ("b", False, True)
        assert raw.read() == End()

    @pytest.mark.parametrize("method", [b"n", b"\0", b"A", b"\xff"])
    def test_with_an_unknown_method_is_refused_with_a_reason(self, raw: TaskFluxClient, method: bytes) -> None:
        raw.send(b"A", method)
        refusal = raw.read()
        assert isinstance(refusal, Authorization)
        assert (refusal.kind, refusal.ok, bool(refusal.reason)) == ("a", False, True)
        assert raw.read() == End()

    @pytest.mark.parametrize("first", [*"BMCQKNabmckel", "\0", "z", "\xff"])
    def test_of_anything_else_is_closed_without_a_word(self, raw: TaskFluxClient, first: str) -> None:
        raw.send(first.encode("latin-1"))
        assert raw.read_rest() == b""

    @pytest.mark.parametrize("second", [*"AMCQKNabmckel", "\0", "z", "\xff"])
    def test_of_anything_else_after_the_authorization_is_closed_without_a_word(
        self, raw: TaskFluxClient, second: str
    ) -> None:
        raw.send(b"AN", second.encode("latin-1"))
        assert raw.read_rest() == b"a\1"

    @pytest.mark.parametrize("sent", [b"", b"A", b"AN", b"ANB", HAND_SHAKE[:-1]])
    def test_that_ends_early_is_closed(self, raw: TaskFluxClient, sent: bytes) -> None:
        raw.send(sent)
        raw.half_close()
        assert raw.read_rest() in (b"", b"a\1")


class TestPipelining:
    def test_of_everything_in_one_go_is_answered_in_order(self, raw: TaskFluxClient, queue: str) -> None:
        raw.send(
            HAND_SHAKE,
            *(tf.create(queue), tf.enqueue(queue, 2, b"b"), ACK, tf.enqueue(queue, 1, b"a"), ACK_TOO),
            *(tf.enqueue(queue, 0, b"never"), NACK, tf.count(queue), tf.dequeue(queue), ACK, tf.dequeue(queue), NACK),
            *(tf.METADATA, tf.count(queue), tf.delete(queue), tf.count(queue)),
        )
        assert raw.read_bytes(4) == HAND_SHAKEN
        assert [raw.read() for _ in range(12)] == [
            *(Ok(), Ok(), Ok(), Ok(), Ok(), Ok(), Ok(), Count(2)),
            *(Record(1, b"a"), Ok(), Record(2, b"b"), Ok()),
        ]
        assert isinstance(raw.read(), Metadata)
        assert [raw.read() for _ in range(3)] == [Count(1), Ok(), Error(2)]

    def test_in_any_split_gives_the_same_result(self, client: TaskFluxClient, made: str) -> None:
        chance = random.Random(5)
        data = b"".join(tf.enqueue(made, number, b"x" * number) + ACK for number in range(40))
        data += b"".join(tf.dequeue(made) + ACK for _ in range(40))
        start = 0
        while start < len(data):
            end = start + chance.randrange(1, 60)
            client.send(data[start:end])
            start = end
        assert [client.read() for _ in range(80)] == [Ok()] * 80
        assert [client.read() for _ in range(80)] == [
            answer for number in range(40) for answer in (Record(number, b"x" * number), Ok())
        ]

    def test_of_thousands_of_requests_is_answered(self, client: TaskFluxClient, made: str) -> None:
        requests = [tf.enqueue(made, 0, b"x" * 100), ACK] * 2000 + [tf.dequeue(made), ACK] * 2000
        sender = threading.Thread(target=client.send, args=requests)
        sender.start()
        assert [client.read() for _ in range(4000)] == [Ok()] * 4000
        assert [client.read() for _ in range(4000)] == [Record(0, b"x" * 100), Ok()] * 2000
        sender.join()


class TestOutOfPlace:
    @pytest.mark.parametrize("packet", [ACK, ACK_TOO, NACK, b"AN", b"Ax", HAND_SHAKE[2:], b"B" + b"\xff" * 12])
    def test_a_known_client_packet_is_ignored(self, client: TaskFluxClient, made: str, packet: bytes) -> None:
        client.send(packet * 3, tf.count(made), packet, tf.count(made))
        assert (client.read(), client.read()) == (Count(0), Count(0))

    @pytest.mark.parametrize("packet", SERVER_PACKETS.values(), ids=SERVER_PACKETS)
    def test_a_server_s_packet_is_read_and_dropped(self, client: TaskFluxClient, made: str, packet: bytes) -> None:
        client.send(packet * 3, tf.count(made), packet, tf.count(made))
        assert (client.read(), client.read()) == (Count(0), Count(0))
        for byte in packet:
            client.send(bytes([byte]))
        assert client.ask(tf.count(made)) == Count(0)

    def test_a_server_s_large_packet_is_dropped_too(self, client: TaskFluxClient, made: str) -> None:
        client.send(b"cd\1", struct.pack(">q", 0), string(b"x" * 16 * MIB), tf.count(made))
        assert client.read() == Count(0)

    def test_a_great_many_of_them_hurt_nobody(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        sender = threading.Thread(target=client.send, args=[b"QKNk" * 500_000, tf.count(made)])
        sender.start()
        assert new_taskflux().count(made) == 0
        assert client.read() == Count(0)
        sender.join()


class TestClusterMetadata:
    def test_tells_the_address_and_that_there_is_no_leader(self, client: TaskFluxClient, taskflux: AdapterPart) -> None:
        host, port = taskflux.address
        assert client.ask(tf.METADATA) == Metadata((f"{host}:{port}",), 0, 0)
        client.send(tf.METADATA * 3)
        assert len({client.read() for _ in range(3)}) == 1

    def test_tells_the_advertised_address(self, stack: Stack) -> None:
        adapter = stack.further_adapter("taskflux")
        adapter.environment["QUINTET_ADVERTISED_ADDRESS"] = "queues.example.org:2606"
        adapter.start()
        with TaskFluxClient(adapter.address) as client:
            client.send(tf.METADATA)
            wanted = b"m" + int32(1) + string(b"queues.example.org:2606") + int32(0) + int32(0)
            assert client.read_bytes(len(wanted)) == wanted
        adapter.kill9()


class TestWhileAnAcknowledgementIsAwaited:
    @pytest.mark.parametrize("wrong", [*"CMABabmckel", "z", "\0"])
    def test_of_an_enqueue_anything_else_stores_nothing_and_ends(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, wrong: str
    ) -> None:
        assert client.ask(tf.enqueue(made, 1, b"x")) == Ok()
        answer = client.ask(wrong.encode())
        assert isinstance(answer, ErrorResponse)
        assert client.read() == End()
        assert new_taskflux().count(made) == 0

    @pytest.mark.parametrize("wrong", [*"CMABabmckel", "z", "\0"])
    def test_of_a_dequeue_anything_else_gives_the_record_back_and_ends(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, wrong: str
    ) -> None:
        client.put(made, b"1")
        client.put(made, b"2")
        assert client.get(made) == Record(0, b"1")
        answer = client.ask(wrong.encode())
        assert isinstance(answer, ErrorResponse)
        assert client.read() == End()
        other = new_taskflux()
        until(lambda: other.count(made) == 2, "the record to be back")
        assert [other.take(made) for _ in range(2)] == [Record(0, b"2"), Record(0, b"1")]

    def test_a_whole_request_is_wrong_as_well(self, client: TaskFluxClient, made: str) -> None:
        client.send(tf.enqueue(made, 1, b"x"), tf.count(made))
        assert client.read() == Ok()
        assert isinstance(client.read(), ErrorResponse)
        assert client.read() == End()


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
    def test_are_error_response_0_after_the_answers_to_what_was_before(
        self, client: TaskFluxClient, made: str, fault: bytes
    ) -> None:
        client.send(tf.enqueue(made, 1, b"x"), ACK, tf.count(made), fault)
        assert [client.read() for _ in range(3)] == [Ok(), Ok(), Count(1)]
        answer = client.read()
        assert isinstance(answer, ErrorResponse)
        assert (answer.code, bool(answer.details)) == (0, True)
        assert client.read() == End()

    def test_behind_a_dequeue_that_waits_are_answered_after_it(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        waiter = new_taskflux()
        waiter.send(tf.dequeue(made, 60_000), ACK, b"z")
        assert waiter.is_silent()
        client.put(made, b"x")
        assert (waiter.read(), waiter.read()) == (Record(0, b"x"), Ok())
        assert isinstance(waiter.read(), ErrorResponse)
        assert waiter.read() == End()

    def test_disturb_no_other_connection(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        vandal = new_taskflux()
        assert client.ask(tf.enqueue(made, 1, b"x")) == Ok()
        vandal.send(b"CE\xff" + b"\xff" * 1000)
        assert isinstance(vandal.read(), Error | ErrorResponse)
        assert client.ask(ACK) == Ok()
        assert client.count(made) == 1

    def test_that_are_followed_by_a_flood_are_still_read(self, client: TaskFluxClient) -> None:
        client.send(FAULTS["length over the limit"], b"x" * MIB)
        assert isinstance(client.read(), ErrorResponse)
        assert client.read() == End()


@pytest.fixture(scope="module")
def hasty(stack: Stack) -> Iterator[AdapterPart]:
    """An adapter with a short idle limit and small packets."""
    adapter = stack.further_adapter("taskflux")
    adapter.environment["QUINTET_IDLE_TIMEOUT_MS"] = str(IDLE_MS)
    adapter.environment["QUINTET_PACKET_BYTES_MAX"] = str(PACKET_BYTES_MAX)
    adapter.start()
    yield adapter
    adapter.kill9()


class TestTheLargestPacket:
    def test_is_a_setting(self, hasty: AdapterPart, client: TaskFluxClient, made: str) -> None:
        with TaskFluxClient(hasty.address) as small:
            assert small.put(made, b"x" * PACKET_BYTES_MAX) == Ok()
            assert isinstance(small.ask(tf.enqueue(made, 0, b"x" * (PACKET_BYTES_MAX + 1))), ErrorResponse)
        assert client.count(made) == 1


class TestIdle:
    @pytest.mark.parametrize("sent", [b"", b"A", b"AN", b"ANB"])
    def test_in_set_up_is_closed(self, hasty: AdapterPart, sent: bytes) -> None:
        with TaskFluxClient(hasty.address, shaken=False) as client:
            client.send(sent)
            assert client.read_rest() in (b"", b"a\1")

    def test_between_requests_is_closed_without_a_word(self, hasty: AdapterPart) -> None:
        with TaskFluxClient(hasty.address) as client:
            assert isinstance(client.ask(tf.count("")), Count)
            assert client.read_rest() == b""

    def test_before_the_acknowledgement_of_an_enqueue_stores_nothing(
        self, hasty: AdapterPart, client: TaskFluxClient, made: str
    ) -> None:
        with TaskFluxClient(hasty.address) as idle:
            assert idle.ask(tf.enqueue(made, 0, b"x")) == Ok()
            assert idle.read_rest() == b""
        assert client.count(made) == 0

    def test_before_the_acknowledgement_of_a_dequeue_gives_the_record_back(
        self, hasty: AdapterPart, client: TaskFluxClient, made: str
    ) -> None:
        client.put(made, b"x")
        with TaskFluxClient(hasty.address) as idle:
            assert idle.get(made) == Record(0, b"x")
            assert idle.read_rest() == b""
        assert client.take(made, 20_000) == Record(0, b"x")

    def test_is_who_sends_no_whole_packet(self, hasty: AdapterPart, made: str) -> None:
        packet = tf.enqueue(made, 0, b"x" * 1000)
        with TaskFluxClient(hasty.address) as client:
            drip = threading.Thread(target=self._drip, args=[client, packet])
            drip.start()
            assert client.read_rest() == b""
            drip.join()

    def _drip(self, client: TaskFluxClient, packet: bytes) -> None:
        """Byte by byte, more slowly than the idle limit allows for all of them."""
        stopped = threading.Event()
        try:
            for byte in packet:
                client.send(bytes([byte]))
                stopped.wait(IDLE_MS / 20_000)
        except OSError:
            pass

    def test_is_nobody_who_waits_in_a_dequeue(self, hasty: AdapterPart, client: TaskFluxClient, made: str) -> None:
        with TaskFluxClient(hasty.address) as waiter:
            waiter.send(tf.dequeue(made, 60_000))
            assert waiter.is_silent(4 * IDLE_MS / 1000)
            client.put(made, b"x")
            assert (waiter.read(), waiter.ask(ACK)) == (Record(0, b"x"), Ok())
            assert waiter.read_rest() == b""

    def test_is_nobody_whose_packets_come_in_time(self, hasty: AdapterPart) -> None:
        with TaskFluxClient(hasty.address) as client:
            for _ in range(10):
                assert client.is_silent(IDLE_MS / 4000)
                client.send(ACK)
            assert isinstance(client.ask(tf.count("")), Count)


class TestHalfClosed:
    def test_gets_the_answers_to_whole_requests(self, client: TaskFluxClient, made: str) -> None:
        client.send(tf.enqueue(made, 0, b"x"), ACK, tf.dequeue(made, 60_000), ACK, tf.count(made), tf.count(made)[:-1])
        client.half_close()
        assert [client.read() for _ in range(5)] == [Ok(), Ok(), Record(0, b"x"), Ok(), Count(0)]
        assert client.read() == End()

    def test_without_the_acknowledgement_of_an_enqueue_stores_nothing(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        client.send(tf.enqueue(made, 0, b"x"))
        client.half_close()
        assert (client.read(), client.read()) == (Ok(), End())
        assert new_taskflux().count(made) == 0

    def test_without_the_acknowledgement_of_a_dequeue_gives_the_record_back(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        client.put(made, b"x")
        client.send(tf.dequeue(made))
        client.half_close()
        assert (client.read(), client.read()) == (Record(0, b"x"), End())
        assert new_taskflux().take(made, 20_000) == Record(0, b"x")

    def test_waits_on_when_it_has_sent_its_acknowledgement(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        client.send(tf.dequeue(made, 60_000), ACK)
        client.half_close()
        assert client.is_silent()
        other = new_taskflux()
        other.put(made, b"x")
        assert [client.read() for _ in range(3)] == [Record(0, b"x"), Ok(), End()]
        assert other.count(made) == 0

    def test_waits_no_longer_than_the_idle_limit(self, hasty: AdapterPart, made: str) -> None:
        with TaskFluxClient(hasty.address) as client:
            client.send(tf.dequeue(made, 2**32 - 1), ACK, tf.dequeue(made, 2**32 - 1), NACK)
            client.half_close()
            assert [client.read() for _ in range(3)] == [Nothing(), Nothing(), End()]

    def test_waits_no_longer_when_it_could_not_acknowledge_what_comes(self, client: TaskFluxClient, made: str) -> None:
        client.send(tf.dequeue(made, 2**32 - 1), tf.count(made))
        client.half_close()
        assert [client.read() for _ in range(3)] == [Nothing(), Count(0), End()]


Leave = Callable[[TaskFluxClient], None]


class TestGone:
    @pytest.fixture(params=["close", "reset"])
    def leave(self, request: pytest.FixtureRequest) -> Leave:
        return TaskFluxClient.close if request.param == "close" else TaskFluxClient.reset

    def test_before_the_acknowledgement_stores_nothing(
        self, stack: Stack, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, leave: Leave
    ) -> None:
        assert client.ask(tf.enqueue(made, 0, b"x")) == Ok()
        leave(client)
        assert new_taskflux().get(made, 300) == Nothing()

    def test_gives_the_record_back_at_the_tail_of_its_key(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, leave: Leave
    ) -> None:
        for number in range(2):
            client.put(made, b"%d" % number)
        assert client.get(made) == Record(0, b"0")
        leave(client)
        other = new_taskflux()
        until(lambda: other.count(made) == 2, "the record to be back")
        assert [other.take(made) for _ in range(2)] == [Record(0, b"1"), Record(0, b"0")]

    def test_while_it_waits_never_takes_a_record(
        self, taskflux: AdapterPart, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, leave: Leave
    ) -> None:
        gone = TaskFluxClient(taskflux.address)
        gone.send(tf.dequeue(made, 2**32 - 1))
        assert gone.is_silent()
        parked = taskflux.metrics()["quintet_adapter_connections"]
        leave(gone)
        until(lambda: taskflux.metrics()["quintet_adapter_connections"] < parked, "the client to be gone")
        for number in range(10):
            client.put(made, b"%d" % number)
            assert client.take(made) == Record(0, b"%d" % number)

    def test_in_the_middle_of_a_packet_leaves_nothing(
        self, taskflux: AdapterPart, client: TaskFluxClient, made: str, leave: Leave
    ) -> None:
        gone = TaskFluxClient(taskflux.address)
        gone.send(tf.enqueue(made, 0, b"x" * 1000)[:-1])
        leave(gone)
        assert client.count(made) == 0


class TestAClientThatReadsNothing:
    def test_is_not_read_either_and_hurts_nobody(
        self, taskflux: AdapterPart, client: TaskFluxClient, made: str
    ) -> None:
        for _ in range(4):
            client.put(made, b"x" * MIB)
        deaf = TaskFluxClient(taskflux.address)
        deaf.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connection.settimeout(1)
        with pytest.raises(TimeoutError):
            self._send_for_ever(deaf, (tf.dequeue(made) + NACK) * 1000)
        assert client.count("") >= 0
        deaf.close()
        until(lambda: client.count(made) == 4, "the records to be back")

    def _send_for_ever(self, client: TaskFluxClient, data: bytes) -> None:
        while True:
            client.send(data)
