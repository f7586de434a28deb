"""Job Centre on the wire, against real processes: every rule of its page."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import SESSION_TTL_MS, NewClient
from tests.support.clients import JobCentreClient, TextClient, connect, read_all
from tests.support.stack import Stack, until

NO_JOB = {"status": "no-job"}
OK = {"status": "ok"}
UNKNOWN = 2**53 - 1


def put_line(queue: str, job: str = "{}", pri: str = "1") -> bytes:
    return f'{{"request":"put","queue":{json.dumps(queue)},"job":{job},"pri":{pri}}}'.encode()


def is_error(answer: dict[str, object]) -> bool:
    return answer["status"] == "error" and isinstance(answer["error"], str) and bool(answer["error"])


class TestTheExampleSession:
    def test_goes_as_in_the_source(self, client: JobCentreClient, queue: str) -> None:
        answer = client.ask({"request": "put", "queue": queue, "job": {"title": "example-job"}, "pri": 123})
        job_id = answer["id"]
        assert answer == {"status": "ok", "id": job_id}
        job = {"status": "ok", "id": job_id, "job": {"title": "example-job"}, "pri": 123, "queue": queue}
        assert client.ask({"request": "get", "queues": [queue]}) == job
        assert client.ask({"request": "abort", "id": job_id}) == OK
        assert client.ask({"request": "get", "queues": [queue]}) == job
        assert client.ask({"request": "delete", "id": job_id}) == OK
        assert client.ask({"request": "get", "queues": [queue]}) == NO_JOB
        client.send({"request": "get", "queues": [queue], "wait": True})
        assert client.is_silent()


class TestLines:
    def test_answers_are_lines_in_the_very_form_of_the_page(self, client: JobCentreClient, queue: str) -> None:
        client.send(put_line(queue, '{"a":1}', "7"))
        line = client.read_line()
        job_id = json.loads(line)["id"]
        assert line == b'{"status":"ok","id":%d}\n' % job_id
        client.send(
            {"request": "get", "queues": [queue]}, {"request": "delete", "id": job_id}, b'{"request":"get","queues":[]}'
        )
        taken = b'{"status":"ok","id":%d,"job":{"a":1},"pri":7,"queue":"%b"}\n' % (job_id, queue.encode())
        assert [client.read_line() for _ in range(3)] == [taken, b'{"status":"ok"}\n', b'{"status":"no-job"}\n']

    def test_a_carriage_return_before_the_newline_is_white_space(self, client: JobCentreClient) -> None:
        assert client.ask(b'{"request":"get","queues":[]}\r') == NO_JOB

    def test_any_split_gives_the_same_result(self, client: JobCentreClient, queue: str) -> None:
        chance = random.Random(3)
        lines = b"".join(put_line(queue, f'{{"n":{number}}}') + b"\n" for number in range(30))
        lines += json.dumps({"request": "get", "queues": [queue]}).encode() + b"\n"
        start = 0
        while start < len(lines):
            end = start + chance.randrange(1, 40)
            client.connection.sendall(lines[start:end])
            start = end
        answers = [client.read() for _ in range(31)]
        assert [answer["status"] for answer in answers] == ["ok"] * 31
        assert answers[30]["job"] == {"n": 0}

    def test_pipelined_requests_take_effect_and_are_answered_in_order(
        self, client: JobCentreClient, queue: str
    ) -> None:
        client.send(
            {"request": "get", "queues": [queue]},
            *(put_line(queue, f'{{"n":{number}}}', str(number)) for number in range(50)),
            *([{"request": "get", "queues": [queue]}] * 51),
        )
        assert client.read() == NO_JOB
        ids = [client.read()["id"] for _ in range(50)]
        assert len(set(ids)) == 50
        assert [client.read()["job"]["n"] for _ in range(50)] == list(reversed(range(50)))
        assert client.read() == NO_JOB

    def test_thousands_of_requests_in_one_go_are_answered(self, client: JobCentreClient, queue: str) -> None:
        requests = [put_line(queue)] * 2000 + [b'{"request":"get","queues":["%b"]}' % queue.encode()] * 2001
        sender = threading.Thread(target=client.send, args=requests)
        sender.start()
        statuses = [client.read()["status"] for _ in range(4001)]
        sender.join()
        assert statuses == ["ok"] * 4000 + ["no-job"]

    def test_an_unterminated_last_line_is_not_a_request(self, client: JobCentreClient, queue: str) -> None:
        client.connection.sendall(put_line(queue) + b"\n" + put_line(queue))
        client.half_close()
        assert client.read()["status"] == "ok"
        assert client.read_line() == b""

    def test_a_line_over_the_limit_is_answered_once_and_the_rest_of_it_skipped(
        self, client: JobCentreClient, queue: str
    ) -> None:
        client.send(b"x" * (9 * 1024 * 1024), put_line(queue))
        assert is_error(client.read())
        assert client.read()["status"] == "ok"

    def test_a_job_of_nearly_the_payload_limit_comes_back(self, client: JobCentreClient, queue: str) -> None:
        job = {"data": "x" * (4 * 1024 * 1024 - 100)}
        client.put(queue, job)
        assert client.get(queue)["job"] == job

    def test_a_job_over_the_payload_limit_is_an_error_that_names_it(self, client: JobCentreClient, queue: str) -> None:
        answer = client.ask({"request": "put", "queue": queue, "job": {"data": "x" * 4 * 1024 * 1024}, "pri": 1})
        assert is_error(answer)
        assert str(4 * 1024 * 1024) in answer["error"]
        assert client.get(queue) == NO_JOB


class TestInvalidRequests:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"\r",
            b" ",
            b"x",
            b"[]",
            b"1",
            b'"put"',
            b"null",
            b"{}",
            b"{",
            b"\x00",
            b"\xff\xfe",
            b'\xef\xbb\xbf{"request":"delete","id":1}',
            b'{"request":1}',
            b'{"request":null}',
            b'{"request":"PUT"}',
            b'{"request":"peek"}',
            b'{"request":"delete","id":1',
            b'{"request":"delete","id":1}}',
            b'{"request":"delete","id":1,}',
            b'{"request":"delete","id":01}',
            b'{"request":"delete","id":NaN}',
            b'{"request":"delete"}',
            b'{"request":"delete","id":null}',
            b'{"request":"delete","id":"1"}',
            b'{"request":"delete","id":1.0}',
            b'{"request":"delete","id":1e3}',
            b'{"request":"delete","id":true}',
            b'{"request":"delete","id":[1]}',
            b'{"request":"abort"}',
            b'{"request":"abort","id":1.5}',
            b'{"request":"put","queue":"q","job":{}}',
            b'{"request":"put","queue":"q","pri":1}',
            b'{"request":"put","job":{},"pri":1}',
            b'{"request":"put","queue":1,"job":{},"pri":1}',
            b'{"request":"put","queue":null,"job":{},"pri":1}',
            b'{"request":"put","queue":"q","job":[],"pri":1}',
            b'{"request":"put","queue":"q","job":"x","pri":1}',
            b'{"request":"put","queue":"q","job":null,"pri":1}',
            b'{"request":"put","queue":"q","job":{},"pri":-1}',
            b'{"request":"put","queue":"q","job":{},"pri":1.0}',
            b'{"request":"put","queue":"q","job":{},"pri":"1"}',
            b'{"request":"put","queue":"q","job":{},"pri":true}',
            b'{"request":"put","queue":"q","job":{},"pri":null}',
            b'{"request":"put","queue":"q","job":{},"pri":9223372036854775808}',
            b'{"request":"put","queue":"\\ud800","job":{},"pri":1}',
            b'{"request":"put","queue":"' + b"q" * 4097 + b'","job":{},"pri":1}',
            b'{"request":"put","queue":"q","job":{"a":"\xff"},"pri":1}',
            b'{"request":"put","queue":"q","job":{"a":"\\x"},"pri":1}',
            b'{"request":"put","queue":"q","job":{"a":"\\u12g4"},"pri":1}',
            b'{"request":"put","queue":"q","job":{"a":"\x01"},"pri":1}',
            b'{"request":"put","queue":"q","job":{a:1},"pri":1}',
            b'{"request":"get"}',
            b'{"request":"get","queues":null}',
            b'{"request":"get","queues":"q"}',
            b'{"request":"get","queues":[1]}',
            b'{"request":"get","queues":["q",null]}',
            b'{"request":"get","queues":["q"],"wait":null}',
            b'{"request":"get","queues":["q"],"wait":"true"}',
            b'{"request":"get","queues":["q"],"wait":1}',
            b'{"request":"get","queues":["\\ud800"]}',
        ],
    )
    def test_get_an_error_and_the_connection_stays(self, client: JobCentreClient, line: bytes) -> None:
        assert is_error(client.ask(line))
        assert client.get("none-such") == NO_JOB

    def test_errors_say_what_is_wrong_with_a_name(self, client: JobCentreClient) -> None:
        lone = client.ask(b'{"request":"put","queue":"\\ud800","job":{},"pri":1}')
        assert "surrogate" in lone["error"]
        assert "4096" in client.ask(put_line("q" * 4097))["error"]

    def test_unknown_fields_and_those_of_other_requests_are_ignored(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        line = b'{"pri":"x","extra":{"a":[1]},"queue":null,"id":%d,"wait":3,"request":"delete"}' % job_id
        assert client.ask(line) == OK

    def test_a_field_given_twice_counts_last(self, client: JobCentreClient, queue: str) -> None:
        first, second = client.put(queue), client.put(queue)
        line = b'{"request":"get","id":"x","id":%d,"request":"delete"}' % first
        assert client.ask(line) == OK
        assert client.get(queue)["id"] == second

    def test_half_answered_garbage_disturbs_nobody(self, new_client: NewClient, queue: str) -> None:
        vandal, user = new_client(), new_client()
        vandal.connection.sendall(b'{"request":"put"' + b"\xff" * 1000)
        job_id = user.put(queue)
        assert user.get(queue)["id"] == job_id


class TestPut:
    @pytest.mark.parametrize(
        "job",
        [
            "{}",
            '{ "b" : 1.0e5 ,\t"a":[-0, 1E+2, 0.10] }',
            '{"a":1,"a":2}',
            '{"\\u0061":"\\/\\u00e9é☃\\ud83d\\ude00"}',
            '{"\\ud800":"\\udfff\\ud800x"}',
            '{"big":123456789012345678901234567890.000}',
            '{"a":{"request":"put"}}',
            '{"a":"\x7f\u2028"}',
        ],
    )
    def test_the_job_comes_back_exactly_as_it_was_sent(self, client: JobCentreClient, queue: str, job: str) -> None:
        client.ask(put_line(queue, job))
        client.send({"request": "get", "queues": [queue]})
        assert b'"job":' + job.encode() + b',"pri":1,' in client.read_line()

    def test_nesting_to_512_levels_works(self, client: JobCentreClient, queue: str) -> None:
        job = '{"a":' * 512 + "[]" + "}" * 512
        client.ask(put_line(queue, job))
        client.send({"request": "get", "queues": [queue]})
        assert job.encode() in client.read_line()

    def test_nesting_beyond_all_measure_hurts_nobody(self, client: JobCentreClient, queue: str) -> None:
        assert client.ask(put_line(queue, '{"a":' + "[" * 1_000_000 + "]" * 1_000_000 + "}"))["status"] in (
            "ok",
            "error",
        )
        assert client.get("none-such") == NO_JOB

    @pytest.mark.parametrize("name", ["", " ", "é☃😀", 'a\nb\0"\\', "x" * 4096, "é" * 2048])
    def test_any_string_names_a_queue(self, client: JobCentreClient, name: str) -> None:
        job_id = client.put(name, pri=2**63 - 1)
        answer = client.get(name)
        assert (answer["id"], answer["queue"], answer["pri"]) == (job_id, name, 2**63 - 1)
        client.delete(job_id)

    def test_ids_are_integers_below_2_to_53_and_never_equal(self, client: JobCentreClient, queue: str) -> None:
        ids = [client.put(f"{queue}-{number}") for number in range(50)]
        assert len(set(ids)) == 50
        assert all(0 < job_id < 2**53 for job_id in ids)

    def test_minus_zero_is_zero(self, client: JobCentreClient, queue: str) -> None:
        assert client.ask(put_line(queue, pri="-0"))["status"] == "ok"
        assert client.get(queue)["pri"] == 0


class TestGet:
    def test_the_highest_priority_comes_first_across_all_queues(self, client: JobCentreClient, queue: str) -> None:
        names = [f"{queue}-{number}" for number in range(20)]
        priorities = random.Random(7).sample(range(1000), 60)
        for number, pri in enumerate(priorities):
            client.put(names[number % 20], pri=pri)
        taken = [client.get(*names)["pri"] for _ in priorities]
        assert taken == sorted(priorities, reverse=True)

    def test_the_order_of_priorities_is_exact_beyond_53_bits(self, client: JobCentreClient, queue: str) -> None:
        for pri in (2**62, 2**62 + 1, 2**62 - 1):
            client.put(queue, pri=pri)
        assert [client.get(queue)["pri"] for _ in range(3)] == [2**62 + 1, 2**62, 2**62 - 1]

    def test_without_wait_answers_no_job_at_once(self, client: JobCentreClient, queue: str) -> None:
        assert client.get(queue) == NO_JOB
        assert client.ask({"request": "get", "queues": [queue], "wait": False}) == NO_JOB
        assert client.ask({"request": "get", "queues": [queue]}) == NO_JOB

    def test_names_may_be_repeated(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        assert client.get(queue, queue, queue)["id"] == job_id

    def test_a_thousand_names_work(self, client: JobCentreClient, queue: str) -> None:
        names = [f"{queue}-{number}" for number in range(1000)]
        assert client.get(*names) == NO_JOB
        job_id = client.put(names[999])
        assert client.get(*names)["id"] == job_id

    def test_a_wait_on_a_thousand_names_works(self, new_client: NewClient, queue: str) -> None:
        waiter, putter = new_client(), new_client()
        names = [f"{queue}-{number}" for number in range(1000)]
        waiter.send({"request": "get", "queues": names, "wait": True})
        assert waiter.is_silent()
        job_id = putter.put(names[500])
        assert waiter.read()["id"] == job_id

    def test_of_no_queue_is_no_job_and_with_wait_waits_for_ever(self, client: JobCentreClient) -> None:
        assert client.ask({"request": "get", "queues": []}) == NO_JOB
        client.send({"request": "get", "queues": [], "wait": True}, {"request": "get", "queues": []})
        assert client.is_silent()


class TestWait:
    def test_ends_with_a_put(self, new_client: NewClient, queue: str) -> None:
        waiter, putter = new_client(), new_client()
        waiter.send({"request": "get", "queues": [f"{queue}-other", queue], "wait": True})
        assert waiter.is_silent()
        job_id = putter.put(queue, {"a": 1}, 5)
        assert waiter.read() == {"status": "ok", "id": job_id, "job": {"a": 1}, "pri": 5, "queue": queue}

    def test_ends_at_once_when_a_job_is_there(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        assert client.get(queue, wait=True)["id"] == job_id

    def test_ends_with_an_abort(self, new_client: NewClient, queue: str) -> None:
        worker, waiter = new_client(), new_client()
        job_id = worker.put(queue)
        worker.get(queue)
        waiter.send({"request": "get", "queues": [queue], "wait": True})
        assert waiter.is_silent()
        assert worker.abort(job_id) == "ok"
        assert waiter.read()["id"] == job_id

    @pytest.mark.parametrize("leave", [JobCentreClient.close, JobCentreClient.reset])
    def test_ends_when_the_worker_disconnects(self, new_client: NewClient, queue: str, leave: object) -> None:
        worker, waiter = new_client(), new_client()
        job_id = worker.put(queue)
        worker.get(queue)
        waiter.send({"request": "get", "queues": [queue], "wait": True})
        assert waiter.is_silent()
        leave(worker)  # type: ignore[operator]
        assert waiter.read()["id"] == job_id

    def test_gives_each_job_to_exactly_one_waiter_in_order_of_arrival(self, new_client: NewClient, queue: str) -> None:
        waiters = [new_client() for _ in range(5)]
        putter = new_client()
        for number, waiter in enumerate(waiters):
            waiter.send({"request": "get", "queues": [queue], "wait": True})
            # Arrival is what the core sees: an answer on the same connection cannot tell, silence must do.
            assert waiter.is_silent(0.05), number
        ids = [putter.put(queue) for _ in range(5)]
        assert [waiter.read()["id"] for waiter in waiters] == ids
        assert putter.get(queue) == NO_JOB

    def test_holds_back_what_is_behind_it(self, new_client: NewClient, queue: str) -> None:
        waiter, putter = new_client(), new_client()
        waiter.send({"request": "get", "queues": [queue], "wait": True}, put_line(f"{queue}-behind"))
        assert waiter.is_silent()
        assert putter.get(f"{queue}-behind") == NO_JOB
        job_id = putter.put(queue)
        assert waiter.read()["id"] == job_id
        assert waiter.read()["status"] == "ok"

    @pytest.mark.parametrize("leave", [JobCentreClient.close, JobCentreClient.reset])
    def test_of_a_client_that_disconnects_loses_no_job(self, new_client: NewClient, queue: str, leave: object) -> None:
        waiter, putter = new_client(), new_client()
        waiter.send({"request": "get", "queues": [queue], "wait": True})
        assert waiter.is_silent(0.1)
        leave(waiter)  # type: ignore[operator]
        job_id = putter.put(queue)
        until(lambda: putter.get(queue).get("id") == job_id, "the job that nobody waits for any more")


class TestDelete:
    def test_of_a_waiting_job_is_ok_and_then_no_job(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        assert [client.delete(job_id), client.delete(job_id)] == ["ok", "no-job"]
        assert client.get(queue) == NO_JOB

    def test_is_valid_from_any_client_while_another_works_on_the_job(self, new_client: NewClient, queue: str) -> None:
        worker, other = new_client(), new_client()
        job_id = worker.put(queue)
        worker.get(queue)
        assert other.delete(job_id) == "ok"
        assert [worker.abort(job_id), worker.delete(job_id)] == ["no-job", "no-job"]
        worker.close()
        assert other.get(queue) == NO_JOB

    @pytest.mark.parametrize(
        "job_id", ["0", "-0", "-5", "12345678901234567890", "9" * 5000, "-" + "9" * 5000, str(UNKNOWN)]
    )
    def test_of_an_unknown_id_of_any_size_and_sign_is_no_job(self, client: JobCentreClient, job_id: str) -> None:
        assert client.ask(f'{{"request":"delete","id":{job_id}}}'.encode()) == NO_JOB
        assert client.ask(f'{{"request":"abort","id":{job_id}}}'.encode()) == NO_JOB


class TestAbort:
    def test_returns_the_job_to_its_place(self, client: JobCentreClient, queue: str) -> None:
        first, second = client.put(queue), client.put(queue)
        assert client.get(queue)["id"] == first
        assert client.abort(first) == "ok"
        assert [client.get(queue)["id"], client.get(queue)["id"]] == [first, second]

    def test_of_a_job_that_waits_in_its_queue_is_an_error(self, client: JobCentreClient, queue: str) -> None:
        assert client.abort(client.put(queue)) == "error"

    def test_twice_is_an_error(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        client.get(queue)
        assert [client.abort(job_id), client.abort(job_id)] == ["ok", "error"]

    def test_of_a_job_that_another_works_on_is_an_error_and_changes_nothing(
        self, new_client: NewClient, queue: str
    ) -> None:
        worker, other = new_client(), new_client()
        job_id = worker.put(queue)
        worker.get(queue)
        assert other.abort(job_id) == "error"
        assert other.get(queue) == NO_JOB
        assert worker.abort(job_id) == "ok"

    def test_of_a_job_that_moved_on_to_another_is_an_error(self, new_client: NewClient, queue: str) -> None:
        first, second = new_client(), new_client()
        job_id = first.put(queue)
        first.get(queue)
        first.abort(job_id)
        assert second.get(queue)["id"] == job_id
        assert first.abort(job_id) == "error"
        assert second.abort(job_id) == "ok"

    def test_of_a_deleted_job_is_no_job(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        client.get(queue)
        client.delete(job_id)
        assert client.abort(job_id) == "no-job"

    def test_may_follow_its_get_without_waiting_for_it(self, client: JobCentreClient, queue: str) -> None:
        job_id = client.put(queue)
        get = {"request": "get", "queues": [queue]}
        abort = {"request": "abort", "id": job_id}
        client.send(get, abort, get, abort, abort, {"request": "delete", "id": job_id}, abort)
        statuses = [client.read()["status"] for _ in range(7)]
        assert statuses == ["ok", "ok", "ok", "ok", "error", "ok", "no-job"]


class TestDisconnect:
    def test_aborts_all_jobs_but_deleted_ones(self, new_client: NewClient, queue: str) -> None:
        worker, other = new_client(), new_client()
        ids = [worker.put(queue) for _ in range(5)]
        assert [worker.get(queue)["id"] for _ in range(5)] == ids
        assert other.delete(ids[2]) == "ok"
        assert other.get(queue) == NO_JOB
        worker.close()
        back = [other.ask({"request": "get", "queues": [queue], "wait": True})["id"] for _ in range(4)]
        assert back == ids[:2] + ids[3:]
        assert other.get(queue) == NO_JOB

    def test_leases_last_as_long_as_the_connection(self, new_client: NewClient, queue: str) -> None:
        worker, other = new_client(), new_client()
        job_id = worker.put(queue)
        worker.get(queue)
        other.send({"request": "get", "queues": [queue], "wait": True})
        assert other.is_silent(1.5 * SESSION_TTL_MS / 1000)
        assert worker.abort(job_id) == "ok"
        assert other.read()["id"] == job_id

    def test_a_half_closed_client_gets_what_it_is_owed_and_is_then_gone(
        self, new_client: NewClient, queue: str
    ) -> None:
        leaver, other = new_client(), new_client()
        leaver.send(*[put_line(queue)] * 20, {"request": "get", "queues": [queue]})
        leaver.half_close()
        answers = [leaver.read() for _ in range(21)]
        assert leaver.read_line() == b""
        ids = [answer["id"] for answer in answers]
        assert ids[20] == ids[0]
        assert other.ask({"request": "get", "queues": [queue], "wait": True})["id"] == ids[0]

    def test_end_of_stream_ends_a_wait_unanswered_and_drops_what_is_behind_it(
        self, new_client: NewClient, queue: str
    ) -> None:
        waiter, other = new_client(), new_client()
        waiter.send(put_line(f"{queue}-before"), {"request": "get", "queues": [queue], "wait": True}, put_line(queue))
        waiter.half_close()
        assert waiter.read()["status"] == "ok"
        assert waiter.read_line() == b""
        assert other.get(queue) == NO_JOB

    def test_end_of_stream_while_waiting_for_no_queue_closes(self, client: JobCentreClient) -> None:
        client.send({"request": "get", "queues": [], "wait": True})
        client.half_close()
        assert client.read_line() == b""


class TestBetweenProtocols:
    def test_bytes_of_the_text_queue_are_wrapped(self, client: JobCentreClient, text: TextClient, queue: str) -> None:
        text.add(queue, b'he said "hi"\n')
        text.add(queue, b"\xff\x00")
        text.add(queue, b'{"a":1}')
        jobs = [client.get(queue) for _ in range(3)]
        assert [job["job"] for job in jobs] == [
            {"encoding": "utf-8", "data": 'he said "hi"\n'},
            {"encoding": "base64", "data": "/wA="},
            {"encoding": "utf-8", "data": '{"a":1}'},
        ]
        assert [job["pri"] for job in jobs] == [0, 0, 0]

    def test_ids_are_the_same_numbers(self, client: JobCentreClient, text: TextClient, queue: str) -> None:
        shown = text.add(queue, b"x")
        assert b"%016x" % client.get(queue)["id"] == shown

    def test_a_job_ended_by_another_tongue_is_no_job_to_abort(
        self, client: JobCentreClient, text: TextClient, queue: str
    ) -> None:
        job_id = client.put(queue)
        client.get(queue)
        assert text.ack(queue, b"%016x" % job_id) == b"OK"
        assert client.abort(job_id) == "no-job"


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    with Stack() as stack:
        yield stack


def connected(stack: Stack) -> JobCentreClient:
    return JobCentreClient(stack.job_centre.address)


class TestRestarts:
    """On a stack of their own."""

    def test_of_everything_lose_no_job_and_reuse_no_id(self, own_stack: Stack) -> None:
        with connected(own_stack) as client:
            ids = [client.put("kept", {"n": number}, number) for number in range(10)]
            client.get("kept")
        own_stack.kill9()
        own_stack.start()
        with connected(own_stack) as client:
            taken = [client.get("kept", wait=True)["id"] for _ in range(10)]
            # What was worked on comes when its session has lapsed, which may have been while everything started.
            assert [each for each in taken if each != ids[-1]] == ids[-2::-1]
            assert ids[-1] in taken
            assert client.put("kept") not in ids

    def test_of_the_adapter_return_what_its_clients_worked_on(self, own_stack: Stack) -> None:
        client = connected(own_stack)
        job_id = client.put("returned")
        client.get("returned")
        own_stack.job_centre.kill9()
        assert client.read_line() == b""
        client.close()
        own_stack.job_centre.start()
        with connected(own_stack) as client:
            assert client.get("returned", wait=True)["id"] == job_id

    def test_without_the_core_every_request_is_an_error_until_it_is_back(self, own_stack: Stack) -> None:
        with (
            JobCentreClient(own_stack.job_centre.address) as waiter,
            JobCentreClient(own_stack.job_centre.address) as client,
        ):
            waiter.send({"request": "get", "queues": ["away"], "wait": True})
            assert waiter.is_silent(0.1)
            own_stack.core.kill9()
            assert is_error(waiter.read())
            for request in (put_line("away"), {"request": "get", "queues": ["away"]}, {"request": "delete", "id": 5}):
                assert is_error(client.ask(request))
            own_stack.core.start()
            until(lambda: client.get("away") == NO_JOB, "the adapter to find the core again")
            job_id = client.put("away")
            assert waiter.get("away")["id"] == job_id

    def test_sigterm_ends_waits_with_an_error_and_returns_jobs(self, own_stack: Stack) -> None:
        with (
            JobCentreClient(own_stack.job_centre.address) as worker,
            JobCentreClient(own_stack.job_centre.address) as waiter,
        ):
            job_id = worker.put("drained")
            worker.get("drained")
            waiter.send({"request": "get", "queues": ["drained"], "wait": True})
            assert waiter.is_silent(0.1)
            assert own_stack.job_centre.terminate() == 0
            assert is_error(waiter.read())
            assert (waiter.read_line(), worker.read_line()) == (b"", b"")
        own_stack.job_centre.start()
        with connected(own_stack) as client:
            assert client.get("drained", wait=True)["id"] == job_id

    def test_connections_beyond_the_limit_are_closed_at_once(self, own_stack: Stack) -> None:
        adapter = own_stack.further_adapter("job-centre", QUINTET_CONNECTIONS_MAX="2")
        adapter.start()
        with JobCentreClient(adapter.address) as first, JobCentreClient(adapter.address):
            with connect(adapter.address) as third:
                assert read_all(third) == b""
            assert first.get("any") == NO_JOB
        adapter.terminate()
