"""Etzel without sockets: what requests ask, what is answered, in which order, and who is woken."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quintet.v1 import queue_service_pb2 as api
from quintet.v1 import reason_pb2
from quintet.v1.job_pb2 import Job, Lease
from quintet.v1.session_service_pb2 import SessionResult
from quintet_adapters.messages import REASON_TEXTS
from quintet_adapters.protocols.conversation import End
from quintet_adapters.protocols.etzel import Etzel
from quintet_adapters.protocols.etzel_requests import EtzelLimits, EtzelReader
from websockets.frames import Frame, Opcode

from tests.support.play import Play, deleted, enqueued, failed, nothing_dequeued
from tests.unit.adapters.test_websocket import handshake, text

AWAY = failed(reason_pb2.REASON_UNAVAILABLE)
NO_QUEUE = failed(reason_pb2.REASON_QUEUE_NOT_FOUND)
NO_JOB = failed(reason_pb2.REASON_JOB_NOT_FOUND)
CANCELLED = failed(reason_pb2.REASON_CANCELLED)
CREATED = SessionResult(create_queue=api.CreateQueueResponse())
READY = SessionResult(await_jobs=api.AwaitJobsResponse(ready=True))
NOT_READY = SessionResult(await_jobs=api.AwaitJobsResponse())
YEAR_S = 365 * 24 * 3600

OKSUB = b'{"cmd":"oksub","qname":"q"}\n'
OKSLP = b'{"cmd":"okslp","qname":"q"}\n'
AWK = b'{"cmd":"awk","qname":"q"}\n'
NOMSG = b'{"cmd":"nomsg","qname":"q"}\n'


def play(**limits: Any) -> Play:
    return Play(Etzel.by_lines(EtzelReader(EtzelLimits(**limits)), Counter()))


def request(cmd: str, **fields: object) -> bytes:
    return json.dumps({"cmd": cmd, "qname": "q", **fields}).encode() + b"\n"


SUB, ISLP, FET = request("SUB"), request("ISLP"), request("FET")


def publish(source: str = "1", options: str = "") -> bytes:
    return f'{{"cmd":"PUB","qname":"q","message":{source}{options}}}\n'.encode()


def ack(uid: str = "0000000000000007") -> bytes:
    return request("ACK", uid=uid)


def fetched(
    job_id: int, payload: bytes = b"{}", *, attempts: int = 1, content_type: str = "application/json"
) -> SessionResult:
    job = Job(id=job_id, payload=payload, attempts=attempts, content_type=content_type, lease=Lease(token=5))
    return SessionResult(dequeue=api.DequeueResponse(jobs=[job]))


def subscribed() -> Play:
    playing = play().client_sends(SUB).core_answers(CREATED)
    assert playing.written == OKSUB
    return playing


def asleep() -> Play:
    playing = subscribed().client_sends(ISLP)
    assert playing.written == OKSLP
    return playing


def fault_in(line: bytes) -> str:
    answer = json.loads(line)
    assert (answer["cmd"], answer["err"]) == ("nok", "BAD_REQUEST")
    assert line.count(b"\n") == 1
    return str(answer["detail"])


class TestPublish:
    def test_puts_the_source_bytes_of_the_message(self) -> None:
        source = '{ "b":1.0e5,"a":"\\u00e9\\/",  "a":[-0, 1E+2]\t}'
        message = play().client_sends(publish(source)).asked[0].message
        assert message.jobs[0].payload == source.encode()
        assert (message.queue, message.jobs[0].rank, message.create_if_missing) == ("q", 0, True)
        assert message.jobs[0].content_type == "application/json"

    @pytest.mark.parametrize("source", ["null", "true", "-0.0", '"\\ud800"', "[]", '"é"', "[[[]]]"])
    def test_any_value_is_a_message(self, source: str) -> None:
        assert play().client_sends(publish(source)).asked[0].message.jobs[0].payload == source.encode()

    def test_answers_the_uid_in_sixteen_digits(self) -> None:
        playing = play().client_sends(publish()).core_answers(enqueued(0x1F))
        assert playing.written == b'{"cmd":"ok","uid":"000000000000001f"}\n'

    def test_msg_is_accepted_for_message_and_message_wins(self) -> None:
        playing = play().client_sends(
            b'{"cmd":"PUB","qname":"q","msg":1}\n{"cmd":"PUB","qname":"q","message":2,"msg":1}\n'
        )
        assert [asked.message.jobs[0].payload for asked in playing.asked] == [b"1", b"2"]

    @pytest.mark.parametrize(
        ("options", "lease_ms", "delay_ms", "time_to_live_ms"),
        [
            ("", 0, 0, 0),
            (',"timeout":5', 5000, 0, 0),
            (',"timeout":5.0015', 5002, 0, 0),
            (f',"timeout":{YEAR_S}', YEAR_S * 1000, 0, 0),
            (',"timeout":6e1', 60_000, 0, 0),
            (',"delay":0', 0, 0, 0),
            (',"delay":-0.0', 0, 0, 0),
            (',"delay":0.25', 0, 250, 0),
            (f',"delay":{YEAR_S}', 0, YEAR_S * 1000, 0),
            (',"expires":0', 0, 0, 0),
            (',"expires":0.0', 0, 0, 0),
            (',"expires":1.5', 0, 0, 1500),
            (',"expires":1e-9', 0, 0, 1),
            (f',"expires":{100 * YEAR_S}', 0, 0, 100 * YEAR_S * 1000),
            (f',"expires":{100 * YEAR_S + 1}', 0, 0, 0),
            (',"expires":1e300', 0, 0, 0),
            (',"timeout":7,"timeout":8', 8000, 0, 0),
        ],
    )
    def test_options_are_seconds(self, options: str, lease_ms: int, delay_ms: int, time_to_live_ms: int) -> None:
        job = play().client_sends(publish(options=options)).asked[0].message.jobs[0]
        assert (job.lease_ms, job.delay_ms, job.time_to_live_ms) == (lease_ms, delay_ms, time_to_live_ms)

    @pytest.mark.parametrize("name", ["timeout", "delay", "expires"])
    @pytest.mark.parametrize("value", ["null", '"60"', "true", "[]", "{}", "1e999", "-1", "9" * 400])
    def test_options_that_are_no_fit_numbers_are_refused_by_name(self, name: str, value: str) -> None:
        playing = play().client_sends(publish(options=f',"{name}":{value}'))
        assert name in fault_in(playing.written)
        assert not playing.asked

    @pytest.mark.parametrize(
        "option",
        ['"timeout":4.999', '"timeout":0', f'"timeout":{YEAR_S + 1}', f'"delay":{YEAR_S}.5', '"delay":-0.1'],
    )
    def test_options_out_of_bounds_are_refused(self, option: str) -> None:
        assert "must be from" in fault_in(play().client_sends(publish(options="," + option)).written)

    def test_without_a_message_is_refused(self) -> None:
        assert "message" in fault_in(play().client_sends(request("PUB")).written)

    def test_the_trailing_comma_of_the_source_is_no_json(self) -> None:
        line = b'{"cmd":"PUB","qname":"q","message":"m",}\n'
        assert fault_in(play().client_sends(line).written) == "not JSON"

    def test_a_message_over_the_payload_limit_is_refused_with_the_limit(self) -> None:
        refused = failed(reason_pb2.REASON_PAYLOAD_TOO_LARGE, max="4194304")
        assert "4194304" in fault_in(play().client_sends(publish()).core_answers(refused).written)


class TestFetch:
    def test_takes_one_message_for_its_own_time(self) -> None:
        message = play().client_sends(FET).asked[0].message
        assert (list(message.queues), message.jobs_max, message.wait_ms, message.lease_ms) == (["q"], 1, 0, 0)
        assert not message.owner_lease
        assert not message.allow_missing

    def test_answers_in_the_form_of_the_page(self) -> None:
        playing = play().client_sends(FET).core_answers(fetched(0xAB, b'"m"', attempts=3))
        assert playing.written == (b'{"cmd":"msg","qname":"q","uid":"00000000000000ab","error_count":"2","msg":"m"}\n')

    def test_tells_an_empty_queue_from_one_that_is_not_there(self) -> None:
        assert play().client_sends(FET).core_answers(nothing_dequeued()).written == NOMSG
        assert play().client_sends(FET).core_answers(NO_QUEUE).written == b'{"cmd":"nok","err":"Q_NOT_FOUND"}\n'

    @pytest.mark.parametrize(
        ("payload", "content_type", "shown"),
        [
            (b"hello", "application/octet-stream", b'{"encoding":"utf-8","data":"hello"}'),
            (b"{}", "", b'{"encoding":"utf-8","data":"{}"}'),
            (b"\xff\x00", "text/plain", b'{"encoding":"base64","data":"/wA="}'),
            (b"[1]", "application/json; charset=utf-8", b"[1]"),
            (b"\xff", "application/json", b'{"encoding":"base64","data":"/w=="}'),
            (b"", "application/json", b'{"encoding":"utf-8","data":""}'),
            (b'{\r\n"a":\n1}', "application/json", b'{  "a": 1}'),
        ],
    )
    def test_shows_what_other_tongues_put(self, payload: bytes, content_type: str, shown: bytes) -> None:
        result = fetched(1, payload, content_type=content_type)
        line = play().client_sends(FET).core_answers(result).written
        assert line.endswith(b'"msg":' + shown + b"}\n")
        assert line.count(b"\n") == 1

    def test_a_message_that_comes_after_the_client_left_goes_back_as_if_never_taken(self) -> None:
        playing = play().client_sends(FET)
        playing.conversation.lose_client()
        playing.core_answers(fetched(9))
        release = playing.asked[0].message
        assert playing.verbs == ["release"]
        assert (release.id, release.token, release.undo_attempt, release.delay_ms) == (9, 5, True, 0)


class TestAcknowledge:
    @pytest.mark.parametrize("cmd", ["ACK", "DEL"])
    def test_deletes_in_the_queue_that_is_named(self, cmd: str) -> None:
        playing = play().client_sends(request(cmd, uid="00000000000000ff"))
        message = playing.asked[0].message
        assert (playing.verbs, message.id, message.queue) == (["delete"], 255, "q")
        assert playing.core_answers(deleted()).written == b'{"cmd":"okack","uid":"00000000000000ff","qname":"q"}\n'

    @pytest.mark.parametrize("result", [NO_JOB, NO_QUEUE])
    def test_is_okack_for_a_message_that_is_not_there(self, result: SessionResult) -> None:
        assert b'"okack"' in play().client_sends(ack()).core_answers(result).written

    @pytest.mark.parametrize(
        "uid", ["", "7", "00000000000000FF", "000000000000000g", "0" * 16, "f" * 16, "0" * 17, "é", "\u0660" * 16]
    )
    def test_is_okack_at_once_for_what_never_was_a_uid(self, uid: str) -> None:
        playing = play().client_sends(ack(uid))
        assert json.loads(playing.written) == {"cmd": "okack", "uid": uid, "qname": "q"}
        assert not playing.asked

    @pytest.mark.parametrize("uid", ["null", "7", '"\\ud800"', "{}"])
    def test_refuses_a_uid_that_is_no_string(self, uid: str) -> None:
        line = b'{"cmd":"ACK","qname":"q","uid":%b}\n' % uid.encode()
        assert "uid" in fault_in(play().client_sends(line).written)
        assert "uid" in fault_in(play().client_sends(request("DEL")).written)


class TestSubscribeAndSleep:
    def test_sub_creates_the_queue_and_one_that_exists_is_fine(self) -> None:
        playing = play().client_sends(SUB)
        assert (playing.verbs, playing.asked[0].message.queue) == (["create_queue"], "q")
        assert playing.core_answers(failed(reason_pb2.REASON_QUEUE_EXISTS)).written == OKSUB

    def test_islp_without_sub_is_refused(self) -> None:
        playing = play().client_sends(ISLP)
        assert playing.written == b'{"cmd":"nok","err":"NOT_SUBSCRIBED"}\n'
        assert not playing.asked

    def test_islp_after_a_sub_that_failed_is_refused(self) -> None:
        playing = play().client_sends(SUB + ISLP).core_answers(AWAY)
        assert playing.written == b'{"cmd":"nok","err":"UNAVAILABLE"}\n{"cmd":"nok","err":"NOT_SUBSCRIBED"}\n'

    def test_islp_is_answered_before_the_core_answers(self) -> None:
        playing = asleep()
        message = playing.asked[0].message
        assert (playing.verbs, list(message.queues)) == (["await_jobs"], ["q"])
        assert (message.wait_ms, message.allow_missing) == (-1, True)

    def test_a_ready_job_wakes_once(self) -> None:
        playing = asleep().core_answers(READY)
        assert playing.written == AWK
        assert not playing.asked

    def test_islp_asks_the_core_in_the_order_of_requests(self) -> None:
        playing = play().client_sends(SUB + ISLP + FET)
        assert playing.verbs == ["create_queue", "await_jobs", "dequeue"]
        playing.core_answers(READY, place=1)
        assert playing.written == b""
        assert playing.core_answers(CREATED).written == OKSUB + OKSLP + AWK

    def test_a_second_islp_is_no_part_of_a_sleep_that_ends_before_its_turn(self) -> None:
        playing = asleep().client_sends(FET + ISLP).core_answers(READY)
        assert playing.written == AWK
        playing.core_answers(nothing_dequeued())
        assert playing.written == NOMSG + OKSLP
        assert playing.core_answers(READY).written == AWK

    def test_a_sleep_that_a_failed_sub_forbids_is_called_off(self) -> None:
        playing = play().client_sends(SUB + ISLP)
        playing.core_answers(AWAY)
        assert list(playing.conversation.cancels) == playing.asked
        assert playing.written.endswith(b'"NOT_SUBSCRIBED"}\n')
        assert playing.core_answers(READY).written == b""

    def test_islp_twice_is_once(self) -> None:
        playing = asleep().client_sends(ISLP)
        assert playing.written == OKSLP
        assert playing.verbs == ["await_jobs"]
        assert playing.core_answers(READY).written == AWK

    def test_who_was_woken_may_sleep_again(self) -> None:
        playing = asleep().core_answers(READY).client_sends(ISLP)
        assert playing.written == AWK + OKSLP
        assert playing.verbs == ["await_jobs"]

    def test_a_fetch_leaves_the_sleeper_asleep(self) -> None:
        playing = asleep().client_sends(FET).core_answers(nothing_dequeued(), place=1)
        assert playing.core_answers(READY).written == NOMSG + AWK

    def test_wake_ups_come_between_answers(self) -> None:
        playing = asleep().client_sends(publish() + FET).core_answers(READY)
        assert playing.written == AWK
        playing.core_answers(fetched(1), place=1)
        assert playing.written == b""
        assert [json.loads(line)["cmd"] for line in playing.core_answers(enqueued(1)).written.splitlines()] == [
            "ok",
            "msg",
        ]

    @pytest.mark.parametrize("result", [AWAY, CANCELLED, NOT_READY, failed(reason_pb2.REASON_INTERNAL)])
    def test_a_wait_that_fails_is_asked_for_again(self, result: SessionResult) -> None:
        playing = asleep()
        wait = playing.asked[0]
        playing.core_answers(result)
        assert list(playing.conversation.retries) == [wait]
        playing.conversation.retries.clear()
        playing.asked.append(wait)
        assert playing.core_answers(READY).written == AWK

    def test_queues_of_a_connection_are_bounded(self) -> None:
        playing = play(subscriptions_max=2)
        for name in ("a", "b"):
            playing.client_sends(request("SUB", qname=name)).core_answers(CREATED)
        assert playing.written
        assert "2" in fault_in(playing.client_sends(request("SUB", qname="c")).written)
        assert b"oksub" in playing.client_sends(request("SUB", qname="a")).core_answers(CREATED).written

    def test_who_leaves_is_waited_for_no_longer(self) -> None:
        playing = asleep()
        playing.conversation.lose_client()
        assert list(playing.conversation.cancels) == playing.asked
        assert playing.core_answers(CANCELLED).written == b""
        assert not playing.conversation.retries


class TestOrder:
    def test_answers_come_in_the_order_of_requests(self) -> None:
        playing = play().client_sends(publish() + FET + ack("nonsense") + b"x\n" + ack())
        assert playing.verbs == ["enqueue", "dequeue", "delete"]
        playing.core_answers(deleted(), place=2).core_answers(nothing_dequeued(), place=1)
        assert playing.written == b""
        lines = playing.core_answers(enqueued(3)).written.splitlines()
        assert [json.loads(line)["cmd"] for line in lines] == ["ok", "nomsg", "okack", "nok", "okack"]

    def test_requests_under_way_are_bounded_in_number(self) -> None:
        playing = play(requests_max=3).client_sends(publish() * 5)
        assert len(playing.asked) == 3
        playing.core_answers(enqueued(1))
        assert len(playing.asked) == 3

    def test_fetches_under_way_are_bounded_by_the_size_of_what_they_bring(self) -> None:
        playing = play(bytes_max=100_000).client_sends(FET + FET * 40)
        assert len(playing.asked) == 16
        playing.core_answers(fetched(1, b'"%b"' % (b"x" * 60_000)))
        for _ in range(14):
            playing.core_answers(nothing_dequeued())
        assert len(playing.asked) == 1

    def test_what_is_held_back_goes_on_later(self) -> None:
        playing = play()
        playing.conversation.hold()
        assert playing.client_sends(publish() * 2).asked == []
        playing.conversation.resume()
        playing.client_sends(publish())
        assert playing.verbs == ["enqueue"] * 3

    @settings(max_examples=50)
    @given(st.data())
    def test_any_split_gives_the_same(self, data: st.DataObject) -> None:
        stream = SUB + publish('"é"') + b"\n" + FET + ack("x") + request("NO")
        cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
        playing = play().client_sends_split(stream, *cuts)
        assert playing.verbs == ["create_queue", "enqueue", "dequeue"]
        for result in (CREATED, enqueued(1), nothing_dequeued()):
            playing.core_answers(result)
        lines = playing.written.splitlines()
        assert [json.loads(line)["cmd"] for line in lines] == ["oksub", "ok", "nok", "nomsg", "okack", "nok"]


class TestFaults:
    @pytest.mark.parametrize(
        "line",
        [
            *(b"", b" ", b"x", b"{", b"[]", b"null", b'"PUB"', b"17", b"\xff", b'{"cmd":"FET","qname":"q"}}'),
            *(b"{}", b'{"cmd":null,"qname":"q"}', b'{"cmd":"fet","qname":"q"}', b'{"cmd":"NOP","qname":"q"}'),
            *(b'{"cmd":"FET"}', b'{"cmd":"FET","qname":null}', b'{"cmd":"FET","qname":7}', b"[" * 5000),
            *(b'{"cmd":"FET","qname":"\\ud800"}', b'{"cmd":"SUB","qname":"\xed\xa0\x80"}', b"\xef\xbb\xbf{}"),
        ],
    )
    def test_what_is_no_request_is_answered_and_the_connection_stays(self, line: bytes) -> None:
        playing = play().client_sends(line + b"\n")
        assert fault_in(playing.written)
        assert playing.client_sends(FET).verbs == ["dequeue"]

    def test_a_command_may_be_spelt_with_escapes(self) -> None:
        assert play().client_sends(b'{"cmd":"\\u0046ET","qname":"q"}\n').verbs == ["dequeue"]

    def test_of_a_field_given_twice_the_last_counts_and_unknown_ones_are_ignored(self) -> None:
        line = b'{"cmd":"FET","qname":"a","qname":"b","more":[1]}\n'
        assert play().client_sends(line).asked[0].message.queues == ["b"]

    def test_takes_a_queue_name_of_4096_bytes_and_none_longer(self) -> None:
        assert play().client_sends(request("FET", qname="é" * 2048)).verbs == ["dequeue"]
        assert "4096" in fault_in(play().client_sends(request("FET", qname="é" * 2048 + "x")).written)

    @pytest.mark.parametrize("name", ["", " ", "\u0000", "q\n", "é", "e\u0301", '"'])
    def test_any_string_names_a_queue_and_comes_back_as_it_is(self, name: str) -> None:
        playing = play().client_sends(request("FET", qname=name))
        assert playing.asked[0].message.queues == [name]
        assert json.loads(playing.core_answers(nothing_dequeued()).written)["qname"] == name

    def test_a_line_over_the_limit_is_refused_once_and_its_rest_skipped(self) -> None:
        playing = play(frame_bytes_max=100)
        for _ in range(5):
            playing.client_sends(b"x" * 60)
        playing.client_sends(b"\n" + FET)
        assert "100" in fault_in(playing.written)
        assert playing.verbs == ["dequeue"]

    @pytest.mark.parametrize("reason", REASON_TEXTS, ids=reason_pb2.Reason.Name)
    @pytest.mark.parametrize("line", [SUB, publish(), FET, ack()], ids=["SUB", "PUB", "FET", "ACK"])
    def test_every_reason_has_its_word(self, reason: reason_pb2.Reason.ValueType, line: bytes) -> None:
        written = play().client_sends(line).core_answers(failed(reason)).written
        answer = json.loads(written)
        assert written.count(b"\n") == 1
        if answer["cmd"] != "nok":
            assert answer["cmd"] in ("oksub", "okack")
        elif answer["err"] in ("UNAVAILABLE", "Q_NOT_FOUND"):
            assert list(answer) == ["cmd", "err"]
        else:
            assert answer["err"] in ("BAD_REQUEST", "REFUSED", "INTERNAL")
            assert answer["detail"]

    @pytest.mark.parametrize(
        "reason",
        [
            "UNAVAILABLE",
            "MEMORY_FULL",
            "DRAINING",
            "NOT_DURABLE",
            "TOO_MANY_IN_FLIGHT",
            "SESSION_LAPSED",
            "OWNER_CLOSED",
        ],
    )
    def test_the_worlds_faults_are_unavailable(self, reason: str) -> None:
        result = failed(reason_pb2.Reason.Value(f"REASON_{reason}"))
        assert play().client_sends(publish()).core_answers(result).written == b'{"cmd":"nok","err":"UNAVAILABLE"}\n'

    @pytest.mark.parametrize("reason", ["QUEUE_FULL", "QUEUE_PAUSED", "RANK_OUT_OF_RANGE", "PERMISSION_DENIED"])
    def test_policies_refuse(self, reason: str) -> None:
        result = failed(reason_pb2.Reason.Value(f"REASON_{reason}"))
        answer = json.loads(play().client_sends(publish()).core_answers(result).written)
        assert (answer["cmd"], answer["err"]) == ("nok", "REFUSED")


class TestTheEnd:
    def test_of_the_stream_is_the_end_when_everything_is_answered(self) -> None:
        playing = play().client_sends(publish() + FET).client_ends()
        assert playing.end is None
        playing.core_answers(enqueued(1)).core_answers(nothing_dequeued())
        assert playing.written.count(b"\n") == 2
        assert playing.end is End.CLOSE

    def test_an_unterminated_last_line_is_no_request(self) -> None:
        playing = play().client_sends(FET + FET[:-1]).client_ends()
        assert playing.verbs == ["dequeue"]
        assert playing.core_answers(nothing_dequeued()).end is End.CLOSE

    def test_a_sleeper_that_sends_nothing_more_is_told_of_what_is_there_already(self) -> None:
        playing = asleep().client_ends()
        assert (len(playing.conversation.cancels), playing.end) == (1, None)
        playing.core_answers(CANCELLED)
        assert (playing.verbs, playing.asked[0].message.wait_ms) == (["await_jobs"], 0)
        assert playing.core_answers(READY).written == AWK
        assert playing.end is End.CLOSE

    def test_a_sleeper_that_sends_nothing_more_does_not_wait(self) -> None:
        playing = asleep().client_ends().core_answers(CANCELLED).core_answers(NOT_READY)
        assert playing.written == b""
        assert playing.end is End.CLOSE

    def test_a_sleeper_that_waits_for_the_core_to_come_back_may_end(self) -> None:
        assert asleep().core_answers(AWAY).client_ends().end is End.CLOSE

    def test_finishing_answers_what_is_under_way_and_takes_nothing_new(self) -> None:
        playing = play().client_sends(publish())
        playing.conversation.finish()
        playing.client_sends(publish())
        assert (playing.verbs, playing.end) == (["enqueue"], None)
        playing.core_answers(enqueued(1))
        assert playing.written.startswith(b'{"cmd":"ok"')
        assert playing.end is End.LINGER

    def test_finishing_ends_sleepers(self) -> None:
        playing = asleep()
        playing.conversation.finish()
        assert list(playing.conversation.cancels) == playing.asked
        assert playing.end is End.LINGER


class TestByWebSocket:
    def opened(self, **limits: Any) -> Play:
        playing = Play(Etzel.by_websocket(EtzelReader(EtzelLimits(**limits)), Counter()))
        assert playing.client_sends(handshake()).written.startswith(b"HTTP/1.1 101 ")
        return playing

    def test_the_answer_to_the_handshake_comes_before_those_to_requests_in_its_wake(self) -> None:
        playing = Play(Etzel.by_websocket(EtzelReader(EtzelLimits()), Counter()))
        written = playing.client_sends(handshake() + text(b"x")).written
        assert written.index(b"HTTP/1.1 101") < written.index(b"BAD_REQUEST")

    def test_each_answer_is_a_frame_of_its_own(self) -> None:
        playing = self.opened().client_sends(text(FET) + text(b"x"))
        written = playing.core_answers(nothing_dequeued()).written
        first = Frame(Opcode.TEXT, NOMSG[:-1]).serialize(mask=False)
        assert written.startswith(first + b"\x81")
        assert b"BAD_REQUEST" in written

    def test_line_ends_in_a_message_stay(self) -> None:
        playing = self.opened().client_sends(text(b'{"cmd":"PUB","qname":"q","message":{\n"a":\r\n1}}'))
        assert playing.asked[0].message.jobs[0].payload == b'{\n"a":\r\n1}'
        playing.client_sends(text(FET))
        assert (
            b'"msg":{\n"a":\r\n1}}'
            in playing.core_answers(fetched(1, b'{\n"a":\r\n1}'), place=1).core_answers(enqueued(1)).written
        )

    def test_a_binary_frame_is_refused(self) -> None:
        playing = self.opened().client_sends(Frame(Opcode.BINARY, FET).serialize(mask=True))
        assert b"binary" in playing.written
        assert playing.end is None

    def test_what_is_owed_is_answered_before_a_faulty_client_is_told(self) -> None:
        playing = self.opened().client_sends(text(publish()) + b"\x83\x80mask")
        assert (playing.written, playing.end) == (b"", None)
        written = playing.core_answers(enqueued(1)).written
        assert written.index(b'"ok"') < written.index(b"\x03\xea")
        assert playing.end is End.LINGER

    def test_a_client_that_says_goodbye_gets_its_message_taken_back(self) -> None:
        playing = self.opened().client_sends(text(FET) + Frame(Opcode.CLOSE, b"").serialize(mask=True))
        assert (playing.written, playing.end) == (b"\x88\x00", End.CLOSE)
        playing.core_answers(fetched(9))
        assert playing.verbs == ["release"]

    def test_pings_are_answered_while_requests_are_under_way(self) -> None:
        playing = self.opened().client_sends(text(FET) + Frame(Opcode.PING, b"p").serialize(mask=True))
        assert playing.written == Frame(Opcode.PONG, b"p").serialize(mask=False)

    def test_the_handshake_has_its_time(self) -> None:
        playing = Play(Etzel.by_websocket(EtzelReader(EtzelLimits(handshake_ms=7)), Counter()))
        assert playing.conversation.lifetime_ms == 7
        playing.conversation.expire()
        assert playing.end is End.CLOSE
        assert self.opened().conversation.lifetime_ms is None

    def test_a_drain_says_going_away(self) -> None:
        playing = self.opened()
        playing.conversation.finish()
        assert playing.written == b"\x88\x02\x03\xe9"
        assert playing.end is End.LINGER

    def test_any_other_request_of_http_is_answered_and_that_is_it(self) -> None:
        playing = Play(Etzel.by_websocket(EtzelReader(EtzelLimits()), Counter()))
        assert playing.client_sends(b"GET / HTTP/1.1\r\n\r\n").written.startswith(b"HTTP/1.1 200 ")
        assert playing.end is End.LINGER
