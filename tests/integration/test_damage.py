"""Partial damage: each verb of queues against each key it might meet in each wrong shape; see tests/support/damage.py.

With QUINTET_TEST_FULL set every call meets every damage. Otherwise each meets every key of a wrong type and every
missing key, but only a third of the garbled values, another third than the next call.
"""

from __future__ import annotations

from typing import Any

import pytest
from quintet_core.domain.errors import Reason
from quintet_core.domain.job import LeaseTerms, NewJob
from quintet_core.domain.queue import QueueSettings
from quintet_core.storage import records
from quintet_core.storage.keys import namespace_scope

from tests.support.damage import (
    PARTITION,
    TAG,
    Argument,
    Call,
    Scene,
    damages,
    is_refusal,
    names,
    scene_as_it_is,
    send,
    try_out,
)
from tests.support.partition_state import contents
from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS

SESSION, OWNER = b"session1", b"owner--1"
SCOPE = namespace_scope("n")


_NAMES = names("queue")
FIRST, SECOND, NEW, DELETED = (next(_NAMES) for _ in range(4))
SETTINGS = records.pack_settings(QueueSettings(attempts_max=2, dead_letter_queue="letters", backoff_ms=100))
PLAIN_SETTINGS = records.pack_settings(QueueSettings())
LIMITED_SETTINGS = records.pack_settings(QueueSettings(jobs_max=100, payload_bytes_max=100, rank_range=(-5, 5)))


def enqueue(queue: bytes, **fields: Any) -> Call:
    """One new job."""
    job = NewJob(**{"payload": b"x" * 70, **fields})
    options = records.pack_options(job, job.deduplication_window_ms or 300_000)
    return Call("enqueue", (queue, PLAIN_SETTINGS, 1, options, job.deduplication_key, records.pack_tail(job)))


def dequeue(*queues: bytes, owned: bool = False, lease_ms: int = 60_000, jobs_max: int = 1) -> Call:
    """Some jobs, under an owner's lease or one of a minute."""
    terms = LeaseTerms(0, SESSION, OWNER, 1, "w", 9000) if owned else LeaseTerms(lease_ms)
    return Call("dequeue", (len(queues), *queues, records.pack_terms(jobs_max, terms, False, True, b"")))


def of_job(verb: str, sequence: int, *rest: Argument) -> Call:
    """A verb on a job of the namespace."""
    return Call(verb, (sequence.to_bytes(8, "big"), SCOPE, "0", *rest))


def set_scene(redis: RedisConnection) -> None:
    """Two queues with jobs in every state, a third that is being deleted; sessions, waits, keys and consumers."""
    redis.command("HSET", TAG + ":meta", "clock", START_MS)
    calls = [
        Call("create_queue", (FIRST, SETTINGS)),
        Call("create_queue", (SECOND, LIMITED_SETTINGS)),
        *(enqueue(FIRST, attempts_max=1 if number == 1 else 0) for number in range(1, 6)),  # 1 to 5
        dequeue(FIRST),
        dequeue(FIRST),
        dequeue(FIRST, owned=True),
        dequeue(FIRST),
        of_job("release", 1, "", "", 1, "broken", "0"),  # dead
        of_job("release", 2, "", 0, 1, "again", "0"),  # ready, delivered once
        enqueue(FIRST, delay_ms=50_000),  # 6
        enqueue(FIRST, time_to_live_ms=50_000, deduplication_key="key"),  # 7
        enqueue(SECOND, rank=1),  # 8
        enqueue(SECOND),  # 9
        dequeue(SECOND, owned=True),  # 9
        enqueue(DELETED),  # 10
        enqueue(DELETED),  # 11
        dequeue(DELETED, owned=True),  # 10
        Call("delete_queue", (DELETED,)),
        Call("commit_offset", ("consumer", 3, 1)),
        Call("take_snapshots", (1000, 100)),
        Call("append_process", (1000, "{}")),
        Call("open_consumer", ("consumer", 0, "1", "", "0", 10, "metrics")),
        Call("update_namespace", ("another", 1, 10)),
        Call("pause", (SECOND, 1, 70_000)),
    ]
    for call in calls:
        (answer,) = send(redis, call)
        assert not (isinstance(answer, list) and answer[:1] == [b"!"]), (call, answer)
    for name in ("waiting", "lapsed"):
        redis.command("ZADD", f"{TAG}:{name}", START_MS + 9999, FIRST if name == "waiting" else b"lapsed-1")


