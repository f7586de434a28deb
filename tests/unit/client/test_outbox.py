"""What is added before the writer looks goes out together, within bounds."""

from __future__ import annotations

import asyncio

from quintet.v1.job_pb2 import NewJob
from quintet.v1.queue_service_pb2 import CountRequest, EnqueueRequest
from quintet_client.outbox import REQUEST_BYTES_SOFT_MAX, REQUEST_OPERATIONS_MAX, Outbox


def test_nothing_added_is_nothing_to_take() -> None:
    assert Outbox().take() == []


def test_operations_are_copied_in_the_order_added() -> None:
    outbox = Outbox()
    request = CountRequest(queue="first")
    outbox.add(1, 7, "count", request)
    request.queue = "second"
    outbox.add(2, 8, "count", request)
    [taken] = outbox.take()
    assert [(each.sequence, each.owner, each.count.queue) for each in taken.operations] == [
        (1, 7, "first"),
        (2, 8, "second"),
    ]
    assert len(outbox) == 0


def test_an_empty_message_is_an_operation_all_the_same() -> None:
    outbox = Outbox()
    outbox.add(1, 1, "count", CountRequest())
    assert outbox.take()[0].operations[0].WhichOneof("operation") == "count"


def test_a_request_keeps_to_its_bounds() -> None:
    outbox = Outbox()
    half = EnqueueRequest(jobs=[NewJob(payload=b"x" * (REQUEST_BYTES_SOFT_MAX // 2 - 100))])
    for sequence in range(5):
        outbox.add(sequence, 1, "enqueue", half)
    assert [len(request.operations) for request in outbox.take()] == [2, 2, 1]
    for sequence in range(REQUEST_OPERATIONS_MAX + 1):
        outbox.add(sequence, 1, "count", CountRequest())
    taken = outbox.take()
    assert [len(request.operations) for request in taken] == [REQUEST_OPERATIONS_MAX, 1]
    sequences = [operation.sequence for request in taken for operation in request.operations]
    assert sequences == list(range(REQUEST_OPERATIONS_MAX + 1))


async def test_the_writer_wakes_for_the_first_operation_and_when_told() -> None:
    outbox = Outbox()
    writer = asyncio.ensure_future(outbox.wait_filled())
    await asyncio.sleep(0)
    assert not writer.done()
    outbox.add(1, 1, "count", CountRequest())
    await writer
    outbox.take()
    writer = asyncio.ensure_future(outbox.wait_filled())
    await asyncio.sleep(0)
    outbox.wake()
    await writer
