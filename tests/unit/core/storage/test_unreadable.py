"""Records that the functions hand through and the core cannot read: whoever asked is told, nobody waits for ever."""

from __future__ import annotations

import pytest
from quintet_core.storage.records import RecordError

from tests.support.redis_server import RedisConnection
from tests.support.store import Reason, reason_of
from tests.unit.core.storage.verbs import Verbs


async def garble_attributes(verbs: Verbs, redis: RedisConnection) -> int:
    """A job whose attributes are none."""
    job_id = await verbs.put(b"payload", attributes={"key": "value"})
    key, field = f"{{p{verbs.partition:02d}}}:jobs", (job_id // verbs.store.partitions).to_bytes(8, "big")
    body = redis.command("HGET", key, field)
    redis.command("HSET", key, field, body.replace(b"value", b"\xff\xff\xff\xff\xff"))
    return job_id


async def test_a_job_that_cannot_be_read_is_damage(verbs: Verbs, redis: RedisConnection) -> None:
    job_id = await garble_attributes(verbs, redis)
    assert reason_of(await verbs.get(job_id)) is Reason.DAMAGED
    with pytest.raises(RecordError):
        await verbs.take()


async def test_it_does_not_stand_in_the_way_of_others(verbs: Verbs, redis: RedisConnection) -> None:
    await garble_attributes(verbs, redis)
    await verbs.put(b"good")
    with pytest.raises(RecordError):
        await verbs.take()
    assert await verbs.payloads() == [b"good"]


async def test_it_can_still_be_deleted(verbs: Verbs, redis: RedisConnection) -> None:
    job_id = await garble_attributes(verbs, redis)
    await verbs.delete(job_id)
    assert reason_of(await verbs.get(job_id)) is Reason.JOB_NOT_FOUND