# Each verb as it is called on the scene: what is named twice is called in two ways.
CALLS: dict[str, Call] = {
    "enqueue": enqueue(FIRST),
    "enqueue delayed": enqueue(FIRST, delay_ms=10, time_to_live_ms=60_000),
    "enqueue with a key": enqueue(FIRST, deduplication_key="other"),
    "enqueue with a known key": enqueue(FIRST, deduplication_key="key"),
    "enqueue into a new queue": enqueue(NEW),
    "dequeue": dequeue(FIRST),
    "dequeue several": dequeue(FIRST, SECOND, FIRST, jobs_max=9),
    "dequeue by an owner": dequeue(SECOND, FIRST, owned=True),
    "best": Call("best", (2, FIRST, SECOND, "0", "1")),
    "acknowledge": of_job("acknowledge", 4, ""),
    "acknowledge an owner's": of_job("acknowledge", 3, ""),
    "acknowledge what is not leased": of_job("acknowledge", 5, ""),
    "release": of_job("release", 4, "", "", 2, "why", "0"),
    "release later": of_job("release", 3, "", 500, 1, "", "1"),
    "extend": of_job("extend", 4, "", 1000),
    "delete a ready one": of_job("delete", 2),
    "delete a delayed one": of_job("delete", 6),
    "delete a leased one": of_job("delete", 3),
    "delete a dead one": of_job("delete", 1),
    "delete an expiring one": of_job("delete", 7),
    "get_job": of_job("get_job", 4, "1"),
    "get_job delayed": of_job("get_job", 6, "0"),
    "list_jobs": Call("list_jobs", (FIRST, 2, 2, "", "", "1")),
    "list_jobs leased": Call("list_jobs", (FIRST, 3, 9, "inf", (b"\x80" + bytes(7)) + (2).to_bytes(8, "big"), "0")),
    "create_queue": Call("create_queue", (NEW, SETTINGS)),
    "update_queue": Call("update_queue", (FIRST, PLAIN_SETTINGS)),
    "pause": Call("pause", (FIRST, 3, 5000)),
    "resume": Call("resume", (SECOND,)),
    "count": Call("count", (FIRST,)),
    "get_queue": Call("get_queue", (SECOND,)),
    "list_queues": Call("list_queues", (SCOPE, SCOPE + b"\xff", "", 10)),
    "delete_queue": Call("delete_queue", (FIRST,)),
    "purge": Call("purge", (FIRST, 2)),
    "purge leased": Call("purge", (FIRST, 3)),
    "redrive": Call("redrive", (FIRST, 4, "", 10, "1", "", "")),
    "redrive delayed": Call("redrive", (FIRST, 1, "", 10, "0", "", "")),
    "redrive_job": of_job("redrive_job", 1, 4, "0"),
    "close_owner": Call("close_owner", (SESSION, OWNER, "", 0)),
    "close_session": Call("close_session", (SESSION, "")),
    "heartbeat": Call("heartbeat", (9000, 2, SESSION, b"session2")),
    "lapse": Call("lapse", ()),
    "settle_due": Call("settle_due", (10,)),
    "sweep": Call("sweep", ()),
    "letters": Call("letters", (0, 10)),
    "dead_letter": of_job("dead_letter", 1, "letters"),
    "describe_events": Call("describe_events", ("consumer",)),
    "read_events": Call("read_events", (0, 100)),
    "commit_offset": Call("commit_offset", ("consumer", 5, 1)),
    "trim_events": Call("trim_events", (2, 5)),
    # As cores of now call them.
    "describe_events of metrics": Call("describe_events", ("consumer", "metrics")),
    "describe_events of events": Call("describe_events", ("consumer", "events")),
    "read_events of metrics": Call("read_events", (0, 100, "1", "metrics")),
    "find_offset": Call("find_offset", (START_MS, "events")),
    "find_offset of metrics": Call("find_offset", (START_MS + 1, "metrics")),
    "commit_offset of metrics": Call("commit_offset", ("consumer", 1, 9, "metrics", 10)),
    "commit_offset of one more": Call("commit_offset", ("new", 1, 9, "events", 10)),
    "trim_events of events": Call("trim_events", (2, 5, 2**53, "events")),
    "trim_events of metrics": Call("trim_events", (0, 1, 2**53, "metrics")),
    "open_consumer": Call("open_consumer", ("consumer", 0, "1", "", "0", 10, "events")),
    "open_consumer anew": Call("open_consumer", ("consumer", 9, "0", 2, "1", 10, "events")),
    "open_consumer that is not there": Call("open_consumer", ("new", 9, "0", "latest", "0", 10, "metrics")),
    "list_consumers": Call("list_consumers", ("metrics",)),
    "delete_consumer": Call("delete_consumer", ("consumer", "events")),
    "get_namespace": Call("get_namespace", ("another",)),
    "update_namespace": Call("update_namespace", ("another", 3, 10)),
    "update_namespace to nothing": Call("update_namespace", ("another", 0, 10)),
}

