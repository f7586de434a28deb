"""The history checker finds each kind of broken promise, and none where there is none."""

from __future__ import annotations

import math

import pytest

from tests.support.history import History, Operation, Outcome, Verb, drained_out_of_order, violations


class Clock:
    """Histories as they might have been: one second per step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.operations: list[Operation] = []

    def put(
        self, key: str, job_id: int, outcome: Outcome = Outcome.OK, *, queue: str = "q", rank: int = 0
    ) -> Operation:
        return self._add(Operation("producer", Verb.PUT, (queue,), key, rank, job_id), outcome)

    def take(
        self,
        client: str,
        key: str,
        job_id: int,
        outcome: Outcome = Outcome.OK,
        *,
        queue: str = "q",
        rank: int = 0,
        lease_s: float | None = None,
    ) -> Operation:
        return self._add(Operation(client, Verb.TAKE, (queue,), key, rank, job_id, lease_s), outcome)

    def end(self, client: str, job_id: int, outcome: Outcome = Outcome.OK) -> Operation:
        return self._deed(Operation(client, Verb.END, job_id=job_id), outcome)

    def give_back(self, client: str, job_id: int, outcome: Outcome = Outcome.OK) -> Operation:
        return self._deed(Operation(client, Verb.RETURN, job_id=job_id), outcome)

    def _deed(self, deed: Operation, outcome: Outcome) -> Operation:
        for take in self.operations:
            if take.took and (take.client, take.job_id) == (deed.client, deed.job_id):
                take.let_go(self.now + 1)
        return self._add(deed, outcome)

    def _add(self, operation: Operation, outcome: Outcome) -> Operation:
        self.now += 1
        operation.invoked_at = self.now
        self.now += 1
        operation.returned_at = math.inf if outcome is Outcome.IN_DOUBT else self.now
        operation.outcome = outcome
        self.operations.append(operation)
        return operation

    def found(self) -> list[str]:
        return [violation.partition(":")[0] for violation in violations(self.operations)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nothing_is_wrong_with_a_job_put_taken_and_ended(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    assert clock.found() == []


def test_nothing_is_wrong_with_a_job_that_was_given_back_and_taken_by_another(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.give_back("worker", 1)
    clock.take("other", "a", 1)
    clock.end("other", 1)
    assert clock.found() == []


def test_an_acknowledged_job_that_nobody_ended_is_lost(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1).let_go(3)
    assert clock.found() == ["lost"]


def test_an_end_in_doubt_may_be_what_became_of_a_job(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1, Outcome.IN_DOUBT)
    assert clock.found() == []


def test_an_end_in_doubt_may_not_have_happened(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1, Outcome.IN_DOUBT)
    clock.take("drain", "a", 1)
    clock.end("drain", 1)
    assert clock.found() == []


def test_a_put_in_doubt_is_there_once_or_not_at_all(clock: Clock) -> None:
    clock.put("a", 0, Outcome.IN_DOUBT)
    clock.put("b", 0, Outcome.IN_DOUBT)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    assert clock.found() == []
    clock.take("worker", "a", 2)
    clock.end("worker", 2)
    assert clock.found() == ["put once, there 2 times"]


def test_a_refused_put_never_appears(clock: Clock) -> None:
    clock.put("a", 0, Outcome.REFUSED)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    assert clock.found() == ["refused, but there"]


def test_a_job_out_of_nowhere_is_noticed(clock: Clock) -> None:
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    assert clock.found() == ["never put"]


def test_a_job_that_changed_is_noticed(clock: Clock) -> None:
    clock.put("a", 1, queue="q")
    clock.put("b", 2, rank=5)
    clock.take("worker", "a", 1, queue="other")
    clock.end("worker", 1)
    clock.take("worker", "b", 2, rank=6)
    clock.end("worker", 2)
    assert clock.found() == ["changed", "changed"]


def test_a_repeated_id_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    clock.put("b", 1)
    assert clock.found() == ["one id for several jobs"]


def test_a_job_taken_under_another_id_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 2)
    clock.end("worker", 2)
    assert "taken under another id" in clock.found()


def test_a_job_handed_out_twice_within_an_owner_lease_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.take("other", "a", 1)
    clock.end("other", 1)
    assert clock.found() == ["handed out twice"]


def test_a_client_that_lost_its_connection_does_not_hold_the_job_any_more(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1).let_go(4.5)
    clock.take("other", "a", 1)
    clock.end("other", 1)
    assert clock.found() == []


def test_a_job_handed_out_again_after_the_lease_ran_out_is_right(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1, lease_s=2)
    clock.take("other", "a", 1, lease_s=100)
    clock.end("other", 1)
    assert clock.found() == []


def test_a_job_handed_out_again_before_the_lease_ran_out_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1, lease_s=20)
    clock.take("other", "a", 1, lease_s=20)
    clock.end("other", 1)
    assert clock.found() == ["handed out twice"]


def test_a_job_that_ends_twice_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    clock.end("other", 1)
    assert clock.found() == ["ended twice"]


def test_a_job_that_comes_back_after_its_end_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    clock.take("other", "a", 1)
    assert clock.found() == ["came back after its end at 6.000"]


def test_a_take_under_way_while_another_ends_the_job_is_no_comeback(clock: Clock) -> None:
    clock.put("a", 1)
    take = clock.take("worker", "a", 1)
    clock.end("producer", 1)
    take.returned_at = clock.now + 1
    assert clock.found() == []


@pytest.mark.parametrize("outcome", [Outcome.EMPTY, Outcome.REFUSED])
def test_a_holder_that_may_not_end_its_job_is_noticed(clock: Clock, outcome: Outcome) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("worker", 1, outcome)
    clock.take("drain", "a", 1)
    clock.end("drain", 1)
    assert clock.found() == ["denied to its holder"]


def test_a_holder_that_may_not_give_its_job_back_is_noticed(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.give_back("worker", 1, Outcome.REFUSED)
    clock.take("drain", "a", 1)
    clock.end("drain", 1)
    assert clock.found() == ["denied to its holder"]


def test_a_holder_whose_job_another_ended_is_rightly_told_so(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1)
    clock.end("producer", 1)
    clock.end("worker", 1, Outcome.EMPTY)
    assert clock.found() == []


def test_a_late_end_is_rightly_refused(clock: Clock) -> None:
    clock.put("a", 1)
    clock.take("worker", "a", 1, lease_s=1)
    clock.end("worker", 1, Outcome.EMPTY)
    clock.take("drain", "a", 1)
    clock.end("drain", 1)
    assert clock.found() == []


def test_a_job_that_overtakes_a_better_one_is_noticed(clock: Clock) -> None:
    clock.put("a", 1, rank=1)
    clock.put("b", 2, rank=0)
    clock.take("worker", "a", 1, rank=1)
    clock.take("worker", "b", 2)
    clock.end("worker", 1)
    clock.end("worker", 2)
    assert clock.found() == ["overtaken"]


def test_equal_ranks_come_in_the_order_of_their_ids(clock: Clock) -> None:
    clock.put("a", 1)
    clock.put("b", 2)
    clock.take("worker", "b", 2)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    clock.end("worker", 2)
    assert clock.found() == ["overtaken"]


def test_order_is_not_judged_when_a_take_in_doubt_may_have_had_the_better_job(clock: Clock) -> None:
    clock.put("a", 1)
    clock.put("b", 2)
    clock.take("lost", "", 0, Outcome.IN_DOUBT)
    clock.take("worker", "b", 2)
    clock.take("worker", "a", 1)
    clock.end("worker", 1)
    clock.end("worker", 2)
    assert clock.found() == []


def test_a_drain_out_of_order_is_noticed(clock: Clock) -> None:
    first, second = clock.take("drain", "b", 2), clock.take("drain", "a", 1)
    assert len(drained_out_of_order([first, second])) == 1
    assert drained_out_of_order([second, first]) == []


def test_a_recorded_operation_is_in_doubt_until_its_answer_comes() -> None:
    history = History()
    put = history.put("producer", "q", "a")
    assert put.outcome is Outcome.IN_DOUBT
    put.done(Outcome.OK, job_id=1)
    take = history.take("worker", ["q", "r"])
    take.done(Outcome.OK, job_id=1, key="a", queue="q")
    take.let_go()
    history.end("worker", 1).done(Outcome.OK)
    assert history.violations() == []
    assert history.summary() == "1 end ok, 1 put ok, 1 take ok"


class TestEndsThatTellLess:
    """A protocol answers the same whether a job was ended by this request or an earlier one."""

    def test_may_be_many(self, clock: Clock) -> None:
        clock.put("a", 1)
        clock.take("c", "a", 1)
        for _ in range(2):
            clock.end("c", 1, Outcome.OVER)
        assert clock.found() == []

    def test_are_the_end_all_the_same(self, clock: Clock) -> None:
        clock.put("a", 1)
        clock.take("c", "a", 1)
        clock.end("c", 1, Outcome.OVER)
        clock.take("d", "a", 1)
        assert clock.found() == ["came back after its end at 6.000"]


class TestJobsWithoutIds:
    """A protocol tells keys only."""

    def test_are_known_by_their_keys(self, clock: Clock) -> None:
        clock.put("a", 0)
        clock.take("c", "a", 0)
        clock.end("c", 0).key = "a"
        assert clock.found() == []

    def test_are_those_whose_ids_others_were_told(self, clock: Clock) -> None:
        clock.put("a", 0)
        clock.take("c", "a", 7)
        clock.end("c", 7)
        clock.take("d", "a", 0)
        assert clock.found() == ["came back after its end at 6.000"]

    def test_are_lost_like_others(self, clock: Clock) -> None:
        clock.put("a", 0)
        assert clock.found() == ["lost"]


class TestJobsThatGoToTheTail:
    """Among equal ranks the order is not judged then, among others it is."""

    def test_may_be_overtaken_by_their_equals(self, clock: Clock) -> None:
        clock.put("a", 1)
        clock.put("b", 2)
        for key, job_id in (("b", 2), ("a", 1)):
            clock.take("c", key, job_id)
            clock.end("c", job_id)
        assert clock.found() == ["overtaken"]
        assert violations(clock.operations, to_tail=True) == []

    def test_are_not_overtaken_by_higher_ranks(self, clock: Clock) -> None:
        clock.put("a", 1)
        clock.put("b", 2, rank=1)
        for key, job_id, rank in (("b", 2, 1), ("a", 1, 0)):
            clock.take("c", key, job_id, rank=rank)
            clock.end("c", job_id)
        assert len(violations(clock.operations, to_tail=True)) == 1

    def test_are_drained_by_rank(self, clock: Clock) -> None:
        taken = [clock.take("c", "a", 2), clock.take("c", "b", 1), clock.take("c", "c", 3, rank=-1)]
        assert drained_out_of_order(taken[:2], to_tail=True) == []
        assert len(drained_out_of_order(taken, to_tail=True)) == 1
