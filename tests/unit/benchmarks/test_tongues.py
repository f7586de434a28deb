"""The load generator's tongues: when an answer is whole, when it is no success, and which job it brought."""

import pytest

from benchmarks.tongues import PAYLOAD_BYTES, Beanstalk, JobCentre, Text, Tongue, UnexpectedAnswerError

TAKEN = {
    "job centre": (JobCentre("q"), b'{"status":"ok","id":4711,"job":{"id":1},"pri":100,"queue":"q"}\n'),
    "beanstalk": (Beanstalk("q"), b"RESERVED 4711 2\r\nhi\r\n"),
}


@pytest.mark.parametrize(("tongue", "answer"), TAKEN.values(), ids=TAKEN)
class TestAnAnswerToTake:
    """Of a tongue that keeps its connection."""

    def test_is_whole_only_with_its_last_byte(self, tongue: Tongue, answer: bytes) -> None:
        assert [tongue.is_taken(answer[:length]) for length in range(1, len(answer) + 1)] == [
            length == len(answer) for length in range(1, len(answer) + 1)
        ]

    def test_names_the_job_to_delete(self, tongue: Tongue, answer: bytes) -> None:
        assert b"4711" in tongue.delete(answer)


@pytest.mark.parametrize(
    ("tongue", "answer"),
    [
        (JobCentre("q"), b'{"status":"no-job"}\n'),
        (JobCentre("q"), b'{"status":"error","error":"the core is away"}\n'),
        (Beanstalk("q"), b"DEADLINE_SOON\r\n"),
        (Text("q"), b"NONE"),
        (Text("q"), b"ERROR unavailable"),
    ],
)
def test_a_whole_answer_that_is_no_success_ends_the_run(tongue: Tongue, answer: bytes) -> None:
    with pytest.raises(UnexpectedAnswerError):
        tongue.is_taken(answer)


def test_the_text_queue_acknowledges_the_id_before_the_length() -> None:
    assert Text("q").delete(b"00000000000000ff 2 hi") == b"ACK q 00000000000000ff\n"


def test_every_tongue_puts_the_same_number_of_payload_bytes() -> None:
    job = JobCentre("q").put.partition(b'"job":')[2].rpartition(b',"pri"')[0]
    assert len(job) == PAYLOAD_BYTES
    assert Beanstalk("q").put.splitlines()[1] == b"x" * PAYLOAD_BYTES
    assert Text("q").put.split(b" ", 3)[3] == b"x" * PAYLOAD_BYTES
