"""A job that Redis hands out and the core cannot read: the caller is told, and nothing else stops."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1.reason_pb2 import Reason
from quintet_core.storage.keys import name_key, partition_of, partition_tag

from tests.support.api import Api, refused
from tests.support.redis_server import RedisConnection
from tests.support.stack import CorePart

PARTITIONS = 16


@pytest.fixture
def redis(core: CorePart) -> Iterator[RedisConnection]:
    connection = RedisConnection(str(core.redis.path))
    yield connection
    connection.close()


async def garble(api: Api, redis: RedisConnection, queue: str) -> None:
    """Put a job whose attributes are none."""
    (job_id,) = await api.put(queue, b"bad", attributes={"key": "value"})
    jobs = partition_tag(partition_of(name_key("default", queue), PARTITIONS)) + ":jobs"
    field = (job_id // PARTITIONS).to_bytes(8, "big")
    redis.command("HSET", jobs, field, redis.command("HGET", jobs, field).replace(b"value", b"\xff" * 5))


async def test_a_unary_dequeue_says_damaged(api: Api, redis: RedisConnection, queue: str) -> None:
    await garble(api, redis, queue)
    await api.put(queue, b"good")
    refusal = await refused(api.queues.Dequeue(q.DequeueRequest(queues=[queue])))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "DAMAGED")
    assert (await api.take(queue)).payload == b"good"


async def test_a_session_says_damaged_and_goes_on(api: Api, redis: RedisConnection, queue: str) -> None:
    await garble(api, redis, queue)
    await api.put(queue, b"good")
    call = api.sessions.Session()
    take = q.DequeueRequest(queues=[queue])
    operations = [s.SessionOperation(sequence=number, owner=1, dequeue=take) for number in (1, 2)]
    await call.write(s.SessionRequest(open=s.SessionOpen(), operations=operations))
    results: dict[int, s.SessionResult] = {}
    while len(results) < len(operations):
        results |= {result.sequence: result for result in (await call.read()).results}
    assert results[1].failure.reason == Reason.REASON_DAMAGED
    assert [job.payload for job in results[2].dequeue.jobs] == [b"good"]
    call.cancel()
