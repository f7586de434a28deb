"""As many clients and jobs as the protocol asks to be held easily; more by hand, with the figures printed:

QUINTET_LOAD_CLIENTS=10000 QUINTET_LOAD_JOBS=1000000 pytest tests/load
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.crowd import Member, cpu_seconds, crowd, first_error, join, resident_mib
from tests.support.stack import Stack, stack_for_tests, until

CLIENTS = int(os.environ.get("QUINTET_LOAD_CLIENTS", "1000"))
JOBS = int(os.environ.get("QUINTET_LOAD_JOBS", "50000"))
RANKS = 10
PIPELINED = 500
PRODUCERS = 8
QUEUE = "load"


@pytest.fixture
def stack() -> Iterator[Stack]:
    yield from stack_for_tests(QUINTET_CONNECTIONS_MAX=str(CLIENTS + 100))


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Lines to print when the test is over."""
    lines: list[str] = []
    yield lines
    with capsys.disabled():
        print("", *lines, sep="\n  ")


@asynccontextmanager
async def timed(what: str, count: int, stack: Stack, say: list[str]) -> AsyncIterator[None]:
    """Notes how long the block took, and what it cost each process."""
    before = {part.name: cpu_seconds(part.pid) for part in stack.parts}
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    spent = ", ".join(f"{part.name} {cpu_seconds(part.pid) - before[part.name]:.1f} s" for part in stack.parts)
    say.append(f"{what}: {seconds:.1f} s, {count / seconds:.0f}/s (CPU: {spent})")


def memory(stack: Stack) -> str:
    return "memory: " + ", ".join(f"{part.name} {resident_mib(part.pid):.0f} MiB" for part in stack.parts)


def redis_used_bytes(stack: Stack) -> int:
    info = stack.redis.ask("INFO", "memory").decode().splitlines()
    return next(int(line.partition(":")[2]) for line in info if line.startswith("used_memory:"))


def put(number: int, pri: int = 0) -> dict[str, Any]:
    return {"request": "put", "queue": QUEUE, "job": {"number": number}, "pri": pri}


async def in_windows(member: Member, requests: Iterable[dict[str, Any]]) -> list[int]:
    """The ids that come of many requests, a window of them under way at a time."""
    ids: list[int] = []
    left = iter(requests)
    while window := list(itertools.islice(left, PIPELINED)):
        answers = await member.ask_all(window)
        assert not first_error(answers)
        ids += [answer.get("id", 0) for answer in answers]
    return ids


@pytest.mark.timeout(60 + CLIENTS // 20)
async def test_each_of_many_waiting_clients_gets_exactly_one_job(stack: Stack, say: list[str]) -> None:
    address = stack.job_centre.address
    say.append(memory(stack))
    producer = await join(address)
    async with crowd(address, CLIENTS) as members:
        async with timed(f"{CLIENTS} connected clients begin to wait", CLIENTS, stack, say):
            for member in members:
                member.send([{"request": "get", "queues": [QUEUE], "wait": True}])
            await everybody_waits(stack)
        say.append(memory(stack))
        async with timed(f"{CLIENTS} jobs put and handed out", CLIENTS, stack, say):
            put_ids = await in_windows(producer, map(put, range(CLIENTS)))
            taken = [await member.read() for member in members]
        assert sorted(answer["id"] for answer in taken) == put_ids
        async with timed(f"{CLIENTS} jobs deleted", CLIENTS, stack, say):
            for member, answer in zip(members, taken, strict=True):
                member.send([{"request": "delete", "id": answer["id"]}])
            assert not first_error([await member.read() for member in members])
    await producer.close()
    # An adapter's own heartbeats have an owner too.
    kept_max = len(stack.adapters)
    until(lambda: stack.core.metrics()["quintet_core_owners"] <= kept_max, "nothing is kept of them")
    assert not stack.counts(QUEUE).ListFields()


async def everybody_waits(stack: Stack) -> None:
    """Nothing announces it to the clients."""
    while stack.core.metrics()["quintet_core_parked_dequeues"] < CLIENTS:
        await asyncio.sleep(0.01)


@pytest.mark.timeout(60 + JOBS // 500)
async def test_many_pending_jobs_come_out_in_order(stack: Stack, say: list[str]) -> None:
    address, choice = stack.job_centre.address, random.Random(1)
    used_bytes = redis_used_bytes(stack)
    async with crowd(address, PRODUCERS) as members:
        shares = [(put(n, choice.randrange(RANKS)) for n in range(at, JOBS, PRODUCERS)) for at in range(PRODUCERS)]
        async with timed(f"{JOBS} jobs put", JOBS, stack, say):
            await asyncio.gather(*map(in_windows, members, shares))
        payload_bytes = sum(len(json.dumps(put(n)["job"])) for n in range(JOBS))
        each_bytes = (redis_used_bytes(stack) - used_bytes - payload_bytes) / JOBS
        say += [memory(stack), f"Redis: {each_bytes:.0f} bytes a job beyond its payload"]
        assert stack.counts(QUEUE).ready == JOBS
    worker = await join(address)
    places: list[tuple[int, int]] = []
    async with timed(f"{JOBS} jobs taken in order and deleted", JOBS, stack, say):
        while len(places) < JOBS:
            taken = await worker.ask_all([{"request": "get", "queues": [QUEUE]}] * min(PIPELINED, JOBS - len(places)))
            assert not first_error(taken)
            await in_windows(worker, [{"request": "delete", "id": answer["id"]} for answer in taken])
            places += [(-answer["pri"], answer["id"]) for answer in taken]
    assert places == sorted(places)
    assert not stack.counts(QUEUE).ListFields()
