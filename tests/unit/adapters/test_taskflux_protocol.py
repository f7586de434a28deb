"""TaskFlux without sockets: what requests ask, what is answered, and when a conversation ends."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet.v1 import queue_service_pb2 as api
from quintet.v1 import reason_pb2
from quintet.v1.job_pb2 import PLACEMENT_TAIL
from quintet.v1.queue_pb2 import (
    QUEUE_STRUCTURE_ARRAY,
    QUEUE_STRUCTURE_HEAP,
    Queue,
    QueueCounts,
    QueueSettings,
    RankRange,
)
from quintet.v1.session_service_pb2 import SessionResult
from quintet_adapters.messages import REASON_TEXTS, CommandCounts
from quintet_adapters.protocols.conversation import End
from quintet_adapters.protocols.taskflux import TaskFlux
from quintet_adapters.protocols.taskflux_requests import TaskFluxLimits, TaskFluxService

from tests.support import taskflux as tf
from tests.support.play import (
    Play,
    acknowledged,
    dequeued,
    enqueued,
    failed,
    nothing_dequeued,
    released,
)
from tests.support.taskflux import ACK, HAND_SHAKE, HAND_SHAKEN, NACK

AWAY = failed(reason_pb2.REASON_UNAVAILABLE)
CANCELLED = failed(reason_pb2.REASON_CANCELLED)
RECORD = bytes.fromhex("63 64 01 fffffffffffffffb 00000002 6869")
NOTHING = b"cd\0"


def unshaken(counts: CommandCounts | None = None, **limits: object) -> Play:
    service = TaskFluxService(TaskFluxLimits(**limits))  # type: ignore[arg-type]
    service.address = "here:2606"
    return Play(TaskFlux(service, Counter() if counts is None else counts))


def play(counts: CommandCounts | None = None, **limits: object) -> Play:
    playing = unshaken(counts, **limits).client_sends(HAND_SHAKE)
    assert playing.written == HAND_SHAKEN
    return playing


def error(code: int, details: str = "", marker: bytes = b"cx") -> bytes:
    return marker + code.to_bytes(4, "big") + len(details).to_bytes(4, "big") + details.encode()


def in_hand(wait_ms: int = 0) -> Play:
    playing = play().client_sends(tf.dequeue("q", wait_ms)).core_answers(dequeued(7, b"hi", token=9, rank=-5))
    assert playing.written == RECORD
    return playing


def listed(*queues: Queue, next_page_token: str = "") -> SessionResult:
    return SessionResult(list_queues=api.ListQueuesResponse(queues=queues, next_page_token=next_page_token))


def counted(**counts: int) -> SessionResult:
    return SessionResult(count=api.CountResponse(counts=QueueCounts(**counts)))


class TestEnqueue:
    def test_asks_nothing_before_the_acknowledgement(self) -> None:
        playing = play().client_sends(tf.enqueue("q", -5, b"hi"))
        assert (playing.written, playing.asked) == (b"k", [])
        message = playing.client_sends(ACK).asked[0].message
        assert (message.queue, message.create_if_missing, message.namespace) == ("q", False, "")
        assert (message.jobs[0].payload, message.jobs[0].rank) == (b"hi", -5)
        assert message.jobs[0].content_type == "application/octet-stream"
        assert playing.core_answers(enqueued(1)).written == b"k"

    def test_into_the_default_queue_makes_it(self) -> None:
        assert play().client_sends(tf.enqueue("", 0, b"") + ACK).asked[0].message.create_if_missing

    def test_asks_nothing_after_a_negative_one(self) -> None:
        playing = play().client_sends(tf.enqueue("q", 0, b"") + NACK)
        assert (playing.written, playing.asked) == (b"kk", [])

    def test_is_in_the_adapter_s_namespace(self) -> None:
        assert play(namespace="other").client_sends(tf.enqueue("q", 0, b"") + ACK).asked[0].message.namespace == "other"


class TestDequeue:
    def test_leases_for_the_connection_and_to_the_tail(self) -> None:
        request = play().client_sends(tf.dequeue("q", 2**32 - 1)).asked[0]
        message = request.message
        assert (list(message.queues), message.wait_ms, message.jobs_max) == (["q"], 2**32 - 1, 1)
        assert (message.owner_lease, message.placement_on_close) == (True, PLACEMENT_TAIL)
        assert (request.takes_lease, message.allow_missing) == (True, False)

    def test_of_the_default_queue_does_not_mind_that_it_is_missing(self) -> None:
        assert play().client_sends(tf.dequeue("", 1)).asked[0].message.allow_missing

    def test_holds_the_lease_until_it_is_settled(self) -> None:
        playing = in_hand()
        assert list(playing.conversation.leased_ids) == [7]
        request = playing.client_sends(ACK).asked[0]
        assert (request.verb, request.message.id, request.message.token) == ("acknowledge", 7, 9)
        assert request.ends_lease
        assert playing.core_answers(acknowledged()).written == b"k"
        assert not playing.conversation.holds_leases

    def test_not_acknowledged_is_released_to_the_tail_without_delay(self) -> None:
        playing = in_hand().client_sends(NACK)
        message = playing.asked[0].message
        assert (message.id, message.token, message.placement) == (7, 9, PLACEMENT_TAIL)
        assert message.HasField("delay_ms")
        assert message.delay_ms == 0
        assert playing.core_answers(released()).written == b"k"

    @pytest.mark.parametrize("answer", [ACK, NACK])
    @pytest.mark.parametrize("reason", [reason_pb2.REASON_JOB_NOT_FOUND, reason_pb2.REASON_QUEUE_NOT_FOUND])
    def test_of_what_is_over_is_settled_all_the_same(self, answer: bytes, reason: reason_pb2.Reason.ValueType) -> None:
        playing = in_hand().client_sends(answer).core_answers(failed(reason))
        assert (playing.written, playing.conversation.holds_leases) == (b"k", False)

    @pytest.mark.parametrize("reason", [reason_pb2.REASON_NOT_LEASED, reason_pb2.REASON_STALE_LEASE])
    def test_of_what_was_given_back_is_returned_but_not_acknowledged(self, reason: reason_pb2.Reason.ValueType) -> None:
        playing = in_hand().client_sends(NACK).core_answers(failed(reason))
        assert (playing.written, playing.conversation.holds_leases) == (b"k", False)
        playing = in_hand().client_sends(ACK).core_answers(failed(reason))
        assert playing.written == error(0, REASON_TEXTS[reason])
        assert (playing.conversation.holds_leases, playing.end) == (False, None)

    @pytest.mark.parametrize("answer", [ACK, NACK])
    def test_that_cannot_be_settled_is_error_0_and_no_longer_in_hand(self, answer: bytes) -> None:
        playing = in_hand().client_sends(answer).core_answers(AWAY)
        assert playing.written == error(0, "unavailable, try again")
        assert (playing.conversation.holds_leases, playing.end) == (False, None)


class TestOneRequestAtATime:
    def test_what_is_behind_waits_for_the_answer(self) -> None:
        playing = play().client_sends(tf.count("a") + tf.count("b") + tf.METADATA)
        assert playing.verbs == ["count"]
        assert playing.core_answers(counted(ready=1)).written == b"cc\0\0\0\1"
        assert playing.verbs == ["count"]
        assert playing.core_answers(counted(delayed=2)).written[:6] == b"cc\0\0\0\2"

    def test_nothing_is_taken_while_it_is_held(self) -> None:
        playing = play()
        playing.conversation.hold()
        assert playing.client_sends(tf.count("a")).asked == []
        playing.conversation.resume()
        assert playing.client_sends(b"").verbs == ["count"]

    def test_unread_bytes_are_bounded(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000))
        assert playing.conversation.wants_input
        playing.client_sends(ACK + tf.enqueue("q", 0, b"x" * 70_000))
        assert not playing.conversation.wants_input
        playing.core_answers(nothing_dequeued())
        assert playing.conversation.wants_input

    @given(st.lists(st.integers(0, 400), max_size=20))
    def test_however_the_bytes_are_split(self, cuts: list[int]) -> None:
        data = HAND_SHAKE + tf.enqueue("q", 1, b"x" * 200) + ACK + tf.count("q") + tf.dequeue("q") + ACK + b"z"
        whole, split = unshaken().client_sends(data), unshaken().client_sends_split(data, *cuts)
        for playing in (whole, split):
            for result in (enqueued(1), counted(ready=1), dequeued(7), acknowledged()):
                playing.core_answers(result)
        assert whole.written == split.written
        assert whole.end is split.end is End.LINGER


class TestReasons:
    @pytest.mark.parametrize("reason", sorted(reason_pb2.Reason.values()))
    def test_every_reason_is_an_error_or_a_violation_and_the_connection_stays(
        self, reason: reason_pb2.Reason.ValueType
    ) -> None:
        playing = play().client_sends(tf.enqueue("q", 0, b"") + ACK)
        assert playing.written == b"k"
        answer = playing.core_answers(failed(reason, min="-10", max="10")).written
        codes = {reason_pb2.REASON_QUEUE_NOT_FOUND: 2, reason_pb2.REASON_QUEUE_EXISTS: 3}
        violations = {
            reason_pb2.REASON_QUEUE_FULL: "63 70 00000001 0000000a",
            reason_pb2.REASON_PAYLOAD_TOO_LARGE: "63 70 00000002 0000000a",
            reason_pb2.REASON_RANK_OUT_OF_RANGE: "63 70 00000003 fffffffffffffff6 000000000000000a",
        }
        if reason in violations:
            assert answer == bytes.fromhex(violations[reason])
        elif reason in codes:
            assert answer == error(codes[reason])
        else:
            assert answer[:6] == error(0)[:6]
            assert len(answer) > 10
        assert playing.end is None

    def test_a_violation_without_its_limit_is_policy_0_in_words(self) -> None:
        playing = play().client_sends(tf.enqueue("q", 0, b"") + ACK)
        answer = playing.core_answers(failed(reason_pb2.REASON_QUEUE_FULL)).written[1:]
        assert answer == b"cp" + (0).to_bytes(4, "big") + (10).to_bytes(4, "big") + b"queue full"

    def test_limits_are_saturated(self) -> None:
        playing = play().client_sends(tf.enqueue("q", 0, b"") + ACK)
        answer = playing.core_answers(failed(reason_pb2.REASON_QUEUE_FULL, max=str(2**40))).written
        assert answer == b"k" + bytes.fromhex("63 70 00000001 7fffffff")

    @pytest.mark.parametrize(
        ("reason", "wanted"),
        [
            (reason_pb2.REASON_QUEUE_NOT_FOUND, "63 65 00000002 00000000"),
            (reason_pb2.REASON_PAYLOAD_TOO_LARGE, "63 70 00000003 0000000a"),
            (reason_pb2.REASON_RANK_OUT_OF_RANGE, "63 70 00000002 fffffffffffffff6 000000000000000a"),
        ],
    )
    def test_the_dialect_csharp_has_other_codes(self, reason: reason_pb2.Reason.ValueType, wanted: str) -> None:
        playing = play(csharp=True).client_sends(tf.enqueue("q", 0, b"") + ACK)
        assert playing.core_answers(failed(reason, min="-10", max="10")).written == b"k" + bytes.fromhex(wanted)


class TestCount:
    def test_is_of_ready_and_delayed_records(self) -> None:
        playing = play().client_sends(tf.count("q"))
        answer = playing.core_answers(counted(ready=1, delayed=2, leased=4, dead=8)).written
        assert answer == bytes.fromhex("63 63 00000003")

    def test_is_saturated(self) -> None:
        playing = play().client_sends(tf.count("q"))
        assert playing.core_answers(counted(ready=2**31)).written == bytes.fromhex("63 63 7fffffff")


class TestCreate:
    def test_says_what_was_asked_for(self) -> None:
        message = play().client_sends(tf.create("qa", 2, 100, 1024, (-10, 10))).asked[0].message
        rank_range = RankRange(min=-10, max=10)
        assert message.settings == QueueSettings(
            structure=QUEUE_STRUCTURE_ARRAY, jobs_max=100, payload_bytes_max=1024, rank_range=rank_range
        )

    def test_leaves_out_what_has_no_limit(self) -> None:
        message = play().client_sends(tf.create("q", 0)).asked[0].message
        assert (message.queue, message.settings) == ("q", QueueSettings(structure=QUEUE_STRUCTURE_HEAP))


class TestList:
    def test_goes_through_all_pages(self) -> None:
        playing = play().client_sends(tf.LIST).core_answers(listed(Queue(name=""), next_page_token="more"))
        assert (playing.written, playing.asked[0].message.page_token) == (b"", "more")
        answer = playing.core_answers(listed(Queue(name="b", counts=QueueCounts(ready=2**40, leased=3)))).written
        assert answer == bytes.fromhex("63 6c 00000002  00 00000000 00000000  01 62 7fffffff 00000000")

    def test_leaves_out_what_cannot_be_written(self) -> None:
        names = ("", "a b", "é", "x" * 256, "\x7f")
        playing = play().client_sends(tf.LIST).core_answers(listed(*(Queue(name=name) for name in names)))
        assert playing.written == bytes.fromhex("63 6c 00000001  00 00000000 00000000")

    def test_has_the_default_queue_in_any_case(self) -> None:
        playing = play().client_sends(tf.LIST).core_answers(listed())
        assert playing.written == bytes.fromhex("63 6c 00000001  00 00000000 00000000")

    def test_that_fails_on_the_way_starts_anew_next_time(self) -> None:
        playing = play().client_sends(tf.LIST).core_answers(listed(Queue(name="a"), next_page_token="more"))
        assert playing.core_answers(AWAY).written == error(0, "unavailable, try again")
        playing.client_sends(tf.LIST).core_answers(listed(Queue(name="")))
        assert playing.written == bytes.fromhex("63 6c 00000001  00 00000000 00000000")

    def test_beyond_the_largest_packet_is_error_0_and_not_gathered(self) -> None:
        playing = play(packet_bytes_max=100).client_sends(tf.LIST)
        queues = [Queue(name="x" * 60), Queue(name="y" * 60)]
        playing.core_answers(listed(*queues, next_page_token="more"))
        assert (playing.written[:6], playing.asked) == (error(0)[:6], [])


class TestIdleness:
    def test_is_where_nothing_is_asked_of_the_core(self) -> None:
        playing = unshaken()
        assert playing.conversation.is_idle
        playing.client_sends(HAND_SHAKE + tf.dequeue("q", 1000))
        assert not playing.conversation.is_idle
        playing.core_answers(dequeued(7))
        assert playing.conversation.is_idle

    def test_is_counted_from_whole_packets_and_answers(self) -> None:
        playing = play()

        def progresses(data: bytes) -> bool:
            before = playing.conversation.progress
            playing.client_sends(data)
            return playing.conversation.progress > before

        assert progresses(ACK)
        assert not progresses(tf.enqueue("q", 0, b"x")[:-1])
        assert progresses(b"x")
        assert progresses(ACK)
        before = playing.conversation.progress
        playing.core_answers(enqueued(1))
        assert playing.conversation.progress > before

    def test_ends_the_conversation(self) -> None:
        playing = in_hand()
        playing.conversation.idle()
        assert (playing.end, playing.written) == (End.CLOSE, b"")


class TestTheClientsEnd:
    def test_ends_what_waits_for_nothing(self) -> None:
        assert play().client_ends().end is End.CLOSE
        assert unshaken().client_ends().end is End.CLOSE
        assert in_hand().client_ends().end is End.CLOSE
        assert play().client_sends(tf.enqueue("q", 0, b"")).client_ends().end is End.CLOSE

    def test_waits_for_the_answer_that_is_due(self) -> None:
        playing = play().client_sends(tf.count("q") + tf.count("r")).client_ends()
        before = playing.end
        playing.core_answers(counted(ready=1)).core_answers(counted(ready=2))
        assert before is None
        assert (len(playing.written), playing.end) == (12, End.CLOSE)

    def test_cancels_a_wait_whose_record_could_not_be_acknowledged(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000)).client_ends()
        assert list(playing.conversation.cancels) == playing.asked
        assert (playing.core_answers(CANCELLED).written, playing.end) == (NOTHING, End.CLOSE)

    def test_cancels_none_whose_acknowledgement_is_there(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000) + NACK).client_ends()
        assert not playing.conversation.cancels
        assert playing.core_answers(dequeued(7)).verbs == ["release"]
        assert playing.end is None
        assert playing.core_answers(released()).end is End.CLOSE

    def test_cancels_that_too_when_it_lasts(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000) + ACK)
        assert not playing.conversation.is_idle
        playing.client_ends()
        assert playing.conversation.is_idle
        playing.conversation.idle()
        assert list(playing.conversation.cancels) == playing.asked
        assert (playing.core_answers(CANCELLED).written, playing.end) == (NOTHING, End.CLOSE)

    def test_lets_no_later_dequeue_wait_in_vain(self) -> None:
        playing = play().client_sends(tf.count("q") + tf.dequeue("q", 1000)).client_ends()
        assert playing.core_answers(counted()).asked[0].message.wait_ms == 0

    def test_does_not_hide_a_record_that_came_in_the_same_moment(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000)).client_ends()
        playing.core_answers(dequeued(7, b"hi", rank=-5))
        assert (playing.written, playing.end) == (RECORD, End.CLOSE)

    def test_waits_while_it_is_held(self) -> None:
        playing = play()
        playing.conversation.hold()
        playing.client_sends(tf.count("q")).client_ends()
        assert playing.end is None
        playing.conversation.resume()
        playing.client_sends(b"").core_answers(counted())
        assert playing.end is End.CLOSE


class TestTheProcesssEnd:
    def test_ends_who_asks_nothing(self) -> None:
        playing = play()
        playing.conversation.finish()
        assert playing.end is End.CLOSE

    def test_takes_no_further_request(self) -> None:
        playing = play().client_sends(tf.count("q") + tf.count("r"))
        playing.conversation.finish()
        assert playing.core_answers(counted()).asked == []
        assert playing.end is End.CLOSE

    def test_ends_a_wait_with_words(self) -> None:
        playing = play().client_sends(tf.dequeue("q", 1000))
        playing.conversation.finish()
        assert list(playing.conversation.cancels) == playing.asked
        playing.core_answers(CANCELLED)
        assert (playing.written, playing.end) == (error(0, "shutting down, try again"), End.CLOSE)

    def test_lets_what_is_pending_be_acknowledged(self) -> None:
        playing = in_hand()
        playing.conversation.finish()
        before = playing.end
        playing.client_sends(ACK).core_answers(acknowledged())
        assert before is None
        assert (playing.written, playing.end) == (b"k", End.CLOSE)

    def test_lets_an_enqueue_be_acknowledged(self) -> None:
        playing = play().client_sends(tf.enqueue("q", 0, b"x"))
        playing.conversation.finish()
        playing.client_sends(ACK + tf.count("q")).core_answers(enqueued(1))
        assert (playing.written, playing.asked, playing.end) == (b"kk", [], End.CLOSE)


def test_every_command_is_counted_with_its_outcome() -> None:
    counts: CommandCounts = Counter()
    playing = play(counts)
    playing.client_sends(tf.enqueue("q", 0, b"") + ACK).core_answers(enqueued(1))
    playing.client_sends(tf.enqueue("q", 0, b"") + NACK + tf.enqueue(b" ", 0, b"") + tf.METADATA * 3)
    playing.client_sends(tf.dequeue("q")).core_answers(nothing_dequeued())
    playing.client_sends(tf.dequeue("q")).core_answers(dequeued(7)).client_sends(ACK).core_answers(acknowledged())
    playing.client_sends(tf.dequeue("q")).core_answers(dequeued(7)).client_sends(NACK).core_answers(AWAY)
    playing.client_sends(tf.count("q")).core_answers(counted())
    playing.client_sends(tf.create("q", 9) + tf.delete(""))
    playing.client_sends(tf.LIST).core_answers(listed())
    playing.client_sends(b"z")
    assert counts == {
        ("enqueue", "ok"): 1,
        ("enqueue", "empty"): 1,
        ("enqueue", "refused"): 1,
        ("metadata", "ok"): 3,
        ("dequeue", "empty"): 1,
        ("dequeue", "ok"): 2,
        ("acknowledge", "ok"): 1,
        ("return", "unavailable"): 1,
        ("count", "ok"): 1,
        ("create", "refused"): 1,
        ("delete", "refused"): 1,
        ("list", "ok"): 1,
        ("invalid", "refused"): 1,
    }
    assert {command for command, _ in counts} <= set(TaskFlux.commands)
