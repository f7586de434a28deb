"""The text queue on the wire, against real processes: every rule of its page."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clients import JobCentreClient, TextClient, connect, read_all, reset
from tests.support.stack import AdapterPart, Stack, until

UNKNOWN = b"0" * 15 + b"1"


class TestExchange:
    def test_the_answer_has_no_newline_and_then_the_connection_closes(self, text: TextClient, queue: str) -> None:
        assert re.fullmatch(rb"[0-9a-f]{16}", text.add(queue, b"hello"))
        assert text.ask(f"GET {queue}-none\n".encode()) == b"NONE"

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    @pytest.mark.parametrize("half_close", [False, True])
    def test_commands_may_end_in_any_way(self, text: TextClient, queue: str, end: bytes, half_close: bool) -> None:
        name = queue.encode()
        job_id = text.ask(b"ADD " + name + b" 2 hi" + end, half_close=half_close)
        assert text.ask(b"IN " + name + b" " + job_id + end, half_close=half_close) == b"YES"
        assert text.ask(b"GET " + name + end, half_close=half_close) == job_id + b" 2 hi"
        assert text.ask(b"ACK " + name + b" " + job_id + end, half_close=half_close) == b"OK"
        assert text.ask(b"IN " + name + b" " + job_id + end, half_close=half_close) == b"NO"

    def test_connections_are_served_in_parallel(self, text: TextClient, queue: str) -> None:
        with connect(text.address) as slow:
            slow.sendall(f"ADD {queue} 5 hel".encode())
            assert text.get(queue) is None
            slow.sendall(b"lo")
            assert len(read_all(slow)) == 16

    def test_any_split_gives_the_same_result(self, text: TextClient, queue: str) -> None:
        chance = random.Random(5)
        for number in range(20):
            data = bytes(chance.randrange(256) for _ in range(number))
            command = f"ADD {queue} {len(data)} ".encode() + data
            cuts = sorted(chance.sample(range(len(command)), min(5, len(command))))
            pieces = [command[start:end] for start, end in zip([0, *cuts], [*cuts, len(command)], strict=True)]
            job_id = text.ask_in_pieces(pieces)
            get = f"GET {queue}\n".encode()
            assert text.ask_in_pieces([get[:2], get[2:5], get[5:]]) == job_id + f" {len(data)} ".encode() + data
            ack = f"ACK {queue} ".encode() + job_id + b"\r\n"
            assert text.ask_in_pieces([ack[:9], ack[9:-9], ack[-9:]]) == b"OK"

    def test_what_follows_a_command_is_dropped_and_never_eats_the_answer(self, text: TextClient, queue: str) -> None:
        with connect(text.address) as connection:
            connection.sendall(f"ADD {queue} 2 hi\n".encode() + b"ADD x 2 ho" * 100_000)
            assert re.fullmatch(rb"[0-9a-f]{16}", read_all(connection))
        assert text.get("x") is None
        taken = text.get(queue)
        assert taken is not None
        assert taken[1] == b"hi"

    def test_a_command_is_carried_out_though_its_client_is_gone(self, text: TextClient, queue: str) -> None:
        connection = connect(text.address)
        connection.sendall(f"ADD {queue} 2 hi".encode())
        connection.close()
        until(lambda: text.get(queue) is not None, "the job of a client that is gone")

    def test_an_incomplete_add_of_a_client_that_is_gone_stores_nothing(self, text: TextClient, queue: str) -> None:
        for close in (socket.socket.close, reset):
            connection = connect(text.address)
            connection.sendall(f"ADD {queue} 5 hi".encode())
            close(connection)
        assert text.ask(f"ADD {queue} 5 hi".encode(), half_close=True).startswith(b"ERROR ")
        assert text.get(queue) is None


class TestTimes:
    def test_quiet_never_ends_an_add(self, text: TextClient, queue: str) -> None:
        with connect(text.address) as connection:
            connection.sendall(f"ADD {queue} 5 hel".encode())
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(10)
            connection.sendall(b"lo")
            assert len(read_all(connection)) == 16

    def test_what_is_not_well_formed_yet_waits_for_more(self, text: TextClient, queue: str) -> None:
        with connect(text.address) as connection:
            connection.sendall(b"GET ")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(10)
            connection.sendall(queue.encode())
            assert read_all(connection) == b"NONE"

    @pytest.mark.parametrize("command", [b"ADD q 5 hel", b"ADD q", b"GET", b"GET ", b"ACK q", b"IN q ", b"A"])
    def test_an_incomplete_command_times_out(self, text: TextClient, command: bytes) -> None:
        answer = text.ask(command)
        assert answer.startswith(b"ERROR ")
        assert b"\n" not in answer

    def test_a_command_that_trickles_times_out(self, text: TextClient) -> None:
        with connect(text.address) as connection:
            connection.sendall(b"ADD q 1000 ")
            connection.settimeout(0.1)
            answer = b""
            while not answer:
                connection.sendall(b"x")
                try:
                    answer = connection.recv(1000)
                except TimeoutError:
                    continue
            assert answer.startswith(b"ERROR ")

    def test_silence_is_closed_without_an_answer(self, text: TextClient) -> None:
        assert text.ask(b"") == b""
        assert text.ask(b"", half_close=True) == b""


class TestAdd:
    @pytest.mark.parametrize("data", [b"", b" ", b"\n", b"a b\r\n\0c", bytes(range(256))])
    def test_stores_data_of_any_bytes(self, text: TextClient, queue: str, data: bytes) -> None:
        job_id = text.add(queue, data)
        assert text.ask(f"GET {queue}\n".encode()) == job_id + f" {len(data)} ".encode() + data

    def test_stores_a_million_bytes_and_not_one_more(self, text: TextClient, queue: str) -> None:
        data = random.Random(1).randbytes(1_000_000)
        job_id = text.add(queue, data)
        assert text.get(queue) == (job_id, data)
        assert text.ask(f"ADD {queue} 1000001 ".encode()).startswith(b"ERROR ")
        assert text.add(queue, data + b"x").startswith(b"ERROR ")

    def test_accepts_leading_zeros(self, text: TextClient, queue: str) -> None:
        assert len(text.ask(f"ADD {queue} 0002 hi".encode())) == 16

    @pytest.mark.parametrize("length", ["-1", "+1", "1.0", "x", "", "1e2", "0x1"])
    def test_refuses_a_bad_length(self, text: TextClient, queue: str, length: str) -> None:
        assert text.ask(f"ADD {queue} {length} x\n".encode()).startswith(b"ERROR ")
        assert text.get(queue) is None

    def test_of_no_data_needs_its_third_space(self, text: TextClient, queue: str) -> None:
        assert text.ask(f"ADD {queue} 0\n".encode()).startswith(b"ERROR ")
        assert text.ask(f"ADD {queue} 0".encode()).startswith(b"ERROR ")
        assert len(text.ask(f"ADD {queue} 0 ".encode())) == 16

    def test_ids_are_unique_over_all_queues(self, text: TextClient, queue: str) -> None:
        ids = [text.add(f"{queue}-{number % 5}", b"") for number in range(50)]
        assert len(set(ids)) == 50


class TestGet:
    def test_of_an_unknown_queue_is_none(self, text: TextClient, queue: str) -> None:
        assert text.ask(f"GET {queue}\n".encode()) == b"NONE"

    def test_gives_jobs_in_the_order_of_insertion_each_once(self, text: TextClient, queue: str) -> None:
        ids = [text.add(queue, b"%d" % number) for number in range(10)]
        taken = [text.get(queue) for _ in range(10)]
        assert taken == [(job_id, b"%d" % number) for number, job_id in enumerate(ids)]
        assert text.ask(f"GET {queue}\n".encode()) == b"NONE"

    def test_gives_each_job_to_one_of_many(self, text: TextClient, queue: str) -> None:
        ids = {text.add(queue, b"") for _ in range(40)}
        with ThreadPoolExecutor(16) as pool:
            taken = [job[0] for job in pool.map(lambda _: text.get(queue), range(60)) if job is not None]
        assert (len(taken), set(taken)) == (40, ids)

    def test_of_a_client_known_to_be_gone_is_undone(self, stack: Stack, text: TextClient, queue: str) -> None:
        text.add(queue, b"x")
        connection = connect(text.address)
        stack.core.freeze()
        try:
            connection.sendall(f"GET {queue}\n".encode())
            until(lambda: stack.text_queue.metrics()["quintet_adapter_operations_in_flight"] > 0, "the GET to be sent")
            connections = stack.text_queue.metrics()["quintet_adapter_connections"]
            reset(connection)
            until(
                lambda: stack.text_queue.metrics()["quintet_adapter_connections"] < connections,
                "the reset to be noticed",
            )
        finally:
            stack.core.thaw()
        until(lambda: text.ask(f"GET {queue}\n".encode()).endswith(b" 1 x"), "the job to come back")


class TestAck:
    def test_of_a_leased_job_is_ok_and_it_is_gone(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        text.get(queue)
        assert text.ack(queue, job_id) == b"OK"
        assert text.is_in(queue, job_id) == b"NO"

    def test_twice_is_no(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        text.get(queue)
        assert [text.ack(queue, job_id), text.ack(queue, job_id)] == [b"OK", b"NO"]

    def test_of_a_job_never_taken_is_no_and_it_stays(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        assert text.ack(queue, job_id) == b"NO"
        assert text.get(queue) == (job_id, b"x")

    def test_in_another_queue_is_no_and_it_stays(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        text.add(f"{queue}-other", b"y")
        text.get(queue)
        assert text.ack(f"{queue}-other", job_id) == b"NO"
        assert text.ack(queue, job_id) == b"OK"

    @pytest.mark.parametrize("word", [b"ACK", b"IN"])
    @pytest.mark.parametrize("job_id", [UNKNOWN, b"x", b"f" * 16, b"0" * 16, b"!" * 128, b"NONE", b"g" * 16])
    def test_of_an_unknown_id_is_no(self, text: TextClient, queue: str, word: bytes, job_id: bytes) -> None:
        text.add(queue, b"x")
        assert text.ask(b"%b %b %b" % (word, queue.encode(), job_id)) == b"NO"

    @pytest.mark.parametrize("word", [b"ACK", b"IN"])
    @pytest.mark.parametrize("job_id", [b"", b"x" * 129, b"\xc3\xa9", b"\x7f", b"a b"])
    def test_of_what_is_no_id_is_an_error(self, text: TextClient, queue: str, word: bytes, job_id: bytes) -> None:
        assert text.ask(b"%b %b %b\n" % (word, queue.encode(), job_id)).startswith(b"ERROR ")


class TestIn:
    def test_is_yes_while_the_job_waits_and_while_it_is_leased(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        assert text.is_in(queue, job_id) == b"YES"
        text.get(queue)
        assert text.is_in(queue, job_id) == b"YES"
        text.ack(queue, job_id)
        assert text.is_in(queue, job_id) == b"NO"

    def test_is_no_in_another_queue(self, text: TextClient, queue: str) -> None:
        job_id = text.add(queue, b"x")
        assert text.is_in(f"{queue}-other", job_id) == b"NO"


class TestAnythingElse:
    @pytest.mark.parametrize(
        "command",
        [
            b"\n",
            b"\r\n",
            b"HELLO\n",
            b"HELLO",
            b"get q\n",
            b" GET q\n",
            b"GET q r\n",
            b"GET  q\n",
            b"GET q \n",
            b"GET\n",
            b"GET \n",
            b"GET \xff\n",
            b"GET a\tb\n",
            b"ACK q\n",
            b"ACK q a b\n",
            b"IN\n",
            b"IN q\n",
            b"ADD\n",
            b"ADD q\n",
            b"ADD  1 x",
            b"ADD \xff 1 x",
            b"SAVE\n",
            b"\0\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        ],
    )
    def test_is_an_error_of_one_line(self, text: TextClient, command: bytes) -> None:
        assert re.fullmatch(rb"ERROR [ -~]+", text.ask(command))

    def test_names_have_1_to_4096_bytes_of_utf8(self, text: TextClient) -> None:
        for name in ("a", "é" * 2048, "\x00", "{}[]", "☃"):
            assert text.ask(f"GET {name}\n".encode()) == b"NONE"
        assert text.ask(b"GET " + b"q" * 4097 + b"\n").startswith(b"ERROR ")
        assert text.ask(b"ADD " + b"q" * 4097 + b" 1 x").startswith(b"ERROR ")


@pytest.fixture(scope="module")
def short_leases(stack: Stack) -> Iterator[AdapterPart]:
    adapter = stack.further_adapter("text-queue", QUINTET_LEASE_SECONDS="1")
    adapter.start()
    yield adapter
    adapter.terminate()


class TestLeases:
    def test_that_run_out_bring_the_job_back_to_its_place(
        self, stack: Stack, short_leases: AdapterPart, queue: str
    ) -> None:
        text = TextClient(short_leases.address)
        first, second, third = (text.add(queue, b"%d" % number) for number in range(3))
        assert [text.get(queue), text.get(queue)] == [(first, b"0"), (second, b"1")]
        until(lambda: stack.counts(queue).leased == 0, "the leases to run out")
        patient = TextClient(stack.text_queue.address)
        assert [patient.get(queue) for _ in range(3)] == [(first, b"0"), (second, b"1"), (third, b"2")]

    def test_that_ran_out_are_told_to_late_workers_and_the_job_stays(
        self, stack: Stack, short_leases: AdapterPart, queue: str
    ) -> None:
        text = TextClient(short_leases.address)
        job_id = text.add(queue, b"x")
        text.get(queue)
        until(lambda: stack.counts(queue).leased == 0, "the lease to run out")
        assert text.ack(queue, job_id) == b"NO"
        assert text.is_in(queue, job_id) == b"YES"

    def test_taken_anew_are_acknowledged_by_a_late_worker(
        self, stack: Stack, short_leases: AdapterPart, queue: str
    ) -> None:
        late, patient = TextClient(short_leases.address), TextClient(stack.text_queue.address)
        job_id = late.add(queue, b"x")
        late.get(queue)
        until(lambda: patient.get(queue) is not None, "the job to come back")
        assert late.ack(queue, job_id) == b"OK"


@pytest.fixture(scope="module")
def course(stack: Stack) -> Iterator[TextClient]:
    adapter = stack.further_adapter("text-queue", QUINTET_DIALECT="course", QUINTET_LEASE_SECONDS="1")
    adapter.start()
    yield TextClient(adapter.address)
    adapter.terminate()


class TestDialectCourse:
    def test_ack_answers_yes_and_no(self, course: TextClient, queue: str) -> None:
        job_id = course.add(queue, b"x")
        assert course.ack(queue, job_id) == b"NO"
        course.get(queue)
        assert course.ack(queue, job_id) == b"YES"

    def test_errors_are_the_bare_word(self, course: TextClient) -> None:
        assert course.ask(b"HELLO\n") == b"ERROR"

    @pytest.mark.parametrize("command", [b"SAVE", b"SAVE\n", b"SAVE\r\n"])
    def test_save_is_ok(self, course: TextClient, command: bytes) -> None:
        assert course.ask(command) == b"OK"


class TestBetweenProtocols:
    def test_a_job_of_job_centre_is_its_bytes(self, text: TextClient, client: JobCentreClient, queue: str) -> None:
        line = b'{"request":"put","queue":"%b","job":{ "a" :1.0},"pri":3}' % queue.encode()
        job_id = client.ask(line)["id"]
        assert text.get(queue) == (b"%016x" % job_id, b'{ "a" :1.0}')

    def test_higher_priorities_of_job_centre_come_first(
        self, text: TextClient, client: JobCentreClient, queue: str
    ) -> None:
        text.add(queue, b"x")
        urgent = client.put(queue, pri=5)
        taken = text.get(queue)
        assert taken is not None
        assert taken[0] == b"%016x" % urgent


class TestRestarts:
    def test_lose_nothing_and_change_no_state(self) -> None:
        with Stack() as stack:
            text = TextClient(stack.text_queue.address)
            leased, waiting, done = (text.add("q", data) for data in (b"1", b"2", b"3"))
            assert text.get("q") == (leased, b"1")
            for _ in range(2):
                stack.kill9()
                stack.start()
                text = TextClient(stack.text_queue.address)
                assert [text.is_in("q", job) for job in (leased, waiting, done)] == [b"YES"] * 3
            assert text.get("q") == (waiting, b"2")
            assert text.get("q") == (done, b"3")
            assert text.get("q") is None
            assert text.ack("q", leased) == b"OK"
            assert text.add("q", b"4") not in (leased, waiting, done)

    def test_without_the_core_every_command_is_an_error_until_it_is_back(self) -> None:
        with Stack() as stack:
            text = TextClient(stack.text_queue.address)
            job_id = text.add("q", b"1")
            stack.core.kill9()
            commands = (b"ADD q 1 x", b"GET q\n", b"ACK q " + job_id, b"IN q " + job_id)
            for command in commands:
                assert text.ask(command).startswith(b"ERROR ")
            assert stack.text_queue.readiness()[0] == 503
            stack.core.start()
            until(lambda: text.is_in("q", job_id) == b"YES", "the adapter to find the core again")
            assert text.get("q") == (job_id, b"1")
