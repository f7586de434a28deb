"""TaskFlux on the wire, against real processes: queues, their policies, the list, the dialects."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from quintet.v1.job_pb2 import NewJob
from quintet.v1.queue_pb2 import QueueSettings
from quintet.v1.queue_service_pb2 import CreateQueueRequest, DeleteQueueRequest, EnqueueRequest, GetQueueRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.conformance.conftest import NamespaceOfItsOwn, NewTaskFlux
from tests.support import taskflux as tf
from tests.support.stack import Stack
from tests.support.taskflux import (
    ACK,
    BAD_NAMES,
    NACK,
    Count,
    Error,
    Listed,
    Nothing,
    Ok,
    PolicyViolation,
    Record,
    TaskFluxClient,
)

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SIZE, PAYLOAD, RANGE = 1, 2, 3
"""Codes of policies."""
BAD_NAME, NOT_FOUND, EXISTS = Error(1), Error(2), Error(3)
BAD_RANGE, BAD_SIZE, BAD_PAYLOAD, NO_RANGE, UNKNOWN_STRUCTURE = (Error(code) for code in (5, 6, 7, 8, 9))


@pytest.fixture
def client(new_taskflux: NewTaskFlux) -> TaskFluxClient:
    return new_taskflux()


@pytest.fixture
def made(client: TaskFluxClient, queue: str) -> str:
    """A queue without limits."""
    assert client.ask(tf.create(queue)) == Ok()
    return queue


class TestCreate:
    @pytest.mark.parametrize("name", ["!", "~", "x" * 255, "".join(map(chr, range(0x21, 0x7F)))], ids=len)
    def test_takes_every_good_name(self, client: TaskFluxClient, name: str) -> None:
        assert client.ask(tf.create(name)) == Ok()
        assert client.put(name, b"x") == Ok()
        assert client.take(name) == Record(0, b"x")
        assert client.list().named(name) == Listed(name, 0, {})
        assert client.ask(tf.delete(name)) == Ok()

    @pytest.mark.parametrize("structure", [0, 1])
    def test_without_limits_has_no_policies(self, client: TaskFluxClient, queue: str, structure: int) -> None:
        assert client.ask(tf.create(queue, structure)) == Ok()
        assert client.list().named(queue) == Listed(queue, 0, {})

    def test_names_bytes_that_every_tongue_shares(
        self, client: TaskFluxClient, api: QueueServiceStub, queue: str
    ) -> None:
        assert client.ask(tf.create(queue, 2, 5, 6, (-7, 8))) == Ok()
        settings = api.GetQueue(GetQueueRequest(queue=queue)).queue.settings
        assert (settings.jobs_max, settings.payload_bytes_max) == (5, 6)
        assert (settings.rank_range.min, settings.rank_range.max) == (-7, 8)

    @pytest.mark.parametrize(
        ("name", "structure", "size_max", "payload_max", "keys", "error"),
        [
            ("q", 3, -1, -1, None, UNKNOWN_STRUCTURE),
            ("q", -1, -1, -1, None, UNKNOWN_STRUCTURE),
            ("q", INT32_MAX, -1, -1, None, UNKNOWN_STRUCTURE),
            ("q", 2, -1, -1, None, NO_RANGE),
            ("q", 1, -1, -1, (1, 0), BAD_RANGE),
            ("q", 2, -1, -1, (INT64_MAX, INT64_MIN), BAD_RANGE),
            ("q", 1, -1, -2, None, BAD_PAYLOAD),
            ("q", 1, -1, -(2**31), None, BAD_PAYLOAD),
            ("q", 1, -2, -1, None, BAD_SIZE),
            ("q", 1, -(2**31), -1, None, BAD_SIZE),
            ("a b", 1, -1, -1, None, BAD_NAME),
            ("", 1, -1, -1, None, EXISTS),
            # Of several faults the first is told.
            ("a b", 3, -2, -2, (1, 0), UNKNOWN_STRUCTURE),
            ("a b", 2, -2, -2, None, NO_RANGE),
            ("a b", 2, -2, -2, (1, 0), BAD_RANGE),
            ("a b", 2, -2, -2, (0, 0), BAD_PAYLOAD),
            ("a b", 2, -2, -1, (0, 0), BAD_SIZE),
            ("", 2, -2, -1, (0, 0), BAD_SIZE),
        ],
    )
    def test_refuses_what_is_wrong(
        self,
        client: TaskFluxClient,
        name: str,
        structure: int,
        size_max: int,
        payload_max: int,
        keys: tuple[int, int] | None,
        error: Error,
    ) -> None:
        assert client.ask(tf.create(name, structure, size_max, payload_max, keys)) == error

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_with_a_bad_name_is_error_1(self, client: TaskFluxClient, name: bytes) -> None:
        assert client.ask(tf.create(name)) == BAD_NAME

    def test_of_a_queue_that_exists_is_error_3_and_changes_nothing(self, client: TaskFluxClient, made: str) -> None:
        client.put(made, b"x")
        assert client.ask(tf.create(made, 1, 0)) == EXISTS
        assert client.list().named(made) == Listed(made, 1, {})

    def test_reads_any_byte_but_zero_as_true(self, client: TaskFluxClient, queue: str) -> None:
        packet = tf.create(queue, 1, keys=(1, 2))
        assert client.ask(packet[:-17] + b"\x80" + packet[-16:]) == Ok()
        assert client.list().named(queue) == Listed(queue, 0, {"priority-range": "1 2"})


class TestDelete:
    def test_takes_the_records_with_it(self, client: TaskFluxClient, made: str) -> None:
        client.put(made, b"x")
        assert client.ask(tf.delete(made)) == Ok()
        assert client.ask(tf.count(made)) == NOT_FOUND
        assert client.ask(tf.create(made)) == Ok()
        assert client.count(made) == 0

    def test_of_the_default_queue_is_error_1_and_of_an_unknown_one_error_2(
        self, client: TaskFluxClient, queue: str
    ) -> None:
        assert client.ask(tf.delete("")) == BAD_NAME
        assert client.ask(tf.delete(queue)) == NOT_FOUND
        assert [client.ask(tf.delete(name)) for name in BAD_NAMES] == [BAD_NAME] * len(BAD_NAMES)

    @pytest.mark.parametrize("answer", [ACK, NACK])
    def test_leaves_a_record_in_hand_to_be_answered_and_in_no_later_queue(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str, answer: bytes
    ) -> None:
        other = new_taskflux()
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        assert other.ask(tf.delete(made)) == Ok()
        assert other.ask(tf.create(made)) == Ok()
        assert client.ask(answer) == Ok()
        assert (other.count(made), other.get(made)) == (0, Nothing())

    def test_leaves_a_record_of_a_client_that_goes_in_no_later_queue(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, made: str
    ) -> None:
        other = new_taskflux()
        client.put(made, b"x")
        assert client.get(made) == Record(0, b"x")
        assert other.ask(tf.delete(made)) == Ok()
        assert other.ask(tf.create(made)) == Ok()
        client.close()
        assert other.get(made, 300) == Nothing()


class TestPolicies:
    def test_size_counts_what_can_be_taken_or_is_delayed(
        self, client: TaskFluxClient, new_taskflux: NewTaskFlux, api: QueueServiceStub, queue: str
    ) -> None:
        assert client.ask(tf.create(queue, 1, 2)) == Ok()
        api.Enqueue(EnqueueRequest(queue=queue, jobs=[NewJob(delay_ms=3_600_000)]))
        assert client.put(queue, b"1") == Ok()
        assert client.put(queue, b"2") == PolicyViolation(SIZE, (2,))
        taker = new_taskflux()
        assert taker.get(queue) == Record(0, b"1")
        assert client.put(queue, b"3") == Ok()
        assert taker.ask(NACK) == Ok()
        assert client.count(queue) == 3
        assert client.put(queue, b"4") == PolicyViolation(SIZE, (2,))

    def test_a_size_of_0_takes_nothing(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.create(queue, 1, 0)) == Ok()
        assert client.put(queue) == PolicyViolation(SIZE, (0,))

    def test_payloads_may_have_the_limit_s_length(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.create(queue, 1, -1, 3)) == Ok()
        assert client.put(queue, b"123") == Ok()
        assert client.put(queue, b"1234") == PolicyViolation(PAYLOAD, (3,))

    def test_a_payload_of_0_takes_empty_ones_alone(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.create(queue, 1, -1, 0)) == Ok()
        assert client.put(queue, b"") == Ok()
        assert client.put(queue, b"1") == PolicyViolation(PAYLOAD, (0,))

    @pytest.mark.parametrize("structure", [1, 2])
    def test_the_range_includes_both_ends(self, client: TaskFluxClient, queue: str, structure: int) -> None:
        low, high = INT64_MIN + 1, 2**53 + 1
        assert client.ask(tf.create(queue, structure, keys=(low, high))) == Ok()
        assert [client.put(queue, key=key) for key in (low, high, 0)] == [Ok()] * 3
        for key in (low - 1, high + 1):
            assert client.put(queue, key=key) == PolicyViolation(RANGE, (low, high))

    def test_of_several_the_first_is_told(self, client: TaskFluxClient, queue: str) -> None:
        """Size, then range, then payload."""
        assert client.ask(tf.create(queue, 2, 1, 2, (0, 9))) == Ok()
        assert client.put(queue, b"123", 10) == PolicyViolation(RANGE, (0, 9))
        assert client.put(queue, b"123", 9) == PolicyViolation(PAYLOAD, (2,))
        assert client.put(queue, b"12", 9) == Ok()
        assert client.put(queue, b"123", 10) == PolicyViolation(SIZE, (1,))

    def test_leave_the_connection_and_the_queue_as_they_are(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.create(queue, 1, 1)) == Ok()
        client.send(*[packet for _ in range(3) for packet in (tf.enqueue(queue, 0, b"x"), ACK)], tf.count(queue))
        violation = PolicyViolation(SIZE, (1,))
        answers = [client.read() for _ in range(7)]
        assert answers == [Ok(), Ok(), Ok(), violation, Ok(), violation, Count(1)]


class TestList:
    def test_tells_the_size_and_the_policies_that_are_set(self, client: TaskFluxClient, queue: str) -> None:
        assert client.ask(tf.create(f"{queue}-a", 1, 7)) == Ok()
        assert client.ask(tf.create(f"{queue}-b", 1, -1, 0)) == Ok()
        assert client.ask(tf.create(f"{queue}-c", 2, 0, INT32_MAX, (INT64_MIN, INT64_MAX))) == Ok()
        client.put(f"{queue}-a")
        listed = client.list()
        assert listed.named(f"{queue}-a") == Listed(f"{queue}-a", 1, {"max-queue-size": "7"})
        assert listed.named(f"{queue}-b") == Listed(f"{queue}-b", 0, {"max-payload-size": "0"})
        assert listed.named(f"{queue}-c") == Listed(
            f"{queue}-c",
            0,
            {
                "max-queue-size": "0",
                "max-payload-size": str(INT32_MAX),
                "priority-range": f"{INT64_MIN} {INT64_MAX}",
            },
        )

    def test_has_every_queue_however_many_and_none_that_cannot_be_written(
        self, namespace_of_its_own: NamespaceOfItsOwn, api: QueueServiceStub
    ) -> None:
        many = namespace_of_its_own("many")
        names = [f"q{number}" for number in range(1100)]
        for name in ("a b", "é", "x" * 256, "\n"):
            api.CreateQueue(CreateQueueRequest(namespace="many", queue=name))
        with TaskFluxClient(many.address) as client:
            # So many answers do not fit into the buffers beneath: they are to be read meanwhile.
            sender = threading.Thread(target=client.send, args=[tf.create(name) for name in names])
            sender.start()
            assert [client.read() for _ in names] == [Ok()] * len(names)
            sender.join()
            assert {listed.name for listed in client.list().queues} == {"", *names}

    def test_of_more_than_a_packet_may_hold_is_error_0(self, namespace_of_its_own: NamespaceOfItsOwn) -> None:
        small = namespace_of_its_own(QUINTET_PACKET_BYTES_MAX="1024")
        with TaskFluxClient(small.address) as client:
            for number in range(5):
                assert client.ask(tf.create(f"{number:0255}")) == Ok()
            assert client.ask(tf.LIST) == Error(0)
            assert client.count("") == 0

    def test_saturates_what_other_tongues_have_set_beyond_an_int32(
        self, client: TaskFluxClient, api: QueueServiceStub, queue: str
    ) -> None:
        settings = QueueSettings(jobs_max=2**40, payload_bytes_max=2**31)
        api.CreateQueue(CreateQueueRequest(queue=queue, settings=settings))
        policies = {"max-queue-size": str(INT32_MAX), "max-payload-size": str(INT32_MAX)}
        assert client.list().named(queue) == Listed(queue, 0, policies)


class TestTheDefaultQueue:
    def test_exists_from_the_first_start_without_limits_and_is_listed(
        self, namespace_of_its_own: NamespaceOfItsOwn, api: QueueServiceStub
    ) -> None:
        first = namespace_of_its_own("first")
        with TaskFluxClient(first.address) as client:
            assert client.list().queues == (Listed("", 0, {}),)
            assert client.ask(tf.create("")) == EXISTS
            assert client.put("", b"x", INT64_MIN) == Ok()
            assert client.count("") == 1
            assert client.take("") == Record(INT64_MIN, b"x")
        assert api.GetQueue(GetQueueRequest(namespace="first", queue="")).queue.name == ""

    def test_is_there_again_should_another_tongue_delete_it(
        self, namespace_of_its_own: NamespaceOfItsOwn, api: QueueServiceStub
    ) -> None:
        with TaskFluxClient(namespace_of_its_own("deleted").address) as client:
            api.DeleteQueue(DeleteQueueRequest(namespace="deleted", queue=""))
            assert client.list().queues == (Listed("", 0, {}),)
            assert (client.count(""), client.get("")) == (0, Nothing())
            assert client.put("", b"x") == Ok()
            assert client.take("") == Record(0, b"x")


class TestTheDialectCsharp:
    @pytest.fixture
    def csharp(self, stack: Stack) -> Iterator[TaskFluxClient]:
        adapter = stack.further_adapter("taskflux", QUINTET_DIALECT="csharp")
        adapter.start()
        with TaskFluxClient(adapter.address, "csharp") as client:
            yield client
        adapter.kill9()

    def test_marks_errors_with_e(self, csharp: TaskFluxClient, queue: str) -> None:
        csharp.send(tf.count(queue))
        assert csharp.read_bytes(10) == bytes.fromhex("63 65 00000002 00000000")

    def test_exchanges_the_codes_of_two_policies(self, csharp: TaskFluxClient, queue: str) -> None:
        assert csharp.ask(tf.create(queue, 1, 1, 2, (0, 9))) == Ok()
        for key, payload, wanted in (
            (10, b"", bytes.fromhex("63 70 00000002 0000000000000000 0000000000000009")),
            (9, b"123", bytes.fromhex("63 70 00000003 00000002")),
        ):
            csharp.send(tf.enqueue(queue, key, payload), ACK)
            assert csharp.read_bytes(1 + len(wanted)) == b"k" + wanted
        assert csharp.put(queue) == Ok()
        csharp.send(tf.enqueue(queue, 0, b""), ACK)
        assert csharp.read_bytes(11) == bytes.fromhex("6b 63 70 00000001 00000001")

    def test_is_one_of_two(self, stack: Stack) -> None:
        adapter = stack.further_adapter("taskflux", QUINTET_DIALECT="strict", QUINTET_PACKET_BYTES_MAX="1")
        with pytest.raises(RuntimeError):
            adapter.start()
        log = adapter.log.read_text()
        assert "QUINTET_DIALECT: value 'strict'" in log
        assert "QUINTET_PACKET_BYTES_MAX: value '1'" in log

    def test_refuses_structure_0(self, csharp: TaskFluxClient, queue: str) -> None:
        assert csharp.ask(tf.create(queue, 0)) == UNKNOWN_STRUCTURE
        assert csharp.ask(tf.create(queue, 1)) == Ok()

    def test_is_as_the_other_in_all_else(self, csharp: TaskFluxClient, queue: str) -> None:
        assert csharp.ask(tf.create(queue, 2, keys=(0, 9))) == Ok()
        assert csharp.put(queue, b"x", 3) == Ok()
        assert csharp.list().named(queue) == Listed(queue, 1, {"priority-range": "0 9"})
        assert csharp.take(queue) == Record(3, b"x")
        assert csharp.get(queue) == Nothing()
