"""How operations of a session are timed: all of them, and each once."""

from __future__ import annotations

from collections import Counter

from quintet.v1.session_service_pb2 import SessionOperation
from quintet_core.domain.verbs import SESSION_OPERATIONS
from quintet_core.rpc.arrivals import Arrival, Arrivals


class Counted:
    """What is told."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.seconds: list[float] = []

    def count(self, verb: str, times: int, seconds: float) -> None:
        self.times[verb] += times
        self.seconds.append(seconds)


def test_operations_are_counted_when_their_answers_are_written() -> None:
    counted = Counted()
    arrivals, first, second = Arrivals(counted.count), Arrival(), Arrival()
    for arrival, verb in ((first, "enqueue"), (first, "enqueue"), (second, "enqueue"), (second, "delete")):
        arrivals.answered(arrival, verb)
    assert not counted.times
    arrivals.count()
    assert counted.times == {"enqueue": 3, "delete": 1}
    assert len(counted.seconds) == 3
    assert min(counted.seconds) > 0
    arrivals.count()
    assert counted.times == {"enqueue": 3, "delete": 1}


def test_a_request_is_answered_in_parts() -> None:
    counted = Counted()
    arrivals, arrival = Arrivals(counted.count), Arrival()
    for _ in range(3):
        arrivals.answered(arrival, "dequeue")
        arrivals.count()
    assert counted.times == {"dequeue": 3}
    assert counted.seconds == sorted(counted.seconds)


def test_every_operation_of_the_api_has_its_place() -> None:
    named = {field.name for field in SessionOperation.DESCRIPTOR.oneofs_by_name["operation"].fields}
    assert {*SESSION_OPERATIONS} == {*named, "unknown"}
