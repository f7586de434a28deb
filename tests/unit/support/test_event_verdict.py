"""The judge of archives and histories finds each fault: an archive that is not the log, a log that cannot be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.event_record import RECORD
from tests.support.event_verdict import differences, illegal_histories

PARTITIONS = 4
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(RECORD.names),
    "partition": 1,
    "namespace": "default",
    "attempt": 0,
    "wait_ms": 0,
    "service_ms": 0,
    "payload_bytes": 0,
}
Event = dict[str, Any]


def job(kind: str, state: str | None, at_ms: int, **fields: Any) -> Event:
    """An event of the one job."""
    return {"kind": f"job_{kind}", "state": state, "at_ms": at_ms, "queue": "q", "job_id": 9, "rank": 5, **fields}


def row(kind: str, at_ms: int, **fields: Any) -> Event:
    """An event of the one row."""
    return {"kind": f"row_{kind}", "at_ms": at_ms, "table": "t", "key": b"k", **fields}


def table_of(events: list[Event]) -> pa.Table:
    """A log of one partition; offsets are given where an event has none."""
    rows = [_DEFAULTS | {"offset": number} | event for number, event in enumerate(events, 1)]
    return pa.Table.from_pylist(rows, schema=RECORD)


def log() -> list[Event]:
    """What may be."""
    return [
        {"kind": "queue_created", "queue": "q", "at_ms": 1},
        job("enqueued", "delayed", 1),
        job("ready", "ready", 11),
        job("dequeued", "leased", 20, attempt=1, wait_ms=10),
        job("extended", "leased", 25, attempt=1),
        job("released", "ready", 30, attempt=1, service_ms=10, detail="too hard"),
        job("dequeued", "leased", 31, attempt=2, wait_ms=1),
        job("lease_expired", "dead", 41, attempt=2, service_ms=10),
        job("redriven", "ready", 50, attempt=0),
        job("dequeued", "leased", 50, attempt=1),
        job("acknowledged", None, 60, attempt=1, service_ms=10),
        row("put", 61, payload_bytes=3, expires_at_ms=70, payload=b"abc"),
        row("expired", 70),
        row("put", 80),
        row("deleted", 81),
        {"kind": "queue_deleted", "queue": "q", "at_ms": 90},
    ]


ACKNOWLEDGED = 10
SECOND_LEASE = 7


class TestAnArchive:
    """Held against the log."""

    def test_may_be_in_any_order(self) -> None:
        assert differences(table_of(log()), table_of(log()).take(list(reversed(range(len(log())))))) == []

    @pytest.mark.parametrize("at", range(len(log())))
    def test_must_not_miss_an_event(self, at: int) -> None:
        archive = pa.concat_tables([(whole := table_of(log())).slice(0, at), whole.slice(at + 1)])
        [line] = differences(whole, archive)
        assert line.startswith("missing in the archive: 1 times, first partition=1, offset=" + str(at + 1))

    def test_must_not_tell_an_event_twice(self) -> None:
        archive = pa.concat_tables([(whole := table_of(log())), whole.slice(3, 1)])
        assert differences(whole, archive) == [
            "more than once in the archive: 1 times, first partition=1, offset=4, times=2"
        ]

    def test_must_not_tell_of_what_never_was(self) -> None:
        archive = pa.concat_tables([(whole := table_of(log())), table_of([{**log()[0], "partition": 2}])])
        [line] = differences(whole, archive)
        assert line.startswith("in the archive, never in the log: 1 times, first partition=2, offset=1")

    @pytest.mark.parametrize("column", [name for name in RECORD.names if name not in ("partition", "offset")])
    @pytest.mark.parametrize("at", [ACKNOWLEDGED, ACKNOWLEDGED + 1], ids=["of a job", "of a row"])
    def test_must_not_alter_a_column(self, column: str, at: int) -> None:
        rows = table_of(log()).to_pylist()
        value = rows[at][column]
        another: dict[type, Any] = {str: "another", bytes: b"another", int: -1, type(None): 7}
        rows[at][column] = another[type(value)] if value is not None else _some(column)
        found = differences(table_of(log()), pa.Table.from_pylist(rows, schema=RECORD))
        assert [line.partition(":")[0] for line in found] == [f"{column} differs"]

    def test_must_not_forget_a_value(self) -> None:
        rows = table_of(log()).to_pylist()
        rows[ACKNOWLEDGED + 1]["payload"] = None
        assert len(differences(table_of(log()), pa.Table.from_pylist(rows, schema=RECORD))) == 1


def _some(column: str) -> Any:
    """A value where there was none."""
    kind = RECORD.field(column).type
    return "x" if kind == pa.string() else b"x" if kind == pa.binary() else 7


def broken(at: int, **fields: Any) -> list[Event]:
    """The log with one event that is otherwise."""
    events = log()
    events[at] |= fields
    return events


def without(at: int) -> list[Event]:
    """The log in which something never happened."""
    return [event for number, event in enumerate(log()) if number != at]


def followed_by(*events: Event) -> list[Event]:
    """The log with more behind it, but in a queue that is there."""
    return [*log()[:-1], *events]


class TestAHistory:
    """Of everything a partition tells."""

    def test_may_be_as_it_should(self) -> None:
        assert illegal_histories(table_of(log()), PARTITIONS) == []

    @pytest.mark.parametrize(
        ("events", "fault"),
        [
            (broken(5, offset=60), "an offset is missing"),
            (broken(5, offset=5), "an offset is missing"),
            (broken(11, at_ms=59), "the clock of a partition falls"),
            (broken(1, job_id=8), "a job is in a partition that its id does not name"),
            (followed_by(job("deleted", None, 91, attempt=1)), "a step that no job may take"),
            (followed_by(job("dequeued", "leased", 91, attempt=2, wait_ms=31)), "a step that no job may take"),
            (followed_by(job("enqueued", "ready", 91)), "a step that no job may take"),
            (without(1), "a step that no job may take"),
            (without(2), "a step that no job may take"),
            (without(5), "a step that no job may take"),
            (without(8), "a step that no job may take"),
            (broken(10, state="ready"), "a step that no job may take"),
            (broken(SECOND_LEASE, attempt=1), "attempts are counted wrongly"),
            (broken(6, attempt=1), "attempts are counted wrongly"),
            (broken(8, attempt=1), "attempts are counted wrongly"),
            (broken(1, attempt=1), "attempts are counted wrongly"),
            (broken(10, queue="p"), "a job changes its queue, rank or size"),
            (broken(10, rank=4), "a job changes its queue, rank or size"),
            (broken(10, payload_bytes=4), "a job changes its queue, rank or size"),
            (broken(10, namespace="other"), "a job changes its queue, rank or size"),
            (broken(10, service_ms=9), "a lease is of another length"),
            (broken(4, service_ms=5), "a lease is of another length"),
            (broken(6, wait_ms=2), "a wait is of another length"),
            (broken(3, wait_ms=8), "a wait is of another length"),
            (broken(10, wait_ms=1), "a wait is of another length"),
            (without(0), "something happens to a queue that is not there"),
            (broken(15, kind="queue_created"), "something happens to a queue that is not there"),
            (followed_by(row("deleted", 91)), "a row goes that is not there"),
            (followed_by(row("expired", 91)), "a row goes that is not there"),
            (broken(12, at_ms=69), "a row expires before its time"),
            (broken(14, kind="row_expired"), "a row expires before its time"),
            (broken(12, kind="row_put"), "a row is changed after its time"),
            (broken(12, kind="row_deleted"), "a row is changed after its time"),
        ],
    )
    def test_must_not_be_impossible(self, events: list[Event], fault: str) -> None:
        found = illegal_histories(table_of(events), PARTITIONS)
        assert any(line.startswith(fault) for line in found), found
