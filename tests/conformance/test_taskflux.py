"""TaskFlux on the wire, against real processes: its bytes; how records are stored, taken, waited for and counted."""

from __future__ import annotations

import pytest
from quintet.v1.job_pb2 import NewJob
from quintet.v1.queue_service_pb2 import DeleteRequest, EnqueueRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.conformance.conftest import NamespaceOfItsOwn, NewTaskFlux
from tests.support import taskflux as tf
from tests.support.stack import Stack
from tests.support.taskflux import (
    ACK,
    ACK_TOO,
    BAD_NAMES,
    NACK,
    Count,
    Error,
    Nothing,
    Ok,
    PolicyViolation,
    Record,
    TaskFluxClient,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
PAYLOAD_POLICY = 2
BAD_NAME, NOT_FOUND = Error(1), Error(2)


@pytest.fixture
def client(new_taskflux: NewTaskFlux) -> TaskFluxClient:
    return new_taskflux()


@pytest.fixture
def made(client: TaskFluxClient, queue: str) -> str:
    """A queue without limits."""
    assert client.ask(tf.create(queue)) == Ok()
    return queue


class TestTheBytesOfThePage:
    """Each line of the page's last section, sent and read as it stands there."""

    def test_are_what_is_read_and_written(self, namespace_of_its_own: NamespaceOfItsOwn) -> None:
        page = TaskFluxClient(namespace_of_its_own().address, shaken=False)

        def exchange(sent: str, wanted: str) -> None:
            page.send(bytes.fromhex(sent))
            assert page.read_bytes(len(bytes.fromhex(wanted))).hex(" ") == bytes.fromhex(wanted).hex(" ")

        exchange("41 4e", "61 01")
        exchange("42 00000001 00000000 00000000", "62 01")
        exchange("43 51 04 6a6f6273 00000001 ffffffff ffffffff 00", "6b")
        exchange("43 45 04 6a6f6273 fffffffffffffffb 00000002 6869", "6b")
        exchange("51", "6b")
        exchange("43 44 04 6a6f6273 000005dc", "63 64 01 fffffffffffffffb 00000002 6869")
        exchange("4e", "6b")
        exchange("43 44 04 6a6f6273 00000000", "63 64 01 fffffffffffffffb 00000002 6869")
        exchange("51", "6b")
        exchange("43 44 04 6a6f6273 00000000", "63 64 00")
        exchange("43 52 04 6a6f6273", "6b")
        exchange("43 44 04 6a6f6273 000005dc", "63 78 00000002 00000000")
        exchange("43 51 02 7161 00000002 00000064 00000400 01 fffffffffffffff6 000000000000000a", "6b")
        exchange("43 45 02 7161 000000000000000b 00000000", "6b")
        exchange("51", "63 70 00000003 fffffffffffffff6 000000000000000a")
        page.close()

    def test_of_a_list_are_written_too(self, namespace_of_its_own: NamespaceOfItsOwn) -> None:
        with TaskFluxClient(namespace_of_its_own().address) as client:
            assert client.ask(tf.create("qa")) == Ok()
            assert client.put("qa") == Ok()
            client.send(tf.LIST)
            default_queue = bytes.fromhex("00 00000000 00000000")
            wanted = bytes.fromhex("63 6c 00000002") + default_queue + bytes.fromhex("02 7161 00000001 00000000")
            assert client.read_bytes(len(wanted)) == wanted


class TestEnqueue:
    def test_is_stored_when_it_is_acknowledged(self, client: TaskFluxClient, made: str) -> None:
        for acknowledge in (ACK, ACK_TOO):
            assert client.ask(tf.enqueue(made, 1, b"data")) == Ok()
            assert client.ask(acknowledge) == Ok()
        assert client.count(made) == 2

    def test_is_not_stored_before(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        assert client.ask(tf.enqueue(made, 1, b"data")) == Ok()
        assert new_taskflux().count(made) == 0

    def test_is_not_stored_when_it_is_not_acknowledged(self, client: TaskFluxClient, made: str) -> None:
        assert client.ask(tf.enqueue(made, 1, b"data")) == Ok()
        assert client.ask(NACK) == Ok()
        assert client.count(made) == 0

    def test_into_an_unknown_queue_is_error_2_after_the_acknowledgement(
        self, client: TaskFluxClient, queue: str
    ) -> None:
        assert client.ask(tf.enqueue(queue, 1, b"data")) == Ok()
        assert client.ask(ACK) == NOT_FOUND
        assert client.list().named(queue) is None

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_with_a_bad_name_is_error_1_at_once(self, client: TaskFluxClient, name: bytes) -> None:
        assert client.ask(tf.enqueue(name, 1, b"data")) == BAD_NAME
        # What a client may have sent ahead is an acknowledgement out of place.
        client.send(ACK, tf.count(""))
        assert isinstance(client.read(), Count)

    @pytest.mark.parametrize("key", [INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2**53 + 1, INT64_MAX])
    def test_keeps_every_key_exactly(self, client: TaskFluxClient, made: str, key: int) -> None:
        assert client.put(made, b"x", key) == Ok()
        assert client.take(made) == Record(key, b"x")

    @pytest.mark.parametrize("payload", [b"", b"\x00", bytes(range(256)), b"x" * 100_000], ids=len)
    def test_keeps_every_payload_exactly(self, client: TaskFluxClient, made: str, payload: bytes) -> None:
        assert client.put(made, payload) == Ok()
        assert client.take(made) == Record(0, payload)

    def test_of_a_payload_of_the_core_s_limit_works_and_beyond_it_is_policy_2(
        self, client: TaskFluxClient, made: str
    ) -> None:
        limit = 4 * 1024 * 1024
        assert client.put(made, b"x" * limit) == Ok()
        assert client.put(made, b"x" * (limit + 1)) == PolicyViolation(PAYLOAD_POLICY, (limit,))
        assert client.take(made) == Record(0, b"x" * limit)

    def test_is_done_in_order_with_what_is_pipelined_behind_it(self, client: TaskFluxClient, made: str) -> None:
        requests = [packet for key in range(50) for packet in (tf.enqueue(made, -key, b"%d" % key), ACK)]
        takes = [packet for _ in range(50) for packet in (tf.dequeue(made), ACK)]
        client.send(*requests, *takes, tf.count(made))
        assert [client.read() for _ in range(100)] == [Ok()] * 100
        for key in reversed(range(50)):
            assert (client.read(), client.read()) == (Record(-key, b"%d" % key), Ok())
        assert client.read() == Count(0)


class TestDequeue:
    def test_gives_the_lowest_key_first_and_equal_keys_in_order(self, client: TaskFluxClient, made: str) -> None:
        keys = [5, -5, INT64_MAX, 0, INT64_MIN, 5, -5, 2**53 + 1, 2**53]
        for place, key in enumerate(keys):
            assert client.put(made, b"%d" % place, key) == Ok()
        wanted = [Record(key, b"%d" % place) for key, place in sorted((key, place) for place, key in enumerate(keys))]
        assert [client.take(made) for _ in keys] == wanted

    def test_of_an_empty_queue_is_nothing_and_wants_no_acknowledgement(self, client: TaskFluxClient, made: str) -> None:
        assert client.get(made) == Nothing()
        assert client.count(made) == 0

    def test_of_an_unknown_queue_is_error_2_with_and_without_a_wait(self, client: TaskFluxClient, queue: str) -> None:
        assert client.get(queue) == NOT_FOUND
        assert client.get(queue, 60_000) == NOT_FOUND

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_with_a_bad_name_is_error_1(self, client: TaskFluxClient, name: bytes) -> None:
        assert client.ask(tf.dequeue(name)) == BAD_NAME
        assert client.ask(tf.dequeue(name, 1000)) == BAD_NAME

    @pytest.mark.parametrize("acknowledge", [ACK, ACK_TOO])
    def test_acknowledged_removes_the_record(
        self, client: TaskFluxClient, stack: Stack, made: str, acknowledge: bytes
    ) -> None:
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        assert client.ask(acknowledge) == Ok()
        counts = stack.counts(made)
        assert (counts.ready, counts.leased) == (0, 0)

    def test_not_acknowledged_puts_the_record_at_the_tail_of_its_key(self, client: TaskFluxClient, made: str) -> None:
        for key, payload in ((1, b"a"), (1, b"b"), (2, b"c")):
            client.put(made, payload, key)
        assert client.get(made) == Record(1, b"a")
        assert client.ask(NACK) == Ok()
        assert [client.take(made) for _ in range(3)] == [Record(1, b"b"), Record(1, b"a"), Record(2, b"c")]

    def test_keeps_the_record_from_others_meanwhile(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        other = new_taskflux()
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        assert (other.get(made), other.count(made)) == (Nothing(), 0)

    def test_of_a_record_whose_job_another_tongue_ended_is_answered_ok(
        self, client: TaskFluxClient, api: QueueServiceStub, made: str
    ) -> None:
        for answer in (ACK, NACK):
            (job_id,) = api.Enqueue(EnqueueRequest(queue=made, jobs=[NewJob(payload=b"x")])).ids
            assert client.get(made) == Record(0, b"x")
            api.Delete(DeleteRequest(id=job_id))
            assert client.ask(answer) == Ok()
        assert client.count(made) == 0


class TestWaiting:
    def test_ends_with_a_record(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        waiter = new_taskflux()
        waiter.send(tf.dequeue(made, 60_000))
        assert waiter.is_silent()
        client.put(made, b"x", 7)
        assert (waiter.read(), waiter.ask(ACK)) == (Record(7, b"x"), Ok())
        assert client.count(made) == 0

    def test_ends_at_once_when_a_record_is_there(self, client: TaskFluxClient, made: str) -> None:
        client.put(made, b"x")
        assert client.get(made, 2**32 - 1) == Record(0, b"x")

    def test_ends_with_nothing_after_its_time(self, client: TaskFluxClient, made: str) -> None:
        assert client.get(made, 1) == Nothing()
        assert client.get(made, 50) == Nothing()

    def test_of_the_longest_time_waits(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        waiter = new_taskflux()
        waiter.send(tf.dequeue(made, 2**32 - 1))
        assert waiter.is_silent()
        client.put(made, b"x")
        assert waiter.read() == Record(0, b"x")

    def test_ends_with_a_record_that_is_not_acknowledged(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        waiter = new_taskflux()
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        waiter.send(tf.dequeue(made, 60_000))
        assert waiter.is_silent()
        assert client.ask(NACK) == Ok()
        assert waiter.read() == Record(0, b"x")

    def test_holds_back_what_is_behind_it(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        waiter = new_taskflux()
        waiter.send(tf.dequeue(made, 60_000), ACK, tf.count(made))
        assert waiter.is_silent()
        client.put(made, b"x")
        assert [waiter.read() for _ in range(3)] == [Record(0, b"x"), Ok(), Count(0)]

    def test_is_served_in_the_order_of_arrival(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        waiters = [new_taskflux() for _ in range(20)]
        for waiter in waiters:
            waiter.send(tf.dequeue(made, 60_000))
            assert waiter.is_silent(0.02)
        for number in range(20):
            assert client.put(made, b"%d" % number, -number) == Ok()
        assert [waiter.read() for waiter in waiters] == [Record(-number, b"%d" % number) for number in range(20)]

    def test_is_not_overtaken_by_a_later_dequeue(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        waiter = new_taskflux()
        for _ in range(20):
            waiter.send(tf.dequeue(made, 60_000))
            assert waiter.is_silent(0.02)
            client.send(tf.enqueue(made, 0, b"x"), ACK, tf.dequeue(made))
            assert [client.read() for _ in range(3)] == [Ok(), Ok(), Nothing()]
            assert (waiter.read(), waiter.ask(ACK)) == (Record(0, b"x"), Ok())

    def test_is_ended_at_once_with_error_2_when_the_queue_is_deleted(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        waiters = [new_taskflux() for _ in range(5)]
        for waiter in waiters:
            waiter.send(tf.dequeue(made, 2**32 - 1))
            assert waiter.is_silent(0.1)
        assert client.ask(tf.delete(made)) == Ok()
        assert [waiter.read() for waiter in waiters] == [NOT_FOUND] * 5

    def test_on_the_default_queue_works(self, client: TaskFluxClient, new_taskflux: NewTaskFlux) -> None:
        waiter = new_taskflux()
        waiter.send(tf.dequeue("", 60_000))
        assert waiter.is_silent()
        assert client.put("", b"x") == Ok()
        assert (waiter.read(), waiter.ask(ACK)) == (Record(0, b"x"), Ok())


class TestCount:
    def test_is_of_what_can_be_taken_or_is_delayed(
        self, client: TaskFluxClient, api: QueueServiceStub, made: str
    ) -> None:
        for number in range(3):
            client.put(made, b"%d" % number)
        api.Enqueue(EnqueueRequest(queue=made, jobs=[NewJob(delay_ms=3_600_000)]))
        assert client.count(made) == 4
        assert client.get(made) == Record(0, b"0")
        client.send(NACK)
        assert client.read() == Ok()
        assert client.count(made) == 4

    def test_leaves_out_what_is_leased(self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str) -> None:
        client.put(made)
        client.put(made)
        assert client.get(made) == Record(0, b"")
        other = new_taskflux()
        assert other.count(made) == 1
        listed = other.list().named(made)
        assert listed is not None
        assert listed.records == 1

    def test_of_an_unknown_queue_is_error_2_and_of_a_bad_name_error_1(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.count(queue)) == NOT_FOUND
        assert [client.ask(tf.count(name)) for name in BAD_NAMES] == [BAD_NAME] * len(BAD_NAMES)
