"""The load generator's tongues: when an answer is whole, when it is no success, and which job it brought."""

import pytest

from benchmarks.etzel_tongues import EtzelLines, EtzelWebSocket
from benchmarks.taskflux_tongue import TaskFlux
from benchmarks.tongues import PAYLOAD_BYTES, Beanstalk, JobCentre, Text, ThreeSteps, Tongue, UnexpectedAnswerError

MESSAGE = b'{"cmd":"msg","qname":"q","uid":"0000000000004711","error_count":"0","msg":"hi"}'
TAKEN = {
    "job centre": (JobCentre("q"), b'{"status":"ok","id":4711,"job":{"id":1},"pri":100,"queue":"q"}\n'),
    "beanstalk": (Beanstalk("q"), b"RESERVED 4711 2\r\nhi\r\n"),
    "etzel lines": (EtzelLines("q"), MESSAGE + b"\n"),
    "etzel web socket": (EtzelWebSocket("q"), b"\x81" + bytes([len(MESSAGE)]) + MESSAGE),
    "etzel web socket, long": (
        EtzelWebSocket("q"),
        b"\x81\x7e" + (len(MESSAGE) + 100).to_bytes(2, "big") + MESSAGE + b" " * 100,
    ),
}


@pytest.mark.parametrize(("tongue", "answer"), TAKEN.values(), ids=TAKEN)
class TestAnAnswerToTake:
    """Of a tongue that keeps its connection."""

    def test_is_whole_only_with_its_last_byte(self, tongue: ThreeSteps, answer: bytes) -> None:
        assert [tongue.is_taken(answer[:length]) for length in range(1, len(answer) + 1)] == [
            length == len(answer) for length in range(1, len(answer) + 1)
        ]

    def test_names_the_job_to_delete(self, tongue: ThreeSteps, answer: bytes) -> None:
        assert b"4711" in tongue.delete(answer)


@pytest.mark.parametrize(
    ("tongue", "answer"),
    [
        (JobCentre("q"), b'{"status":"no-job"}\n'),
        (JobCentre("q"), b'{"status":"error","error":"the core is away"}\n'),
        (Beanstalk("q"), b"DEADLINE_SOON\r\n"),
        (EtzelLines("q"), b'{"cmd":"nomsg","qname":"q"}\n'),
        (EtzelWebSocket("q"), b"\x88\x02\x03\xe8"),
        (Text("q"), b"NONE"),
        (Text("q"), b"ERROR unavailable"),
    ],
)
def test_a_whole_answer_that_is_no_success_ends_the_run(tongue: ThreeSteps, answer: bytes) -> None:
    with pytest.raises(UnexpectedAnswerError):
        tongue.is_taken(answer)


def test_the_text_queue_acknowledges_the_id_before_the_length() -> None:
    assert Text("q").delete(b"00000000000000ff 2 hi") == b"ACK q 00000000000000ff\n"


def test_every_tongue_puts_the_same_number_of_payload_bytes() -> None:
    job = JobCentre("q").put.partition(b'"job":')[2].rpartition(b',"pri"')[0]
    assert len(job) == PAYLOAD_BYTES
    assert Beanstalk("q").put.splitlines()[1] == b"x" * PAYLOAD_BYTES
    assert Text("q").put.split(b" ", 3)[3] == b"x" * PAYLOAD_BYTES
    assert EtzelLines("q").put.count(b"x") == PAYLOAD_BYTES - len('""')


class Peer:
    """Answers a talk, byte by byte or all at once."""

    def __init__(self, tongue: Tongue) -> None:
        self.talk = tongue.talk()
        self.asked = next(self.talk)

    def answer(self, answer: bytes) -> bytes:
        """Gives an answer byte by byte; returns the request that follows its last byte, and not one before."""
        for index in range(len(answer)):
            self.asked = self.talk.send(answer[index : index + 1])
            assert (self.asked is not None) == (index == len(answer) - 1)
        assert self.asked is not None
        return self.asked


def test_taskflux_acknowledges_what_it_enqueued_and_what_it_dequeued() -> None:
    tongue = TaskFlux("jobs")
    peer = Peer(tongue)
    assert peer.asked is tongue.put
    record = tongue.put.removeprefix(b"CE\x04jobs")
    assert peer.answer(b"k") == b"Q"
    assert peer.answer(b"k") == b"CD\x04jobs\0\0\0\0"
    assert peer.answer(b"cd\x01" + record) == b"Q"
    assert peer.answer(b"k") is tongue.put


@pytest.mark.parametrize("answer", [b"cd\x00", b"cx\x00\x00\x00\x02", b"e"], ids=["nothing", "error", "fault"])
def test_taskflux_ends_the_run_when_no_record_comes(answer: bytes) -> None:
    peer = Peer(TaskFlux("jobs"))
    peer.answer(b"k")
    peer.answer(b"k")
    with pytest.raises(UnexpectedAnswerError):
        peer.talk.send(answer)
