"""Many operations on one queue in one batch: what a call has read ahead must stay true while it goes on."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quintet_core.domain.job import NewJob, Placement

from tests.property.test_model import Comparison
from tests.support.redis_server import RedisServer

ranks = st.integers(-2, 2)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.just(1)),
        st.tuples(st.just("put"), ranks),
        st.tuples(st.just("delete"), st.integers(0, 60)),
        st.tuples(st.just("fail"), st.integers(0, 60)),
        st.tuples(st.just("peek"), st.just(0)),
    ),
    min_size=15,
    max_size=80,
)


def carry_out(machine: Comparison, kind: str, value: int) -> None:
    """One operation, as part of the batch."""
    if kind == "take":
        machine.take(value, False, False, None, True)
    elif kind == "put":
        machine.enqueue("a", [NewJob(b"", rank=value)], True, True)
    elif kind == "delete":
        machine.delete(value, None, True)
    elif kind == "fail":
        machine.fail(value, Placement.ORIGINAL if value % 2 else Placement.TAIL, True)
    else:
        machine.best(["a"], False, True)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(there=st.lists(ranks, min_size=8, max_size=40), taken=st.integers(0, 10), batch=operations)
def test_a_batch_does_what_its_operations_do_one_by_one(
    redis_server: RedisServer, there: list[int], taken: int, batch: list[tuple[Any, Any]]
) -> None:
    machine = Comparison(redis_server.path)
    try:
        machine.enqueue("a", [NewJob(b"", rank=rank) for rank in [0, *there]], True, True)
        machine.take(taken + 1, False, False, None, False)
        for kind, value in batch:
            carry_out(machine, kind, value)
        machine.flush()
        machine.the_log_tells_what_happened()
        machine.the_keys_agree()
    finally:
        machine.teardown()
