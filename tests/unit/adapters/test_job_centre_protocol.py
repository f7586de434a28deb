"""Job Centre without sockets: what requests ask, what is answered, and in which order."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet.v1 import job_pb2, reason_pb2
from quintet.v1.session_service_pb2 import SessionResult
from quintet_adapters.messages import REASON_TEXTS, Request
from quintet_adapters.protocols.conversation import End
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_adapters.protocols.job_centre_requests import JobCentreLimits, JobCentreReader

from tests.support.play import Play, deleted, dequeued, enqueued, failed, found, nothing_dequeued, released

OK = b'{"status":"ok"}\n'
NO_JOB = b'{"status":"no-job"}\n'
NOT_FOUND = failed(reason_pb2.REASON_JOB_NOT_FOUND)
NOT_LEASED = failed(reason_pb2.REASON_NOT_LEASED)
STALE = failed(reason_pb2.REASON_STALE_LEASE)
CANCELLED = failed(reason_pb2.REASON_CANCELLED)
AWAY = failed(reason_pb2.REASON_UNAVAILABLE)


def play(**limits: object) -> Play:
    return Play(JobCentre(JobCentreReader(JobCentreLimits(**limits)), Counter()))  # type: ignore[arg-type]


def put(queue: str = "q", job: str = "{}", pri: int = 1) -> bytes:
    return f'{{"request":"put","queue":{json.dumps(queue)},"job":{job},"pri":{pri}}}\n'.encode()


def get(*queues: str, wait: bool = False) -> bytes:
    return (
        json.dumps({"request": "get", "queues": queues or ["q"], **({"wait": True} if wait else {})}).encode() + b"\n"
    )


def delete(job_id: int) -> bytes:
    return b'{"request":"delete","id":%d}\n' % job_id


def abort(job_id: int) -> bytes:
    return b'{"request":"abort","id":%d}\n' % job_id


def working_on(job_id: int = 7, token: int = 3) -> Play:
    playing = play().client_sends(get()).core_answers(dequeued(job_id, token=token))
    assert playing.written
    return playing


def error_in(line: bytes) -> str:
    answer = json.loads(line)
    assert answer["status"] == "error"
    assert line.count(b"\n") == 1
    return str(answer["error"])


class TestPut:
    def test_puts_the_source_bytes_of_the_job(self) -> None:
        job = '{ "b":1.0e5,"a":"\\u00e9\\/",  "a":[-0, 1E+2]\t}'
        message = play().client_sends(put("q1", job, 123)).asked[0].message
        assert message.jobs[0].payload == job.encode()
        assert (message.queue, message.jobs[0].rank, message.create_if_missing) == ("q1", -123, True)
        assert message.jobs[0].content_type == "application/json"

    def test_answers_the_id(self) -> None:
        assert play().client_sends(put()).core_answers(enqueued(12345)).written == b'{"status":"ok","id":12345}\n'

    @pytest.mark.parametrize(("source", "pri"), [("0", 0), ("-0", 0), ("9223372036854775807", 2**63 - 1), (" 7 ", 7)])
    def test_takes_every_priority_up_to_the_bound(self, source: str, pri: int) -> None:
        line = f'{{"request":"put","queue":"","job":{{}},"pri":{source}}}\n'.encode()
        assert play().client_sends(line).asked[0].message.jobs[0].rank == -pri

    @pytest.mark.parametrize(
        "source", ["1.0", '"1"', "true", "null", "-1", "1e2", "[]", "{}", "9223372036854775808", "9" * 5000]
    )
    def test_refuses_every_other_priority(self, source: str) -> None:
        line = f'{{"request":"put","queue":"q","job":{{}},"pri":{source}}}\n'.encode()
        assert "pri" in error_in(play().client_sends(line).written)

    @pytest.mark.parametrize("job", ["[]", '"x"', "1", "null", "true"])
    def test_refuses_a_job_that_is_no_object(self, job: str) -> None:
        assert "job" in error_in(play().client_sends(put(job=job)).written)

    @pytest.mark.parametrize("queue", ["1", "null", "[]", "{}", "true"])
    def test_refuses_a_queue_that_is_no_string(self, queue: str) -> None:
        line = f'{{"request":"put","queue":{queue},"job":{{}},"pri":1}}\n'.encode()
        assert "queue" in error_in(play().client_sends(line).written)

    @pytest.mark.parametrize(
        ("source", "name"),
        [('""', ""), ('"\\u00e9\\n"', "é\n"), ('"é"', "é"), ('"\\ud83d\\ude00"', "😀"), ('"\x7f"', "\x7f")],
    )
    def test_takes_any_string_for_a_queue(self, source: str, name: str) -> None:
        line = f'{{"request":"put","queue":{source},"job":{{}},"pri":1}}\n'.encode()
        assert play().client_sends(line).asked[0].message.queue == name

    def test_refuses_a_queue_name_with_a_lone_surrogate_and_says_so(self) -> None:
        line = b'{"request":"put","queue":"\\ud800","job":{},"pri":1}\n'
        assert "surrogate" in error_in(play().client_sends(line).written)

    def test_takes_a_queue_name_of_4096_bytes_and_none_longer(self) -> None:
        assert play().client_sends(put("é" * 2048)).verbs == ["enqueue"]
        assert "4096" in error_in(play().client_sends(put("é" * 2048 + "x")).written)

    @pytest.mark.parametrize("field", ["queue", "job", "pri"])
    def test_refuses_a_missing_field(self, field: str) -> None:
        fields = {"request": "put", "queue": "q", "job": {}, "pri": 1}
        del fields[field]
        assert field in error_in(play().client_sends(json.dumps(fields).encode() + b"\n").written)

    def test_returns_escapes_of_lone_surrogates_as_sent(self) -> None:
        job = '{"\\ud800":"\\udfff\\ud800\\u0041"}'
        assert play().client_sends(put(job=job)).asked[0].message.jobs[0].payload == job.encode()

    def test_takes_512_levels(self) -> None:
        job = '{"a":' * 512 + "1" + "}" * 512
        assert play().client_sends(put(job=job)).asked[0].message.jobs[0].payload == job.encode()

    def test_survives_100_000_levels(self) -> None:
        error_in(play().client_sends(put(job='{"a":' + "[" * 100_000 + "]" * 100_000 + "}")).written)

    def test_names_the_limit_that_a_job_passed(self) -> None:
        result = failed(reason_pb2.REASON_PAYLOAD_TOO_LARGE, max="4194304")
        assert "4194304" in error_in(play().client_sends(put()).core_answers(result).written)


class TestGet:
    def test_asks_all_queues_under_a_lease_of_the_connection(self) -> None:
        request = play().client_sends(get("a", "b", "a")).asked[0]
        message = request.message
        assert (list(message.queues), message.wait_ms, message.jobs_max) == (["a", "b"], 0, 1)
        assert (message.owner_lease, message.allow_missing, request.takes_lease) == (True, True, True)
        assert message.placement_on_close == job_pb2.PLACEMENT_ORIGINAL

    def test_answers_the_job_as_it_was_sent(self) -> None:
        result = dequeued(7, b'{"a" :1.50}', rank=-123, queue='q"\n')
        written = play().client_sends(get('q"\n')).core_answers(result).written
        assert written == b'{"status":"ok","id":7,"job":{"a" :1.50},"pri":123,"queue":"q\\"\\n"}\n'

    def test_answers_no_job(self) -> None:
        assert play().client_sends(get()).core_answers(nothing_dequeued()).written == NO_JOB

    @pytest.mark.parametrize("wait", ["null", "1", '"true"', "0", "[]"])
    def test_refuses_a_wait_that_is_no_boolean(self, wait: str) -> None:
        line = f'{{"request":"get","queues":["q"],"wait":{wait}}}\n'.encode()
        assert "wait" in error_in(play().client_sends(line).written)

    @pytest.mark.parametrize("queues", ["null", '"q"', "{}", "[1]", '["q",null]', '[["q"]]', "[" + "9" * 5000 + "]"])
    def test_refuses_queues_that_are_no_list_of_strings(self, queues: str) -> None:
        line = f'{{"request":"get","queues":{queues}}}\n'.encode()
        assert "queues" in error_in(play().client_sends(line).written)

    def test_refuses_a_name_with_a_lone_surrogate_and_says_so(self) -> None:
        line = b'{"request":"get","queues":["a","\\udc00"]}\n'
        assert "surrogate" in error_in(play().client_sends(line).written)

    def test_takes_a_thousand_names(self) -> None:
        names = [f"q{number}" for number in range(1000)]
        assert list(play().client_sends(get(*names)).asked[0].message.queues) == names

    def test_of_no_queue_is_no_job(self) -> None:
        assert play().client_sends(b'{"request":"get","queues":[]}\n').written == NO_JOB

    def test_of_no_queue_waits_for_ever_when_told_to(self) -> None:
        playing = play().client_sends(b'{"request":"get","queues":[],"wait":true}\n' + put())
        assert (playing.written, playing.asked) == (b"", [])

    @pytest.mark.parametrize(
        ("content_type", "payload", "shown"),
        [
            ("application/json", b"[1]", '{"encoding":"utf-8","data":"[1]"}'),
            ("application/json", b'{"a":\n1}', '{"a": 1}'),
            ("application/json; charset=utf-8", b"{}", "{}"),
            ("application/octet-stream", b"{}", '{"encoding":"utf-8","data":"{}"}'),
            ("", b"\xff\x00", '{"encoding":"base64","data":"/wA="}'),
            ("text/plain", b'a"\n', '{"encoding":"utf-8","data":"a\\"\\n"}'),
        ],
    )
    def test_wraps_what_is_no_json_object(self, content_type: str, payload: bytes, shown: str) -> None:
        result = dequeued(7, payload, content_type=content_type)
        written = play().client_sends(get()).core_answers(result).written
        assert b'"job":' + shown.encode() + b',"pri"' in written

    def test_shows_the_lowest_key_as_a_priority(self) -> None:
        written = play().client_sends(get()).core_answers(dequeued(7, rank=-(2**63))).written
        assert b'"pri":9223372036854775808,' in written


class TestDelete:
    def test_deletes_whoever_works_on_the_job(self) -> None:
        playing = play().client_sends(delete(7))
        assert (playing.verbs, playing.asked[0].message.id) == (["delete"], 7)
        assert playing.core_answers(deleted()).written == OK

    def test_of_an_unknown_id_is_no_job(self) -> None:
        assert play().client_sends(delete(7)).core_answers(NOT_FOUND).written == NO_JOB

    @pytest.mark.parametrize("request_name", [b"delete", b"abort"])
    @pytest.mark.parametrize("source", [b"-5", b"0", b"-0", b"9223372036854775808", b"9" * 5000, b"-" + b"9" * 5000])
    def test_of_an_integer_that_is_no_id_is_no_job(self, request_name: bytes, source: bytes) -> None:
        line = b'{"request":"%b","id":%b}\n' % (request_name, source)
        assert play().client_sends(line).written == NO_JOB

    @pytest.mark.parametrize("request_name", [b"delete", b"abort"])
    @pytest.mark.parametrize("source", [b"1.0", b"1e2", b'"1"', b"null", b"true", b"[]", b"1.5e3000"])
    def test_of_an_id_that_is_no_integer_is_an_error(self, request_name: bytes, source: bytes) -> None:
        line = b'{"request":"%b","id":%b}\n' % (request_name, source)
        assert "id" in error_in(play().client_sends(line).written)


class TestAbort:
    def test_releases_the_job_this_client_works_on(self) -> None:
        playing = working_on(7, token=3).client_sends(abort(7))
        message = playing.asked[0].message
        assert (playing.verbs, message.id, message.token) == (["release"], 7, 3)
        assert message.placement == job_pb2.PLACEMENT_ORIGINAL
        assert playing.core_answers(released()).written == OK
        assert not playing.conversation.holds_leases

    @pytest.mark.parametrize("result", [NOT_LEASED, STALE])
    def test_of_a_job_that_was_taken_away_is_an_error(self, result: SessionResult) -> None:
        error_in(working_on(7).client_sends(abort(7)).core_answers(result).written)

    def test_of_a_job_that_was_deleted_is_no_job(self) -> None:
        assert working_on(7).client_sends(abort(7)).core_answers(NOT_FOUND).written == NO_JOB

    def test_of_a_job_of_others_is_an_error(self) -> None:
        playing = play().client_sends(abort(7))
        assert playing.verbs == ["get_job"]
        error_in(playing.core_answers(found(7)).written)

    def test_of_an_unknown_id_is_no_job(self) -> None:
        assert play().client_sends(abort(7)).core_answers(NOT_FOUND).written == NO_JOB

    def test_waits_for_the_gets_before_it(self) -> None:
        playing = play().client_sends(get() + abort(7) + put())
        assert playing.verbs == ["dequeue"]
        playing.core_answers(dequeued(7, token=3))
        assert playing.verbs == ["release", "enqueue"]

    def test_twice_asks_twice(self) -> None:
        playing = working_on(7).client_sends(abort(7) + abort(7))
        assert playing.verbs == ["release", "release"]
        assert playing.core_answers(released()).written == OK
        error_in(playing.core_answers(NOT_LEASED).written)

    def test_keeps_the_lease_that_a_later_get_brought(self) -> None:
        playing = working_on(7, token=3).client_sends(abort(7) + get())
        playing.core_answers(dequeued(7, token=4), place=1).core_answers(released())
        assert playing.client_sends(abort(7)).asked[0].message.token == 4

    def test_after_a_delete_asks_the_core(self) -> None:
        playing = working_on(7).client_sends(delete(7)).core_answers(deleted()).client_sends(abort(7))
        assert playing.verbs == ["get_job"]


class TestOrder:
    def test_requests_go_out_without_waiting_for_each_other(self) -> None:
        playing = play().client_sends(put() + get() + delete(1) + put())
        assert playing.verbs == ["enqueue", "dequeue", "delete", "enqueue"]

    def test_answers_come_in_the_order_of_requests(self) -> None:
        playing = play().client_sends(put() + delete(1) + b"x\n" + put())
        playing.core_answers(enqueued(3), place=2)
        assert playing.written == b""
        playing.core_answers(deleted(), place=1)
        assert playing.written == b""
        lines = playing.core_answers(enqueued(2)).written.splitlines()
        assert [json.loads(line)["status"] for line in lines] == ["ok", "ok", "error", "ok"]
        assert [json.loads(line).get("id") for line in lines] == [2, None, None, 3]

    def test_a_waiting_get_holds_back_what_is_behind_it(self) -> None:
        playing = play().client_sends(get(wait=True) + put())
        assert (playing.verbs, playing.asked[0].message.wait_ms) == (["dequeue"], -1)
        assert playing.core_answers(dequeued(7)).verbs == ["enqueue"]

    def test_no_more_than_the_bound_are_under_way(self) -> None:
        playing = play(requests_max=3).client_sends(put() * 5)
        assert len(playing.asked) == 3
        assert len(playing.core_answers(enqueued(1)).asked) == 3

    def test_no_more_bytes_than_the_bound_are_under_way(self) -> None:
        job = json.dumps({"a": "x" * 600})
        playing = play(bytes_max=1000).client_sends(put(job=job) * 5)
        assert len(playing.asked) == 2

    def test_as_many_gets_as_there_is_room_for_jobs(self) -> None:
        playing = play(bytes_max=10_000).client_sends(get()).core_answers(dequeued(7, b'{"a":"%b"}' % (b"x" * 4000)))
        assert len(playing.client_sends(get() * 10).asked) == 2

    def test_reading_stops_while_nothing_more_is_taken(self) -> None:
        playing = play().client_sends(get(wait=True) + put(job=json.dumps({"a": "x" * 100_000})))
        assert not playing.conversation.wants_input
        playing.core_answers(dequeued(7))
        assert playing.conversation.wants_input

    def test_held_back_it_takes_nothing(self) -> None:
        playing = play()
        playing.conversation.hold()
        assert playing.client_sends(put()).asked == []
        playing.conversation.resume()
        assert playing._collect().verbs == ["enqueue"]


class TestInvalidRequests:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"\r",
            b"x",
            b"[]",
            b"1",
            b'"put"',
            b"null",
            b"{}",
            b'{"request":1}',
            b'{"request":null}',
            b'{"request":"Put"}',
            b'{"request":"put "}',
            b'{"request":"delete","id":1',
            b'{"request":"delete","id":1}}',
            b'{"request":"delete","id":1,}',
            b'{"request":"delete","id":01}',
            b'{"request":"delete","id":NaN}',
            b"{'request':'delete','id':1}",
            b'{"request":"delete","id":1,"x":"\xff"}',
            b'{"request":"delete","id":1,"x":"\x01"}',
            b'{"request":"delete","id":1,"x":"\\x"}',
            b'\xef\xbb\xbf{"request":"delete","id":1}',
            b'{"request":"put","queue":"q","pri":1,"job":{"a":"\xed\xa0\x80"}}',
            b'{"request":"put","queue":"q","pri":1,"job":{"a":\x0c1}}',
        ],
    )
    def test_get_an_error_and_the_connection_stays(self, line: bytes) -> None:
        playing = play().client_sends(line + b"\n")
        error_in(playing.written)
        assert playing.end is None
        assert playing.client_sends(put()).verbs == ["enqueue"]

    def test_unknown_fields_are_ignored_and_so_are_those_of_other_requests(self) -> None:
        line = b'{"x":[{}],"pri":"x","\\ud800":0,"queue":7,"id":5,"queues":null,"request":"delete"}\r\n'
        assert play().client_sends(line).asked[0].message.id == 5

    def test_the_last_of_equal_fields_counts(self) -> None:
        line = b'{"request":"x","id":"x","id":5,"request":"delete"}\n'
        assert play().client_sends(line).asked[0].message.id == 5

    def test_a_field_name_may_be_escaped(self) -> None:
        line = b'{"\\u0072equest":"\\u0064elete","id":5}\n'
        assert play().client_sends(line).asked[0].message.id == 5

    def test_a_line_over_the_limit_is_answered_once_and_skipped(self) -> None:
        playing = play(line_bytes_max=100)
        playing.client_sends(b"x" * 101)
        assert "100" in error_in(playing.written)
        assert playing.client_sends(b"y" * 1000 + b"\n" + delete(5)).verbs == ["delete"]
        assert playing.written == b""

    def test_a_line_of_just_the_limit_is_a_request(self) -> None:
        line = delete(5)
        assert play(line_bytes_max=100).client_sends(b" " * (101 - len(line)) + line).verbs == ["delete"]

    @pytest.mark.parametrize("reason", sorted(set(reason_pb2.Reason.values()) - {6}))
    def test_every_reason_has_its_words(self, reason: reason_pb2.Reason.ValueType) -> None:
        assert (
            error_in(play().client_sends(delete(5)).core_answers(failed(reason)).written) == REASON_TEXTS[int(reason)]
        )


class TestEnd:
    def test_a_half_closed_client_gets_the_answers_it_is_owed(self) -> None:
        playing = play().client_sends(put() + put()).client_ends()
        playing.core_answers(enqueued(1)).core_answers(enqueued(2))
        assert (playing.written.count(b"\n"), playing.end) == (2, End.CLOSE)

    def test_an_unterminated_last_line_is_not_a_request(self) -> None:
        playing = play().client_sends(put()[:-1]).client_ends()
        assert (playing.asked, playing.written, playing.end) == ([], b"", End.CLOSE)

    def test_of_stream_ends_a_wait_unanswered_and_drops_what_is_behind_it(self) -> None:
        playing = play().client_sends(put() + get(wait=True) + put()).client_ends()
        assert [request.verb for request in playing.conversation.cancels] == ["dequeue"]
        playing.core_answers(CANCELLED, place=1)
        assert playing.written == b""
        playing.core_answers(enqueued(1))
        assert playing.written == b'{"status":"ok","id":1}\n'
        assert (playing.asked, playing.end) == ([], End.CLOSE)

    def test_of_stream_does_not_end_a_wait_that_has_its_job(self) -> None:
        playing = play().client_sends(get(wait=True) + put()).client_ends()
        playing.core_answers(dequeued(7))
        assert playing.verbs == ["enqueue"]
        playing.core_answers(enqueued(8))
        assert (playing.written.count(b"\n"), playing.end) == (2, End.CLOSE)

    def test_a_wait_behind_another_after_the_end_of_stream_takes_only_what_is_there(self) -> None:
        playing = play().client_sends(get(wait=True) + get(wait=True)).client_ends().core_answers(dequeued(7))
        assert playing.asked[0].message.wait_ms == 0
        playing.core_answers(nothing_dequeued())
        assert (playing.written.count(b"\n"), playing.end) == (1, End.CLOSE)

    def test_of_stream_ends_a_wait_for_no_queue(self) -> None:
        playing = play().client_sends(b'{"request":"get","queues":[],"wait":true}\n').client_ends()
        assert (playing.written, playing.end) == (b"", End.CLOSE)

    def test_without_requests_is_the_end(self) -> None:
        assert play().client_ends().end is End.CLOSE

    def test_finishing_answers_what_is_under_way_and_takes_nothing_new(self) -> None:
        playing = play().client_sends(put())
        playing.conversation.finish()
        playing.client_sends(put()).core_answers(enqueued(1))
        assert (playing.written, playing.end) == (b'{"status":"ok","id":1}\n', End.CLOSE)
        assert playing.asked == []

    def test_finishing_answers_a_wait_with_an_error(self) -> None:
        playing = play().client_sends(get(wait=True))
        playing.conversation.finish()
        assert len(playing.conversation.cancels) == 1
        error_in(playing.core_answers(CANCELLED).written)
        assert playing.end is End.CLOSE

    def test_the_core_being_away_is_an_error_and_the_connection_stays(self) -> None:
        playing = play().client_sends(get(wait=True)).core_answers(AWAY)
        assert "unavailable" in error_in(playing.written)
        assert playing.end is None


class TestLeases:
    def test_are_held_until_deleted_or_aborted(self) -> None:
        playing = working_on(7)
        assert playing.conversation.holds_leases
        playing.client_sends(delete(7)).core_answers(deleted())
        assert not playing.conversation.holds_leases

    def test_of_jobs_that_others_deleted_are_forgotten_bit_by_bit(self) -> None:
        playing = play(leases_checked_above=1)
        for job_id in (1, 2, 3):
            playing.client_sends(get()).core_answers(dequeued(job_id))
            while playing.asked:
                assert playing.asked[0].verb == "get_job"
                playing.core_answers(NOT_FOUND)
        assert playing.client_sends(abort(1) + abort(2) + abort(3)).verbs == ["get_job", "get_job", "release"]


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [put(), put("é", '{"a": [1, "\\u00e9", {}]}'), get(), get(wait=True), delete(5), abort(5), b"\n"]
        ),
        st.binary(max_size=30).map(lambda line: line + b"\n"),
    ),
    max_size=6,
)


def conversation_of(data: bytes, cuts: list[int]) -> tuple[object, ...]:
    """A client that sends all of `data` and ends, and a core that answers everything afterwards, oldest first."""
    playing = play(line_bytes_max=200).client_sends_split(data, *cuts)
    playing.client_ends()
    asked: list[tuple[str, object]] = []
    while playing.asked:
        request = playing.asked[0]
        asked.append((request.verb, request.message))
        playing.core_answers(scripted_result(request, len(asked)))
    return asked, playing.written, playing.end


def scripted_result(request: Request, number: int) -> SessionResult:
    match request.verb:
        case "enqueue":
            return enqueued(number)
        case "dequeue":
            return dequeued(5, token=number) if number % 2 else nothing_dequeued()
        case "delete":
            return deleted()
        case "release":
            return released()
        case _:
            return NOT_FOUND


@given(lines=LINES, tail=st.binary(max_size=300), cuts=st.lists(st.integers(0, 600), max_size=10))
def test_any_split_of_the_bytes_gives_the_same_result(lines: list[bytes], tail: bytes, cuts: list[int]) -> None:
    data = b"".join(lines) + tail
    assert conversation_of(data, cuts) == conversation_of(data, [])
