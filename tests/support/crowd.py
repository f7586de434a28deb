"""Many clients of Job Centre at once, in one event loop: each sends lines and collects the lines that come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tests.support.clients import Address

_CONNECTING_MAX = 200
_READ_BYTES_MAX = 1 << 24


class Member:
    """One connection, pipelining as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, requests: Iterable[dict[str, Any]]) -> None:
        """All of them in one piece, without waiting for answers."""
        self._writer.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))

    async def read(self) -> dict[str, Any]:
        """The next answer."""
        line = await self._reader.readline()
        assert line.endswith(b"\n"), f"the connection was closed: {line!r}"
        return dict(json.loads(line))

    async def ask_all(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to a pipeline of requests, in order."""
        self.send(requests)
        return [await self.read() for _ in requests]

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()
        await self._writer.wait_closed()


async def join(address: Address) -> Member:
    """One more client."""
    return Member(*await asyncio.open_connection(*address, limit=_READ_BYTES_MAX))


@asynccontextmanager
async def crowd(address: Address, size: int) -> AsyncIterator[list[Member]]:
    """So many clients, in the order of their connections; disconnected afterwards."""
    members: list[Member] = []
    try:
        while len(members) < size:
            count = min(_CONNECTING_MAX, size - len(members))
            members += await asyncio.gather(*(join(address) for _ in range(count)))
        yield members
    finally:
        await asyncio.gather(*(member.close() for member in members))


def resident_mib(pid: int) -> float:
    """Memory of a process that is in RAM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks_per_second = 100
    return (int(fields[11]) + int(fields[12])) / ticks_per_second


def first_error(answers: Iterable[dict[str, Any]]) -> str:
    """Of answers that should all be ok."""
    return next((cast("str", answer.get("error", "no-job")) for answer in answers if answer["status"] != "ok"), "")
