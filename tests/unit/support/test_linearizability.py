"""The checker of rows accepts what can have happened and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.linearizability import Search, violations
from tests.support.row_history import Outcome, RowHistory, RowOperation, State, Ttl, Verb, after, resolved

ROW = ("table", b"key")
SECOND = 1000.0


class Client:
    """Histories as they might have been; instants in seconds."""

    def __init__(self) -> None:
        self.history = RowHistory()

    def _add(
        self, operation: RowOperation, begin: float, end: float, outcome: Outcome, version: int | None, expires: float
    ) -> RowOperation:
        operation.invoked_at, operation.returned_at = begin * SECOND, end * SECOND
        operation.outcome, operation.version = outcome, version
        operation.expires_at_ms = int(expires * SECOND)
        self.history.operations.append(operation)
        return operation

    def put(
        self,
        value: bytes,
        version: int,
        begin: float,
        end: float,
        *,
        ttl_s: float | None = None,
        ttl: Ttl = Ttl.KEEP,
        expires: float = 0,
        expected: int | None = None,
        created: bool | None = None,
        outcome: Outcome = Outcome.OK,
    ) -> RowOperation:
        put = RowOperation("c", Verb.PUT, ROW, value, ttl, 0, expected, created=created)
        if ttl_s is not None:
            put.ttl, put.ttl_ms = Ttl.SET, int(ttl_s * SECOND)
        return self._add(put, begin, end, outcome, version, expires)

    def put_in_doubt(self, value: bytes, begin: float, *, expected: int | None = None) -> None:
        put = RowOperation("c", Verb.PUT, ROW, value, expected_version=expected)
        put.invoked_at = begin * SECOND
        self.history.operations.append(put)

    def delete_in_doubt(self, begin: float) -> None:
        delete = RowOperation("c", Verb.DELETE, ROW)
        delete.invoked_at = begin * SECOND
        self.history.operations.append(delete)

    def get(self, value: bytes, version: int, begin: float, end: float, *, expires: float = 0) -> None:
        self._add(RowOperation("c", Verb.GET, ROW, value), begin, end, Outcome.OK, version, expires)

    def get_nothing(self, begin: float, end: float) -> None:
        self._add(RowOperation("c", Verb.GET, ROW), begin, end, Outcome.NOT_FOUND, None, 0)

    def delete(self, value: bytes, version: int, begin: float, end: float, *, expires: float = 0) -> None:
        self._add(RowOperation("c", Verb.DELETE, ROW, value), begin, end, Outcome.OK, version, expires)

    def found(self) -> list[str]:
        return [violation.partition(":")[0] for violation in violations(self.history.operations)]


@pytest.fixture
def client() -> Client:
    return Client()


def test_nothing_is_wrong_without_operations(client: Client) -> None:
    assert client.found() == []


def test_a_row_is_there_from_its_put_to_its_delete(client: Client) -> None:
    client.get_nothing(0, 1)
    client.put(b"a", 1, 2, 3)
    client.get(b"a", 1, 4, 5)
    client.delete(b"a", 1, 6, 7)
    client.get_nothing(8, 9)
    assert client.found() == []


def test_a_get_beside_a_put_sees_either(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put(b"b", 2, 2, 9)
    client.get(b"a", 1, 3, 4)
    client.get(b"b", 2, 5, 6)
    assert client.found() == []


def test_a_get_never_goes_back_in_time(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put(b"b", 2, 2, 9)
    client.get(b"b", 2, 3, 4)
    client.get(b"a", 1, 5, 6)
    assert client.found() == ["not linearizable"]


def test_an_answered_put_is_seen_by_all_that_come_later(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put(b"b", 2, 2, 3)
    client.get(b"a", 1, 4, 5)
    assert client.found() == ["not linearizable"]


def test_an_answered_put_is_not_lost(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.get_nothing(2, 3)
    assert client.found() == ["not linearizable"]


def test_a_value_that_nobody_put_is_not_seen(client: Client) -> None:
    client.get(b"a", 1, 0, 1)
    assert client.found() == ["not linearizable"]


def test_a_value_is_not_seen_under_another_version(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.get(b"a", 2, 2, 3)
    assert client.found() == ["not linearizable"]


def test_a_deleted_row_is_not_seen_and_not_deleted_again(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.delete(b"a", 1, 2, 3)
    client.delete(b"a", 1, 4, 5)
    assert client.found() == ["not linearizable"]


def test_a_put_tells_whether_it_created_the_row(client: Client) -> None:
    client.put(b"a", 1, 0, 1, created=True)
    client.put(b"b", 2, 2, 3, created=False)
    assert client.found() == []
    client.put(b"c", 3, 4, 5, created=True)
    assert client.found() == ["not linearizable"]


def test_a_put_in_doubt_may_have_happened(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put_in_doubt(b"b", 2)
    client.get(b"a", 1, 3, 4)
    client.get(b"b", 2, 5, 6)
    assert client.found() == []


def test_a_put_in_doubt_may_not_have_happened(client: Client) -> None:
    client.put_in_doubt(b"a", 0)
    client.get_nothing(1, 2)
    assert client.found() == []


def test_a_put_in_doubt_does_not_happen_twice(client: Client) -> None:
    client.put_in_doubt(b"a", 0)
    client.get(b"a", 1, 1, 2)
    client.delete(b"a", 1, 3, 4)
    client.get(b"a", 2, 5, 6)
    assert client.found() == ["not linearizable"]


def test_a_put_in_doubt_does_not_happen_before_it_was_sent(client: Client) -> None:
    client.get(b"a", 1, 0, 1)
    client.put_in_doubt(b"a", 2)
    assert client.found() == ["not linearizable"]


def test_a_put_in_doubt_that_nobody_saw_may_be_why_a_version_was_another(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put(b"c", 0, 4, 5, expected=1, outcome=Outcome.MISMATCH)
    assert client.found() == ["not linearizable"]
    client.put_in_doubt(b"b", 2)
    assert client.found() == []


def test_a_delete_in_doubt_explains_one_absence(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.delete_in_doubt(2)
    client.get_nothing(3, 4)
    client.put(b"b", 3, 5, 6)
    client.get(b"b", 3, 7, 8)
    assert client.found() == []
    client.get_nothing(9, 10)
    assert client.found() == ["not linearizable"]


def test_of_two_puts_that_expect_the_same_version_one_succeeds(client: Client) -> None:
    client.put(b"a", 1, 0, 1)
    client.put(b"b", 2, 2, 5, expected=1)
    client.put(b"c", 0, 2, 5, expected=1, outcome=Outcome.MISMATCH)
    assert client.found() == []
    client.put(b"d", 3, 2, 5, expected=1)
    assert client.found() == ["not linearizable"]


def test_a_put_that_expects_no_row_is_refused_only_where_there_is_one(client: Client) -> None:
    client.put(b"a", 0, 0, 1, expected=0, outcome=Outcome.MISMATCH)
    assert client.found() == ["not linearizable"]
    client.put(b"b", 1, 0, 1)
    assert client.found() == []


def test_versions_of_a_row_grow(client: Client) -> None:
    client.put(b"a", 5, 0, 1)
    client.put(b"b", 4, 2, 3)
    assert client.found() == ["version fell", "not linearizable"]


def test_versions_of_several_rows_grow_with_time(client: Client) -> None:
    client.put(b"a", 5, 0, 1)
    client.put(b"b", 4, 2, 3).row = ("other", b"key")
    assert client.found() == ["version fell"]


def test_a_version_is_given_once(client: Client) -> None:
    client.put(b"a", 5, 0, 9)
    client.put(b"b", 5, 0, 9).row = ("other", b"key")
    assert client.found() == ["version given twice"] * 2


def test_an_expired_row_is_never_seen(client: Client) -> None:
    client.put(b"a", 1, 0, 1, ttl_s=10, expires=10.5)
    client.get(b"a", 1, 9, 12, expires=10.5)
    client.get_nothing(11, 12)
    assert client.found() == []
    client.get(b"a", 1, 11, 12, expires=10.5)
    assert client.found() == ["not linearizable"]


def test_a_row_is_there_until_its_deadline(client: Client) -> None:
    client.put(b"a", 1, 0, 1, ttl_s=10, expires=10.5)
    client.get_nothing(9, 10)
    assert client.found() == ["not linearizable"]


def test_a_deadline_is_as_long_after_the_put_as_it_says(client: Client) -> None:
    client.put(b"a", 1, 0, 1, ttl_s=10, expires=12)
    assert client.found() == ["not linearizable"]


def test_a_put_keeps_a_deadline_or_clears_it(client: Client) -> None:
    client.put(b"a", 1, 0, 1, ttl_s=10, expires=10.5)
    client.put(b"b", 2, 2, 3, expires=10.5)
    client.put(b"c", 3, 4, 5, ttl=Ttl.CLEAR)
    client.get(b"c", 3, 20, 21)
    assert client.found() == []
    client.put(b"d", 4, 22, 23, expires=10.5)
    assert client.found() == ["not linearizable"]


def test_a_put_behind_the_deadline_keeps_nothing(client: Client) -> None:
    client.put(b"a", 1, 0, 1, ttl_s=10, expires=10.5)
    client.put(b"b", 2, 11, 12, created=True)
    assert client.found() == []


def test_a_long_history_with_many_doubts_is_decided(client: Client) -> None:
    for step in range(300):
        client.put_in_doubt(b"doubt %d" % step, step)
        client.delete_in_doubt(step)
        client.put(b"%d" % step, step + 1, step + 0.1, step + 0.8)
        client.get(b"%d" % step, step + 1, step + 0.2, step + 0.9)
    assert client.found() == []
    client.get(b"7", 8, 200, 201)
    assert client.found() == ["not linearizable"]


# --- against brute force


def linearizable_by_force(operations: list[RowOperation]) -> bool:
    """Every order of everything certain with every choice of what is in doubt."""
    said = resolved(operations)
    certain = [operation for operation in said if operation.outcome is not Outcome.IN_DOUBT]
    doubtful = [operation for operation in said if operation.outcome is Outcome.IN_DOUBT]
    return any(
        _follows(State(), order)
        for count in range(len(doubtful) + 1)
        for chosen in combinations(doubtful, count)
        for order in permutations((*certain, *chosen))
    )


def _follows(state: State, order: tuple[RowOperation, ...]) -> bool:
    if not order:
        return True
    return any(_follows(following, order[1:]) for following in after(state, order[0]))


@dataclass
class Attempt:
    """One operation as it will be played: when it is sent, takes effect and is answered, and whether that is seen."""

    make: Callable[[int, list[int]], RowOperation]
    begin: int
    to_effect: int
    to_answer: int
    in_doubt: bool
    happens: bool


def _request(number: int, versions: list[int], verb: Verb, ttl: Ttl, ttl_s: int, expects: int | None) -> RowOperation:
    """`expects`: None: nothing; 0: no row; else one of the versions that somebody was told of."""
    expected = expects
    if expects:
        expected = versions[expects % len(versions)] if versions else 10**6
    if verb is Verb.GET:
        return RowOperation("c", verb, ROW)
    if verb is Verb.DELETE:
        return RowOperation("c", verb, ROW, expected_version=expected or None)
    return RowOperation("c", verb, ROW, b"%d" % number, ttl, ttl_s * 1000 if ttl is Ttl.SET else 0, expected)


attempts = st.builds(
    Attempt,
    make=st.builds(
        lambda verb, ttl, ttl_s, expects: (
            lambda number, versions: _request(number, versions, verb, ttl, ttl_s, expects)
        ),
        st.sampled_from([Verb.PUT, Verb.PUT, Verb.GET, Verb.GET, Verb.DELETE]),
        st.sampled_from(Ttl),
        st.integers(1, 3),
        st.sampled_from([None, None, None, 0, 1, 2]),
    ),
    begin=st.integers(0, 6),
    to_effect=st.integers(0, 2),
    to_answer=st.integers(0, 2),
    in_doubt=st.sampled_from([False, False, True]),
    happens=st.booleans(),
)


class Server:
    """A row as it should be, played in the order of effects."""

    def __init__(self) -> None:
        self.version = 0
        self.row: RowOperation | None = None

    def do(self, operation: RowOperation, at: int) -> None:
        row = self.row
        if row is not None and row.expires_at_ms and row.expires_at_ms <= at:
            self.version += 1
            row = self.row = None
        expected = operation.expected_version
        if row is None and operation.verb is not Verb.PUT:
            operation.outcome = Outcome.NOT_FOUND
        elif expected is not None and expected != (row.version if row is not None else 0):
            operation.outcome = Outcome.MISMATCH
        elif operation.verb is Verb.PUT:
            self.put(operation, at)
        else:
            assert row is not None
            operation.outcome, operation.value = Outcome.OK, row.value
            operation.version, operation.expires_at_ms = row.version, row.expires_at_ms
            if operation.verb is Verb.DELETE:
                self.version += 1
                self.row = None

    def put(self, put: RowOperation, at: int) -> None:
        self.version += 1
        kept = self.row.expires_at_ms if self.row is not None and put.ttl is Ttl.KEEP else 0
        put.outcome, put.version, put.created = Outcome.OK, self.version, self.row is None
        put.expires_at_ms = at + put.ttl_ms if put.ttl is Ttl.SET else kept
        self.row = replace(put)


def played(tries: list[Attempt]) -> list[RowOperation]:
    """The history of these attempts on a server that does as it should."""
    server, versions = Server(), list[int]()
    found: list[RowOperation] = []
    for number, attempt in enumerate(sorted(tries, key=lambda attempt: attempt.begin + attempt.to_effect)):
        operation = attempt.make(number, versions)
        operation.invoked_at = attempt.begin * SECOND
        at = int((attempt.begin + attempt.to_effect) * SECOND)
        if attempt.in_doubt:
            if attempt.happens:
                # A copy: the client is told nothing.
                server.do(replace(operation), at)
        else:
            server.do(operation, at)
            operation.returned_at = at + attempt.to_answer * SECOND
            if operation.version:
                versions.append(operation.version)
        found.append(operation)
    return found


def lies(operations: list[RowOperation]) -> Iterator[Callable[[], None]]:
    """Ways to make one answer another."""

    def lie(operation: RowOperation, **fields: object) -> Callable[[], None]:
        def do() -> None:
            for name, value in fields.items():
                setattr(operation, name, value)

        return do

    for operation in operations:
        if operation.outcome is Outcome.IN_DOUBT:
            continue
        if operation.verb is not Verb.PUT or operation.expected_version is not None:
            yield lie(operation, outcome=Outcome.MISMATCH if operation.verb is Verb.PUT else Outcome.NOT_FOUND)
        if operation.outcome is Outcome.OK:
            yield lie(operation, version=(operation.version or 0) + 1)
            yield lie(operation, expires_at_ms=(operation.expires_at_ms or 0) + 1000)
            yield lie(operation, returned_at=operation.invoked_at)
            yield lie(operation, created=not operation.created)
        for other in operations:
            if other.outcome is Outcome.OK and operation.verb is not Verb.PUT:
                seen = {"value": other.value, "version": other.version, "expires_at_ms": other.expires_at_ms}
                yield lie(operation, outcome=Outcome.OK, **seen)


@settings(max_examples=300)
@given(tries=st.lists(attempts, max_size=12))
def test_whatever_a_right_server_does_is_accepted(tries: list[Attempt]) -> None:
    operations = played(tries)
    search = Search(operations)
    assert search.succeeds(), [str(operation) for operation in operations]


@settings(max_examples=300)
@given(tries=st.lists(attempts, min_size=1, max_size=5), data=st.data())
def test_a_wrong_answer_is_judged_as_by_brute_force(tries: list[Attempt], data: st.DataObject) -> None:
    operations = played(tries)
    possible = list(lies(operations))
    assume(possible)
    data.draw(st.sampled_from(possible))()
    assert Search(operations).succeeds() == linearizable_by_force(operations), list(map(str, operations))


def test_brute_force_knows_right_from_wrong() -> None:
    client = Client()
    client.put(b"a", 1, 0, 1)
    client.get(b"a", 1, 2, math.inf)
    assert linearizable_by_force(client.history.operations)
    client.get_nothing(2, 3)
    assert not linearizable_by_force(client.history.operations)
