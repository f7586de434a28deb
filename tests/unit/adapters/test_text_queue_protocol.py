"""The text queue without sockets: when a command is complete, what it asks, what is answered."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quintet.v1 import reason_pb2
from quintet_adapters.messages import REASON_TEXTS
from quintet_adapters.protocols.conversation import End
from quintet_adapters.protocols.text_queue import TextQueue, TextQueueLimits

from tests.support.play import Play, acknowledged, dequeued, enqueued, failed, found, nothing_dequeued

OURS = b"00000000000000ff"


def play(**limits: object) -> Play:
    return Play(TextQueue(TextQueueLimits(**limits), Counter()))  # type: ignore[arg-type]


def outcome_of(playing: Play) -> tuple[object, ...]:
    """What a client and the core can see of a conversation."""
    asked = [(request.verb, request.message) for request in playing.asked]
    return asked, playing.written, playing.end


def outcome(data: bytes, *cuts: int, end: bool = False, quiet: bool = False) -> tuple[object, ...]:
    playing = play().client_sends_split(data, *cuts)
    if end:
        playing.client_ends()
    if quiet and playing.conversation.wake_after_ms is not None:
        playing.conversation.wake()
        playing._collect()
    return outcome_of(playing)


class TestAdd:
    def test_is_complete_with_its_last_byte_of_data(self) -> None:
        playing = play().client_sends(b"ADD q 5 hell")
        assert playing.verbs == []
        assert playing.client_sends(b"o").verbs == ["enqueue"]

    def test_creates_the_queue_and_keeps_the_data_as_bytes(self) -> None:
        message = play().client_sends(b"ADD q 5 he\n\x00\xff").asked[0].message
        assert (message.queue, message.create_if_missing) == ("q", True)
        assert (message.jobs[0].payload, message.jobs[0].content_type) == (b"he\n\x00\xff", "application/octet-stream")

    def test_answers_the_id_as_sixteen_hexadecimal_digits_without_a_newline(self) -> None:
        assert play().client_sends(b"ADD q 0 ").core_answers(enqueued(255)).written == OURS

    def test_lingers_after_its_answer(self) -> None:
        assert play().client_sends(b"ADD q 0 ").core_answers(enqueued(255)).end is End.LINGER

    def test_drops_what_follows_its_data(self) -> None:
        playing = play().client_sends(b"ADD q 2 hi\nADD q 2 ho")
        assert playing.asked[0].message.jobs[0].payload == b"hi"
        assert playing.client_sends(b"ADD q 2 hu").verbs == ["enqueue"]

    def test_accepts_leading_zeros(self) -> None:
        assert play().client_sends(b"ADD q 0002 hi").asked[0].message.jobs[0].payload == b"hi"

    def test_accepts_the_longest_data(self) -> None:
        assert play().client_sends(b"ADD q 1000000 " + b"x" * 1_000_000).verbs == ["enqueue"]

    def test_is_never_ended_by_quiet(self) -> None:
        playing = play().client_sends(b"ADD q 5 hel")
        assert playing.conversation.wake_after_ms == TextQueueLimits().read_timeout_ms

    @pytest.mark.parametrize(
        "command",
        [
            b"ADD q 1000001 ",
            b"ADD q -1 ",
            b"ADD q +1 ",
            b"ADD q 1.0 ",
            b"ADD q x ",
            b"ADD q  ",
            b"ADD  1 x",
            b"ADD q 0\n",
            b"ADD q\n",
            b"ADD\n",
            b"ADD \n",
            b"ADD q\t1 ",
            b"ADD \xff 1 x",
            b"ADD " + b"q" * 4097,
            b"ADD q " + b"0" * 129,
        ],
    )
    def test_that_is_malformed_is_an_error_at_once(self, command: bytes) -> None:
        playing = play().client_sends(command)
        assert playing.written.startswith(b"ERROR ")
        assert (playing.asked, playing.end) == ([], End.LINGER)

    def test_cut_short_is_an_error(self) -> None:
        assert play().client_sends(b"ADD q 5 hel").client_ends().written.startswith(b"ERROR ")


class TestGet:
    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_is_complete_with_a_line_end(self, end: bytes) -> None:
        message = play().client_sends(b"GET q" + end).asked[0].message
        assert (list(message.queues), message.lease_ms, message.allow_missing) == (["q"], 300_000, True)

    def test_is_complete_with_the_end_of_stream(self) -> None:
        assert play().client_sends(b"GET q").client_ends().verbs == ["dequeue"]

    def test_is_complete_after_quiet(self) -> None:
        playing = play().client_sends(b"GET q")
        assert (playing.verbs, playing.conversation.wake_after_ms) == ([], 20)
        playing.conversation.wake()
        assert playing._collect().verbs == ["dequeue"]

    def test_that_is_not_well_formed_yet_waits_for_more(self) -> None:
        playing = play().client_sends(b"GET")
        assert playing.conversation.wake_after_ms == TextQueueLimits().read_timeout_ms
        assert playing.client_sends(b" q\n").verbs == ["dequeue"]

    def test_answers_id_length_and_data(self) -> None:
        assert play().client_sends(b"GET q\n").core_answers(dequeued(255, b"a b\n")).written == OURS + b" 4 a b\n"

    def test_keeps_the_space_before_empty_data(self) -> None:
        assert play().client_sends(b"GET q\n").core_answers(dequeued(255, b"")).written == OURS + b" 0 "

    def test_answers_none_when_there_is_nothing(self) -> None:
        assert play().client_sends(b"GET q\n").core_answers(nothing_dequeued()).written == b"NONE"

    def test_is_undone_when_its_client_is_known_to_be_gone(self) -> None:
        playing = play().client_sends(b"GET q\n")
        playing.conversation.lose_client()
        playing.core_answers(dequeued(255, token=9))
        release = playing.asked[0].message
        assert (playing.verbs, release.id, release.token, release.undo_attempt) == (["release"], 255, 9, True)

    @pytest.mark.parametrize(
        "command", [b"GET\n", b"GET \n", b"GET q r\n", b"GET  q\n", b"GET q \n", b"GET \xff\n", b"GET q\tr\n"]
    )
    def test_that_is_malformed_is_an_error(self, command: bytes) -> None:
        assert play().client_sends(command).written.startswith(b"ERROR ")

    def test_takes_a_name_of_4096_bytes_and_none_longer(self) -> None:
        assert play().client_sends(b"GET " + b"q" * 4096 + b"\n").verbs == ["dequeue"]
        assert play().client_sends(b"GET " + b"q" * 4097 + b"\n").written.startswith(b"ERROR ")


class TestAckAndIn:
    @pytest.mark.parametrize(("word", "verb"), [(b"ACK", "acknowledge"), (b"IN", "get_job")])
    def test_is_complete_with_sixteen_characters_of_id(self, word: bytes, verb: str) -> None:
        playing = play().client_sends(word + b" q " + OURS[:-1])
        assert playing.verbs == []
        assert playing.client_sends(OURS[-1:]).verbs == [verb]

    def test_acknowledges_whichever_lease_holds_the_job_in_that_queue(self) -> None:
        message = play().client_sends(b"ACK q " + OURS).asked[0].message
        assert (message.id, message.queue, message.any_lease) == (255, "q", True)

    def test_looks_for_the_job_in_that_queue_without_its_payload(self) -> None:
        message = play().client_sends(b"IN q " + OURS).asked[0].message
        assert (message.id, message.queue, message.without_payload) == (255, "q", True)

    def test_answers_that_it_is_so(self) -> None:
        assert play().client_sends(b"ACK q " + OURS).core_answers(acknowledged()).written == b"OK"
        assert play().client_sends(b"IN q " + OURS).core_answers(found(255)).written == b"YES"

    @pytest.mark.parametrize("word", [b"ACK", b"IN"])
    @pytest.mark.parametrize("reason", ["JOB_NOT_FOUND", "QUEUE_NOT_FOUND", "NOT_LEASED", "STALE_LEASE"])
    def test_answers_no_otherwise(self, word: bytes, reason: str) -> None:
        result = failed(reason_pb2.Reason.Value(f"REASON_{reason}"))
        assert play().client_sends(word + b" q " + OURS).core_answers(result).written == b"NO"

    @pytest.mark.parametrize("word", [b"ACK", b"IN"])
    @pytest.mark.parametrize("unknown", [b"x", b"ff", b"00000000000000FF", b"f" * 16, b"0" * 16, b"~" * 128])
    def test_of_an_id_that_is_none_of_ours_is_no(self, word: bytes, unknown: bytes) -> None:
        playing = play().client_sends(word + b" q " + unknown + b"\n")
        assert (playing.written, playing.asked) == (b"NO", [])

    @pytest.mark.parametrize("word", [b"ACK", b"IN"])
    @pytest.mark.parametrize("rest", [b"", b" q", b" q ", b" q " + b"x" * 129, b" q \x7f", b" q \xc3\xa9", b" q x y"])
    def test_that_is_malformed_is_an_error(self, word: bytes, rest: bytes) -> None:
        assert play().client_sends(word + rest + b"\n").written.startswith(b"ERROR ")

    def test_of_a_short_id_waits_for_quiet(self) -> None:
        playing = play().client_sends(b"ACK q ff")
        assert (playing.written, playing.conversation.wake_after_ms) == (b"", 20)
        playing.conversation.wake()
        assert playing.written == b"NO"


class TestAnythingElse:
    @pytest.mark.parametrize(
        "command", [b"\n", b"\r\n", b"add q 1 x", b"FOO", b"GETS q\n", b" GET q\n", b"SAVE\n", b"\0"]
    )
    def test_is_an_error_of_one_line(self, command: bytes) -> None:
        written = play().client_sends(command).written
        assert written.startswith(b"ERROR ")
        assert b"\n" not in written

    def test_silence_is_closed_without_an_answer(self) -> None:
        playing = play()
        playing.conversation.wake()
        assert (playing.written, playing.end) == (b"", End.CLOSE)

    def test_end_of_stream_without_a_byte_is_closed_without_an_answer(self) -> None:
        playing = play().client_ends()
        assert (playing.written, playing.end) == (b"", End.CLOSE)

    def test_an_incomplete_command_times_out_with_an_error(self) -> None:
        playing = play().client_sends(b"ADD q 5 hel")
        playing.conversation.wake()
        assert playing.written.startswith(b"ERROR ")

    def test_a_command_that_trickles_for_ever_times_out_with_an_error(self) -> None:
        playing = play().client_sends(b"ADD q 5 hel")
        playing.conversation.expire()
        assert playing.written.startswith(b"ERROR ")

    @pytest.mark.parametrize("reason", sorted(set(reason_pb2.Reason.values()) - {4, 6, 7, 8}))
    def test_every_reason_has_its_line(self, reason: reason_pb2.Reason.ValueType) -> None:
        written = play().client_sends(b"ACK q " + OURS).core_answers(failed(reason)).written
        assert written == b"ERROR " + REASON_TEXTS[int(reason)].encode()

    def test_too_much_data_for_the_queue_names_the_limit(self) -> None:
        result = failed(reason_pb2.REASON_PAYLOAD_TOO_LARGE, max="10")
        assert play().client_sends(b"ADD q 0 ").core_answers(result).written == b"ERROR job too large: at most 10 bytes"


class TestDialectCourse:
    def test_ack_answers_yes_and_no(self) -> None:
        assert play(course=True).client_sends(b"ACK q " + OURS).core_answers(acknowledged()).written == b"YES"
        assert play(course=True).client_sends(b"ACK q x\n").written == b"NO"

    def test_an_error_is_the_bare_word(self) -> None:
        assert play(course=True).client_sends(b"FOO\n").written == b"ERROR"

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_save_is_ok(self, end: bytes) -> None:
        assert play(course=True).client_sends(b"SAVE" + end).written == b"OK"

    def test_save_without_a_line_end_is_ok_after_quiet(self) -> None:
        playing = play(course=True).client_sends(b"SAVE")
        assert playing.conversation.wake_after_ms == 20
        playing.conversation.wake()
        assert playing.written == b"OK"


WORDS = st.sampled_from([b"ADD", b"GET", b"ACK", b"IN", b"FOO", b"", b"A", b"get"])
PARTS = st.one_of(
    st.sampled_from([b"q", b"5", b"0", b"", b"hello", OURS, b"\xff", b"\t", b"007", b"1000001"]), st.binary(max_size=6)
)
LIKELY = st.builds(
    lambda word, parts, end: b" ".join([word, *parts]) + end,
    WORDS,
    st.lists(PARTS, max_size=4),
    st.sampled_from([b"", b"\n", b"\r\n", b"\r", b"\nmore"]),
)


def has_whole_id_before_more(data: bytes) -> bool:
    """An id that goes on after sixteen characters: cut just there, it is complete, as the page says."""
    parts = data.split(b" ")
    return parts[0] in (b"ACK", b"IN") and len(parts) >= 3 and len(parts[2]) > 16


@given(data=st.one_of(LIKELY, st.binary(max_size=40)), cuts=st.lists(st.integers(0, 60), max_size=8), end=st.booleans())
@example(data=b"GET\rq\n", cuts=[4], end=False)
@example(data=b"ADD q 5 hello", cuts=list(range(14)), end=False)
def test_any_split_of_the_bytes_gives_the_same_result(data: bytes, cuts: list[int], end: bool) -> None:
    if has_whole_id_before_more(data):
        return
    assert outcome(data, *cuts, end=end, quiet=True) == outcome(data, end=end, quiet=True)
