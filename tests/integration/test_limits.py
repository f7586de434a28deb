"""Every bound is a setting: a core that is told narrow ones keeps to them, and says which was passed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import metrics_service_pb2 as m
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1 import table_service_pb2 as t
from quintet.v1.job_pb2 import NewJob
from quintet.v1.reason_pb2 import Reason
from quintet_core.domain.limits import Limits

from tests.support.api import Api, refused
from tests.support.core import running_core
from tests.support.stack import CorePart

NARROW = {
    "payload_bytes_max": 10,
    "batch_jobs_max": 2,
    "batch_bytes_max": 12,
    "batch_rows_max": 2,
    "redrive_ids_max": 2,
    "queues_per_dequeue_max": 2,
    "tables_per_watch_max": 2,
    "wait_ms_max": 5000,
    "lease_ms_max": 60_000,
    "delay_ms_max": 60_000,
    "name_bytes_max": 5,
    "namespace_bytes_max": 7,
    "label_bytes_max": 5,
    "key_bytes_max": 3,
    "failure_reason_bytes_max": 4,
    "attributes_max": 1,
    "attributes_bytes_max": 6,
    "page_max": 3,
    "events_per_read_max": 4,
    "owners_max": 2,
    "parked_max": 1,
    "awaiting_max": 1,
    "event_subscriptions_max": 1,
    "watches_max": 1,
    "block_streams_max": 0,
    "metrics_streams_max": 0,
    "consumers_max": 1,
    "namespaces_max": 0,
}
# Met only by a store that does not answer: tests/unit/core/storage/test_pipeline.py.
ELSEWHERE = {"queued_operations_max", "queued_bytes_max"}


def put(**fields: Any) -> q.EnqueueRequest:
    return q.EnqueueRequest(queue="q", jobs=[NewJob(**fields)], create_if_missing=True)


JOB, BIG = NewJob(payload=b"x"), NewJob(payload=bytes(10))
PASSED = [
    ("payload_bytes_max", "queues.Enqueue", put(payload=bytes(11)), "PAYLOAD_TOO_LARGE"),
    ("payload_bytes_max", "tables.PutRow", t.PutRowRequest(table="t", value=bytes(11)), "PAYLOAD_TOO_LARGE"),
    ("batch_jobs_max", "queues.Enqueue", q.EnqueueRequest(queue="q", jobs=[JOB] * 3), "LIMIT_EXCEEDED"),
    ("batch_bytes_max", "queues.Enqueue", q.EnqueueRequest(queue="q", jobs=[BIG] * 2), "LIMIT_EXCEEDED"),
    (
        "batch_rows_max",
        "tables.WriteRows",
        t.WriteRowsRequest(table="t", writes=[t.RowWrite(put=t.RowPut(key=b"%d" % key)) for key in range(3)]),
        "LIMIT_EXCEEDED",
    ),
    ("redrive_ids_max", "queues.Redrive", q.RedriveRequest(queue="q", ids=[1, 2, 3]), "INVALID_ARGUMENT"),
    ("queues_per_dequeue_max", "queues.Dequeue", q.DequeueRequest(queues=["a", "b", "c"]), "LIMIT_EXCEEDED"),
    ("queues_per_dequeue_max", "queues.AwaitJobs", q.AwaitJobsRequest(queues=["a", "b", "c"]), "LIMIT_EXCEEDED"),
    ("wait_ms_max", "queues.Dequeue", q.DequeueRequest(queues=["q"], wait_ms=5001), "INVALID_ARGUMENT"),
    ("lease_ms_max", "queues.Dequeue", q.DequeueRequest(queues=["q"], lease_ms=60_001), "INVALID_ARGUMENT"),
    ("delay_ms_max", "queues.Enqueue", put(delay_ms=60_001), "INVALID_ARGUMENT"),
    (
        "delay_ms_max",
        "tables.PutRow",
        t.PutRowRequest(table="t", ttl_change=t.TTL_CHANGE_SET, ttl_ms=60_001),
        "INVALID_ARGUMENT",
    ),
    ("name_bytes_max", "queues.Count", q.CountRequest(queue="ééé"), "LIMIT_EXCEEDED"),
    ("name_bytes_max", "tables.GetTable", t.GetTableRequest(table="tables"), "LIMIT_EXCEEDED"),
    ("namespace_bytes_max", "queues.Count", q.CountRequest(namespace="12345678"), "LIMIT_EXCEEDED"),
    ("label_bytes_max", "queues.Enqueue", put(content_type="x/yyyy"), "LIMIT_EXCEEDED"),
    ("label_bytes_max", "queues.Dequeue", q.DequeueRequest(queues=["q"], worker="worker"), "LIMIT_EXCEEDED"),
    ("key_bytes_max", "tables.GetRow", t.GetRowRequest(table="t", key=b"four"), "LIMIT_EXCEEDED"),
    ("failure_reason_bytes_max", "queues.Release", q.ReleaseRequest(id=1, failure_reason="seven"), "LIMIT_EXCEEDED"),
    ("attributes_max", "queues.Enqueue", put(attributes={"a": "", "b": ""}), "LIMIT_EXCEEDED"),
    ("attributes_bytes_max", "queues.Enqueue", put(attributes={"abc": "defg"}), "LIMIT_EXCEEDED"),
    ("page_max", "queues.ListQueues", q.ListQueuesRequest(page_size=4), "INVALID_ARGUMENT"),
    ("page_max", "tables.ScanRows", t.ScanRowsRequest(table="t", page_size=4), "INVALID_ARGUMENT"),
    ("events_per_read_max", "events.ReadEvents", e.ReadEventsRequest(events_max=5), "INVALID_ARGUMENT"),
    (
        "namespaces_max",
        "admin.UpdateNamespace",
        a.UpdateNamespaceRequest(namespace="some", settings=a.NamespaceSettings(job_events_off=True)),
        "LIMIT_EXCEEDED",
    ),
]
# Proved below, each in its own way.
COUNTED = {
    "tables_per_watch_max", "owners_max", "parked_max", "awaiting_max", "event_subscriptions_max", "watches_max",
    "block_streams_max", "metrics_streams_max", "consumers_max",
}  # fmt: skip


@pytest.fixture(scope="module")
def core() -> Iterator[CorePart]:
    """A core with narrow bounds."""
    with running_core(**{f"QUINTET_{name.upper()}": str(value) for name, value in NARROW.items()}) as core:
        yield core


def test_no_bound_is_forgotten() -> None:
    assert {field.name for field in fields(Limits)} == set(NARROW) | ELSEWHERE
    assert {name for name, *_ in PASSED} | COUNTED == set(NARROW)


@pytest.mark.parametrize(
    ("call", "request_", "reason"),
    [case[1:] for case in PASSED],
    ids=[f"{name}-{call}" for name, call, *_ in PASSED],
)
async def test_what_passes_a_bound_is_refused(api: Api, call: str, request_: Any, reason: str) -> None:
    service, verb = call.split(".")
    answer = await refused(getattr(getattr(api, service), verb)(request_))
    assert answer.reason == reason
    assert answer.message


async def test_what_keeps_the_bounds_is_done(api: Api) -> None:
    job = NewJob(payload=bytes(6), content_type="a/bcd", delay_ms=60_000, attributes={"abc": "def"})
    request = q.EnqueueRequest(namespace="spacesp", queue="queue", jobs=[job, job], create_if_missing=True)
    assert len((await api.queues.Enqueue(request)).ids) == 2
    assert (await api.queues.ListQueues(q.ListQueuesRequest(namespace="spacesp"))).queues[0].name == "queue"
    row = t.PutRowRequest(table="t", key=b"key", value=bytes(10), create_if_missing=True)
    assert (await api.tables.PutRow(row)).created
    assert len((await api.events.ReadEvents(e.ReadEventsRequest())).events) <= NARROW["events_per_read_max"]


@pytest.mark.parametrize(
    ("verb", "wait"),
    [
        ("Dequeue", q.DequeueRequest(queues=["none"], wait_ms=5000, allow_missing=True)),
        ("AwaitJobs", q.AwaitJobsRequest(queues=["none"], wait_ms=5000, allow_missing=True)),
    ],
)
async def test_one_too_many_that_waits_is_refused(api: Api, verb: str, wait: Any) -> None:
    """Which of the two came first is not said; the other is refused at once, and the first when it is cancelled."""
    calls = [asyncio.ensure_future(refused(getattr(api.queues, verb)(wait))) for _ in range(2)]
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [call.result().reason for call in done] == ["TOO_MANY_IN_FLIGHT"]
    for call in waiting:
        call.cancel()


async def test_one_stream_too_many_is_refused(api: Api) -> None:
    watch = api.tables.WatchRows(t.WatchRowsRequest())
    await watch.read()
    answer = await refused(api.tables.WatchRows(t.WatchRowsRequest()).read())
    assert (answer.reason, answer.metadata["max"]) == ("TOO_MANY_IN_FLIGHT", "1")
    watch.cancel()


async def test_one_subscription_too_many_is_refused(api: Api) -> None:
    await api.put("q")
    subscription = api.events.Subscribe(e.SubscribeRequest(from_earliest=True))
    await subscription.read()
    answer = await refused(api.events.Subscribe(e.SubscribeRequest(from_earliest=True)).read())
    assert (answer.reason, answer.metadata["max"]) == ("TOO_MANY_IN_FLIGHT", "1")
    subscription.cancel()


async def test_one_read_in_blocks_too_many_is_refused(api: Api) -> None:
    answer = await refused(api.events.ReadBlocks(e.ReadBlocksRequest()).read())
    assert (answer.reason, answer.metadata["max"]) == ("TOO_MANY_IN_FLIGHT", "0")


async def test_one_stream_of_metrics_too_many_is_refused(api: Api) -> None:
    answer = await refused(api.metrics.Stream(m.StreamRequest()).read())
    assert (answer.reason, answer.metadata["max"]) == ("TOO_MANY_IN_FLIGHT", "0")


async def test_one_consumer_too_many_is_refused(api: Api) -> None:
    await api.events.OpenConsumer(e.OpenConsumerRequest(consumer="one"))
    for call in (
        api.events.OpenConsumer(e.OpenConsumerRequest(consumer="two")),
        api.events.CommitOffset(e.CommitOffsetRequest(consumer="two")),
    ):
        answer = await refused(call)
        assert (answer.reason, answer.metadata["max"]) == ("LIMIT_EXCEEDED", "1")


async def test_a_watch_of_too_many_tables_is_refused(api: Api) -> None:
    reason = "TOO_MANY_IN_FLIGHT"
    async with asyncio.timeout(30):
        while reason == "TOO_MANY_IN_FLIGHT":  # while the watch of the test before is ending
            reason = (await refused(api.tables.WatchRows(t.WatchRowsRequest(tables=["a", "b", "c"])).read())).reason
    assert reason == "LIMIT_EXCEEDED"


async def test_an_owner_too_many_is_refused(api: Api) -> None:
    call = api.sessions.Session()
    operations = [
        s.SessionOperation(sequence=number, owner=number, count=q.CountRequest(queue="none")) for number in (1, 2, 3)
    ]
    await call.write(s.SessionRequest(open=s.SessionOpen(), operations=operations))
    results: dict[int, int] = {}
    while len(results) < len(operations):
        results |= {result.sequence: result.failure.reason for result in (await call.read()).results}
    assert results == {
        1: Reason.REASON_QUEUE_NOT_FOUND,
        2: Reason.REASON_QUEUE_NOT_FOUND,
        3: Reason.REASON_LIMIT_EXCEEDED,
    }
    call.cancel()