# Later, everything with a deadline is due.
LATER_MS = 200_000


@pytest.fixture(scope="module")
def scenes() -> dict[int, Scene]:
    """By how much later it is; filled by `scene_of`."""
    return {}


def scene_of(redis: RedisConnection, scenes: dict[int, Scene], later_ms: int) -> Scene:
    """The scene, made once and kept as dumps."""
    if later_ms not in scenes:
        set_scene(redis)
        redis.command("HSET", TAG + ":meta", "clock", START_MS + later_ms)
        scenes[later_ms] = scene_as_it_is(redis)
    return scenes[later_ms]


def settlings(call: Call) -> list[tuple[Call, ...]]:
    """Calls that carry out what is due where `call` looks, and do no more."""
    if call.arguments[1:3] == (SCOPE, "0"):
        return [(Call("get_job", (*call.arguments[:3], "0")),)]
    queues = (FIRST, SECOND) if call.verb == "settle_due" else call.arguments
    return [tuple(Call("count", (queue,)) for queue in queues if queue in (FIRST, SECOND))]


@pytest.mark.parametrize("later_ms", [0, LATER_MS], ids=["nothing due", "all due"])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_comes_before_the_first_write_or_not_at_all(
    redis: RedisConnection, scenes: dict[int, Scene], name: str, later_ms: int
) -> None:
    scene, call = scene_of(redis, scenes, later_ms), CALLS[name]
    scene.restore(redis)
    usual = send(redis, call)[0], contents(redis, PARTITION)
    # Of the new queue: what stands where its keys are to be.
    possible = damages(scene, list(CALLS).index(name), ["q4:ready", "q4:expiring"])
    tried = ((damage, try_out(redis, scene, call, damage, usual, settlings(call))) for damage in possible)
    failures = [f"{damage.key} {damage.what}: {problem}" for damage, problem in tried if problem]
    assert not failures, f"{len(failures)} of them:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if FIRST in call.arguments])
def test_good_operations_around_a_damaged_one_are_done(
    redis: RedisConnection, scenes: dict[int, Scene], name: str
) -> None:
    scene, call = scene_of(redis, scenes, 0), CALLS[name]
    good = of_job("acknowledge", 9, ""), enqueue(NEW, rank=-7)
    for key in [key for key in scene.found if key.startswith("q1:")]:
        scene.restore(redis)
        redis.commands([("DEL", f"{TAG}:{key}"), ("SET", f"{TAG}:{key}", "x")])
        before, damaged, after = send(redis, good[0], call, good[1])
        assert before == 1
        assert isinstance(after, bytes)
        if is_refusal(damaged):
            assert damaged[1] == Reason.DAMAGED
            got = contents(redis, PARTITION)
            scene.restore(redis)
            redis.commands([("DEL", f"{TAG}:{key}"), ("SET", f"{TAG}:{key}", "x")])
            send(redis, *good)
            assert got == contents(redis, PARTITION)
