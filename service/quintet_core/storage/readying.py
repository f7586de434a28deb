"""What must be true of a Redis before operations flow: its version, our library, the partitions, its durability."""

from __future__ import annotations

import asyncio
import re
import secrets

import hiredis

from quintet_core.domain.durability import WANTED, Durability
from quintet_core.storage import keys, library
from quintet_core.storage.link import Link

VERSION_MIN = (7, 0)
_PARTITIONS = "partitions"
_SIGNING_KEY = "signing_key"
_FUNCTION_MISSING = "Function not found"


class UnsuitableRedisError(Exception):
    """This Redis can never serve this core as both are configured; trying again does not help."""


async def check_version(link: Link) -> str:
    """Redis's version. Raises UnsuitableRedisError below 7.0."""
    version = _info(await link.command("INFO", "server")).get("redis_version", "")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < VERSION_MIN:
        raise UnsuitableRedisError(f"Redis 7.0 or later is needed, this one is {version or 'of unknown version'}")
    return version


async def load_library(link: Link) -> int:
    """Load our function library when Redis has none or an older one; the version that is there then."""
    found = await _library_version(link)
    if found >= library.version():
        return found
    await link.command("FUNCTION", "LOAD", "REPLACE", library.source())
    return await _library_version(link)


async def _library_version(link: Link) -> int:
    try:
        return int(await link.command("FCALL", "library_version_v1", 0))
    except hiredis.ReplyError as error:
        if _FUNCTION_MISSING in str(error):
            return 0
        raise


async def settle_partitions(link: Link, partitions: int) -> None:
    """Fix the number of partitions at the first start, and prepare each. Raises UnsuitableRedisError for another
    number than the one fixed."""
    fixed = await link.command("HGET", keys.INFO, _PARTITIONS)
    if fixed is None:
        await link.command("HSETNX", keys.INFO, _PARTITIONS, partitions)
        fixed = await link.command("HGET", keys.INFO, _PARTITIONS)
    if int(fixed) != partitions:
        raise UnsuitableRedisError(
            f"this Redis was first started with {int(fixed)} partitions, QUINTET_PARTITIONS is {partitions};"
            " the number cannot be changed later"
        )
    await asyncio.gather(
        *(link.command("FCALL", "initialize_v1", 1, keys.partition_tag(partition)) for partition in range(partitions))
    )


async def read_signing_key(link: Link) -> bytes:
    """The key that the cores of one Redis sign with; made by the first of them."""
    key: bytes | None = await link.command("HGET", keys.INFO, _SIGNING_KEY)
    if key is None:
        await link.command("HSETNX", keys.INFO, _SIGNING_KEY, secrets.token_bytes(32))
        key = await link.command("HGET", keys.INFO, _SIGNING_KEY)
    assert key is not None
    return key


async def read_durability(link: Link) -> Durability:
    """What Redis says of its durability. What it does not let us read stays unknown."""
    persistence = _info(await link.command("INFO", "persistence"))
    seconds, microseconds = await link.command("TIME")
    return Durability(
        settings=await _settings(link),
        append_only_enabled=persistence.get("aof_enabled") == "1",
        last_write_status=persistence.get("aof_last_write_status", ""),
        checked_at_ms=int(seconds) * 1000 + int(microseconds) // 1000,
    )


async def _settings(link: Link) -> dict[str, str]:
    try:
        pairs = await link.command("CONFIG", "GET", *WANTED)
    except hiredis.ReplyError:  # denied, or a managed Redis without the command
        return {}
    words = [word.decode(errors="replace") for word in pairs]
    return dict(zip(words[::2], words[1::2], strict=True))


def _info(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
