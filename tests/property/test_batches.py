"""Many operations on one queue or table in one batch: what a call has read ahead must stay true while it goes on."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quintet_core.domain.job import NewJob, Placement
from quintet_core.domain.table import TableSettings, TtlChange

from tests.property.test_model import Comparison
from tests.property.test_table_model import TableComparison
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


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
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


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
rows = st.tuples(keys, st.sampled_from([b"", b"x" * 30]), st.sampled_from([(TtlChange.KEEP, 0), (TtlChange.SET, 500)]))
table_operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), rows),
        st.tuples(st.just("put"), rows),
        st.tuples(
            st.just("write"), st.lists(st.tuples(rows, st.booleans()), min_size=1, unique_by=lambda one: one[0][0])
        ),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("get"), keys),
        st.tuples(st.just("count"), st.none()),
        st.tuples(st.just("update"), st.sampled_from([None, 2, 4])),
    ),
    min_size=10,
    max_size=60,
)


def carry_out_on_table(machine: TableComparison, kind: str, value: Any) -> None:
    """One operation, as part of the batch."""
    if kind == "put":
        machine.put_row("a", (*value, None), True, True)
    elif kind == "write":
        machine.write_rows("a", [(*row, None) for row, _ in value], [deleted for _, deleted in value], True, True)
    elif kind == "delete":
        machine.delete_row("a", value, None, True)
    elif kind == "get":
        machine.get_row("a", value, True)
    elif kind == "count":
        machine.get_table("a", True)
    else:
        machine.update_table("a", TableSettings(rows_max=value), True)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(
    there=st.lists(rows, max_size=5), rows_max=st.sampled_from([None, 3]), later=st.booleans(), batch=table_operations
)
def test_a_batch_does_to_a_table_what_its_operations_do_one_by_one(
    redis_server: RedisServer, there: list[Any], rows_max: int | None, later: bool, batch: list[tuple[Any, Any]]
) -> None:
    machine = TableComparison(redis_server.path)
    try:
        machine.create_table("a", TableSettings(rows_max=rows_max), False)
        for row in there:
            machine.put_row("a", (*row, None), True, True)
        machine.time_passes(600 if later else 1)
        for kind, value in batch:
            carry_out_on_table(machine, kind, value)
        machine.flush()
        machine.log_and_keys_tell_what_happened()
    finally:
        machine.teardown()
