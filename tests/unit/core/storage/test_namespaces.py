"""Settings of namespaces: what they do to the log, and what they must not do to jobs."""

from __future__ import annotations

import asyncio
import random

import pytest
from quintet_core.domain.errors import Refusal
from quintet_core.domain.event import EventKind
from quintet_core.domain.job import LeaseTerms, NewJob
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.storage import keys

from tests.support import model
from tests.support.redis_server import RedisConnection
from tests.support.store import Clock, OpenStore, Reason, reason_of
from tests.unit.core.storage.tables import TABLE, Tables
from tests.unit.core.storage.verbs import NAMESPACE, Verbs, token_of

OFF = NamespaceSettings(job_events_off=True)
CARRIED = NamespaceSettings(events_carry_payloads=True, events_carry_values=True)


@pytest.fixture
def tables(opened: OpenStore, clock: Clock) -> Tables:
    return Tables(opened, clock)


async def update(opened: OpenStore, partition: int, settings: NamespaceSettings, namespace: str = NAMESPACE) -> None:
    assert await opened.store.update_namespace(partition, namespace, settings, 1000) is None


class TestSettings:
    @pytest.mark.parametrize("settings", [NamespaceSettings(), OFF, CARRIED, NamespaceSettings(True, True, True)])
    async def test_are_kept_as_they_were_said(self, opened: OpenStore, settings: NamespaceSettings) -> None:
        assert await opened.store.get_namespace(3, NAMESPACE) == NamespaceSettings()
        await update(opened, 3, settings)
        assert await opened.store.get_namespace(3, NAMESPACE) == settings
        assert await opened.store.get_namespace(3, "other") == NamespaceSettings()

    async def test_leave_nothing_when_they_are_taken_back(self, verbs: Verbs, redis: RedisConnection) -> None:
        tag = keys.partition_tag(verbs.partition)
        await update(verbs.opened, verbs.partition, OFF)
        await update(verbs.opened, verbs.partition, NamespaceSettings())
        assert redis.command("EXISTS", tag + ":namespaces") == 0
        assert redis.command("HGET", tag + ":meta", "namespaces") == b"0"
        await verbs.put()
        assert len(await verbs.events()) == 2

    async def test_are_had_by_so_many_namespaces_only(self, opened: OpenStore) -> None:
        for name in ("a", "b"):
            assert await opened.store.update_namespace(0, name, OFF, 2) is None
        refused = await opened.store.update_namespace(0, "c", OFF, 2)
        assert reason_of(refused) is Reason.LIMIT_EXCEEDED
        assert await opened.store.update_namespace(0, "b", CARRIED, 2) is None

    @pytest.mark.parametrize("wrong", ["type", "length"])
    async def test_that_are_damaged_are_as_none_to_jobs(self, verbs: Verbs, redis: RedisConnection, wrong: str) -> None:
        await update(verbs.opened, verbs.partition, OFF)
        key = keys.partition_tag(verbs.partition) + ":namespaces"
        damage = [("DEL", key), ("SET", key, "x")] if wrong == "type" else [("HSET", key, NAMESPACE, "xx")]
        redis.commands(damage)  # type: ignore[arg-type]
        assert reason_of(await verbs.store.get_namespace(verbs.partition, NAMESPACE)) is Reason.DAMAGED
        await verbs.put()
        assert [event.kind for event in await verbs.events()] == [model.CREATED, model.ENQUEUED]


class TestJobsWithoutEvents:
    async def test_are_counted_and_not_told(self, verbs: Verbs, redis: RedisConnection) -> None:
        await update(verbs.opened, verbs.partition, OFF)
        for _ in range(5):
            await verbs.put()
            await verbs.acknowledge(await verbs.take())
        assert [event.kind for event in await verbs.events()] == [model.CREATED]
        raw = redis.command("HGET", keys.partition_tag(verbs.partition) + ":counts", "all")
        assert [int.from_bytes(raw[at : at + 8], "big") for at in (0, 8, 16)] == [5, 5, 5]

    async def test_have_tokens_that_never_come_twice(self, verbs: Verbs, clock: Clock) -> None:
        chance = random.Random(5)
        await verbs.put()
        seen: list[int] = []
        for _ in range(60):
            await update(verbs.opened, verbs.partition, OFF if chance.random() < 0.6 else NamespaceSettings())
            if chance.random() < 0.3:
                await verbs.put(queue="q", rank=9)
            job = await verbs.take(terms=LeaseTerms(10))
            assert all(token_of(job) > token for token in seen)
            if seen:
                assert reason_of(await verbs.acknowledge(job, seen[-1])) is Reason.STALE_LEASE
            seen.append(token_of(job))
            if chance.random() < 0.5:
                clock.advance(10)
            else:
                assert not isinstance(await verbs.release(job), Refusal)

    async def test_leave_others_their_events(self, verbs: Verbs, tables: Tables) -> None:
        await update(verbs.opened, tables.partition, OFF)
        await tables.put(b"k")
        kinds = [event.kind for event in await tables.events()]
        assert kinds == [EventKind.TABLE_CREATED, EventKind.ROW_PUT]

    async def test_in_one_call_with_the_change_follow_it(self, verbs: Verbs) -> None:
        await verbs.put()
        store, partition = verbs.store, verbs.partition
        await asyncio.gather(
            verbs.put(), store.update_namespace(partition, NAMESPACE, OFF, 9), verbs.put(),
            store.update_namespace(partition, NAMESPACE, NamespaceSettings(), 9), verbs.put(),
        )  # fmt: skip
        assert (await verbs.count()).ready == 4
        assert len([event for event in await verbs.events() if event.kind == model.ENQUEUED]) == 3


class TestCarried:
    async def test_payloads_are_told_with_new_jobs(self, verbs: Verbs) -> None:
        await verbs.put(b"before")
        await update(verbs.opened, verbs.partition, CARRIED)
        await verbs.put_all([NewJob(b"one", attributes={"a": "b"}), NewJob(b""), NewJob(b"three", delay_ms=5)])
        await verbs.take()
        events = [event for event in await verbs.events() if event.kind != model.CREATED]
        assert [event.payload for event in events] == [None, b"one", b"", b"three", None]
        assert [event.state for event in events] == [2, 2, 2, 1, 3]

    async def test_values_are_told_with_rows_beside_payloads(self, verbs: Verbs, tables: Tables) -> None:
        name = next(name for name in tables.siblings(2) if name != TABLE)
        queue = next(
            f"q{number}"
            for number in range(10_000)
            if verbs.store.partition_of(NAMESPACE, f"q{number}") == tables.partition
        )
        await update(verbs.opened, tables.partition, CARRIED)
        await asyncio.gather(
            tables.put(b"a", b"1"), verbs.put(b"22", queue=queue), tables.put(b"b", b"333", table=name)
        )
        told = [event.value or event.payload for event in await tables.events()]
        assert [each for each in told if each] == [b"1", b"22", b"333"]

    async def test_nothing_is_where_events_are_off(self, verbs: Verbs) -> None:
        await update(verbs.opened, verbs.partition, NamespaceSettings(True, True, True))
        await verbs.put(b"unseen")
        assert [event.payload for event in await verbs.events()] == [None]
