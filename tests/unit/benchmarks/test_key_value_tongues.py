"""Writes and reads of rows as the load generator says and hears them."""

from __future__ import annotations

import pytest

from benchmarks import zmtp
from benchmarks.etcd import writes_per_s
from benchmarks.key_value_tongues import KEYS, KeyValueTongue, keys, new_keys, redis_get, redis_set
from benchmarks.key_value_tongues import zeromq_get as get
from benchmarks.key_value_tongues import zeromq_update as update
from benchmarks.tongues import UnexpectedAnswerError


@pytest.mark.parametrize("value", [b"x" * 50, b"x" * 1024], ids=len)
def test_a_zeromq_update_is_the_frames_of_a_req_socket(value: bytes) -> None:
    talk = update("t", value, keys()).talk()
    requests = [next(talk), talk.send(zmtp.message(b"", b"\0"))]
    assert [zmtp.parse(request or b"") for request in requests] == [
        ([[b"", b"\x02", b"t", b"key-%012d" % number, value]], b"") for number in range(2)
    ]


@pytest.mark.parametrize(
    ("tongue", "answer"),
    [
        (get("t", b"y" * 1024, keys()), zmtp.message(b"", b"\0", b"y" * 1024)),
        (redis_set(b"y", keys()), b"+OK\r\n"),
        (redis_get(b"y" * 3, keys()), b"$3\r\nyyy\r\n"),
    ],
    ids=["zeromq get", "redis set", "redis get"],
)
def test_an_answer_is_whole_only_with_its_last_byte(tongue: KeyValueTongue, answer: bytes) -> None:
    talk = tongue.talk()
    first = next(talk)
    asked = [talk.send(answer[index : index + 1]) for index in range(len(answer))]
    assert asked[:-1] == [None] * (len(answer) - 1)
    assert asked[-1] not in (None, first)


def test_an_error_ends_the_run() -> None:
    talk = update("t", b"x", keys()).talk()
    next(talk)
    with pytest.raises(UnexpectedAnswerError):
        talk.send(zmtp.message(b"", b"\x01", b"no such table"))


def test_redis_hears_lengths_that_are_true() -> None:
    assert next(redis_set(b"abc", keys()).talk()) == b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000000\r\n$3\r\nabc\r\n"
    assert next(redis_get(b"abc", keys()).talk()) == b"*2\r\n$3\r\nGET\r\n$16\r\nkey-000000000000\r\n"


def test_new_keys_are_none_of_those_that_are_there() -> None:
    there = keys()
    known = {next(there) for _ in range(KEYS + 1)}
    assert len(known) == KEYS
    assert next(new_keys()) not in known


def test_messages_are_parsed_however_they_are_cut() -> None:
    wanted = [[b"t", b"\0", b"k"], [b"v" * 300], [b""]]
    data = b"".join(zmtp.message(*frames) for frames in wanted)
    for cut in range(len(data)):
        head, rest = zmtp.parse(data[:cut])
        tail, left = zmtp.parse(rest + data[cut:])
        assert (head + tail, left) == (wanted, b"")


@pytest.mark.parametrize(
    "said",
    [
        "60 / 60 Boooo 100.00% 1m0s\nPASS: Throughput is 8900 writes/s\nPASS: Slowest request took 0.1s\nPASS\n",
        "FAIL: Throughput too low: 8900 writes/s\nSlowest request took too long: 1.2s\nFAIL\n",
    ],
    ids=["pass", "fail"],
)
def test_the_throughput_of_etcd_is_read_from_its_verdict(said: str) -> None:
    assert writes_per_s(said) == 8900


def test_a_verdict_without_throughput_ends_the_run() -> None:
    with pytest.raises(UnexpectedAnswerError):
        writes_per_s("Error: context deadline exceeded")
