"""Settings of namespaces by the API, the client and the command line, against a real core and a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import queue_service_pb2 as q
from quintet.v1.job_pb2 import NewJob
from quintet_client import Client, NamespaceSettings

from tests.support.api import Api, open_api, refused
from tests.support.blocks import events_of, read_blocks
from tests.support.cli import Cli
from tests.support.core import running_core
from tests.support.stack import CorePart

PARTITIONS = 16
TOKENS = """
[[token]]
token = "mine"
namespaces = ["mine"]
verbs = ["*"]
"""


@pytest.fixture
def namespace() -> str:
    """One that no other test has."""
    return f"namespace-{uuid.uuid4().hex[:8]}"


async def put(api: Api, namespace: str, payload: bytes) -> int:
    """A job in a queue of its own; the partition."""
    request = q.EnqueueRequest(namespace=namespace, queue="q", jobs=[NewJob(payload=payload)], create_if_missing=True)
    await api.queues.Enqueue(request)
    return int((await api.queues.GetQueue(q.GetQueueRequest(namespace=namespace, queue="q"))).queue.partition)


async def update(api: Api, namespace: str, **settings: bool) -> None:
    request = a.UpdateNamespaceRequest(namespace=namespace, settings=a.NamespaceSettings(**settings))
    await api.admin.UpdateNamespace(request)


async def test_what_is_said_holds_until_something_else_is_said(api: Api, namespace: str) -> None:
    async def told() -> Any:
        return (await api.admin.GetNamespace(a.GetNamespaceRequest(namespace=namespace))).settings

    assert await told() == a.NamespaceSettings()
    await update(api, namespace, job_events_off=True, events_carry_values=True)
    assert await told() == a.NamespaceSettings(job_events_off=True, events_carry_values=True)
    await update(api, namespace)
    assert await told() == a.NamespaceSettings()


async def test_payloads_are_carried_by_every_way_of_reading(api: Api, namespace: str) -> None:
    await update(api, namespace, events_carry_payloads=True)
    partition = await put(api, namespace, b"carried")
    last = (await api.events.ListPartitions(e.ListPartitionsRequest())).partitions[partition].last_offset
    read = (await api.events.ReadEvents(e.ReadEventsRequest(partition=partition, events_max=10_000))).events
    assert (read[-1].payload, read[-1].state) == (b"carried", 2)
    blocks = await read_blocks(api, partition=partition, through_offset=last, with_carried=True)
    assert [event for block in blocks for event in events_of(block, partition, PARTITIONS)] == list(read)
    for after in range(last):
        for through in (last, max(after, last - 1)):
            part = await read_blocks(
                api, partition=partition, after_offset=after, through_offset=through, with_carried=True
            )
            found = [event for block in part for event in events_of(block, partition, PARTITIONS)]
            assert found == list(read[after:through])
    start = e.PartitionOffset(partition=partition, after_offset=last - 1)
    subscription = api.events.Subscribe(e.SubscribeRequest(starts=[start], namespace=namespace))
    assert (await subscription.read()).events[0] == read[-1]
    subscription.cancel()


async def test_jobs_live_without_events(api: Api, namespace: str) -> None:
    await update(api, namespace, job_events_off=True)
    partition = await put(api, namespace, b"x")
    job = (await api.queues.Dequeue(q.DequeueRequest(namespace=namespace, queues=["q"]))).jobs[0]
    await api.queues.Acknowledge(q.AcknowledgeRequest(namespace=namespace, id=job.id, token=job.lease.token))
    read = (await api.events.ReadEvents(e.ReadEventsRequest(partition=partition, events_max=10_000))).events
    assert [event.kind for event in read if event.namespace == namespace] == [20]


async def test_a_token_of_one_namespace_changes_no_other(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TOKENS)
    with running_core(QUINTET_TOKENS_FILE=str(tokens), QUINTET_CORE_TCP="1") as core:
        async with open_api(core.listening["core-grpc"]) as api:
            credentials = (("authorization", "Bearer mine"),)
            for name in ("mine", "other", ""):
                for call in (
                    api.admin.GetNamespace(a.GetNamespaceRequest(namespace=name), metadata=credentials),
                    api.admin.UpdateNamespace(a.UpdateNamespaceRequest(namespace=name), metadata=credentials),
                ):
                    if name == "mine":
                        await call
                    else:
                        assert (await refused(call)).code is grpc.StatusCode.PERMISSION_DENIED


async def test_one_namespace_more_than_may_have_settings_is_refused() -> None:
    with running_core(QUINTET_NAMESPACES_MAX="1") as core:
        async with open_api(core.target) as api:
            await update(api, "one", job_events_off=True)
            refusal = await refused(update(api, "two", job_events_off=True))
            assert (refusal.reason, refusal.metadata["max"]) == ("LIMIT_EXCEEDED", "1")


async def test_the_client_says_and_hears_them(core: CorePart, namespace: str) -> None:
    async with Client(core.target, namespace=namespace) as client:
        assert await client.namespace_settings() == NamespaceSettings()
        await client.update_namespace(NamespaceSettings(events_carry_payloads=True))
        assert await client.namespace_settings() == NamespaceSettings(events_carry_payloads=True)
        partitions = await client.list_partitions()
        await client.enqueue("q", b"carried")
        after_offsets = {each.partition: each.last_offset for each in partitions}
        async for event in client.subscribe(after_offsets=after_offsets):
            if event.kind == "job_enqueued":
                assert event.payload == b"carried"
                break


def test_the_command_line_changes_what_is_named(core: CorePart, namespace: str) -> None:
    cli = Cli(core.target, "namespace")
    assert cli.records("set", "--namespace", namespace, "--carry-payloads", "--no-job-events") == [
        {
            "namespace": namespace,
            "job_events_off": True,
            "events_carry_payloads": True,
            "events_carry_values": False,
        }
    ]
    cli.records("set", "--namespace", namespace, "--job-events")
    [got] = cli.records("get", "--namespace", namespace)
    assert (got["job_events_off"], got["events_carry_payloads"]) == (False, True)
    assert "events_carry_values" in cli.text("get", "--namespace", namespace)


def test_the_command_line_lists_and_forgets_consumers(core: CorePart, namespace: str) -> None:
    cli = Cli(core.target, "consumers")

    async def make() -> None:
        async with Client(core.target) as client:
            opened = await client.open_consumer(namespace, from_latest=True)
            assert opened.partitions[0].epoch == opened.epoch

    asyncio.run(make())
    [found] = [each for each in cli.records("list") if each["name"] == namespace]
    assert found["lag"] == 0
    assert namespace in cli.text("list")
    cli.text("delete", namespace)
    assert cli.run("delete", namespace).returncode == 3
    assert cli.text("list", "--log", "metrics") == "no consumers\n"
