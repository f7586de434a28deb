"""Entries of the event log that are not as they were written: who wants their partition is told, all others go on."""

from __future__ import annotations

import asyncio

import pytest
from quintet_core.domain.errors import Reason, Refusal

from tests.support.followed import Followed
from tests.support.redis_server import RedisConnection

ANSWER_SECONDS_MAX = 20
NAMES = b"\x80\x00\x00\x01\x00\x03\x01nt"
FIELDS: dict[str, tuple[bytes, ...]] = {
    "one field": (b"x", b"y"),
    "fields in another order": (b"n", NAMES, b"e", b"", b"t", b"1"),
    "no events": (b"t", b"1", b"n", NAMES, b"e", b""),
    "no time": (b"t", b"", b"n", NAMES, b"e", bytes(48)),
    "a time that is no number": (b"t", b"soon", b"n", NAMES, b"e", bytes(48)),
    "cut names": (b"t", b"1", b"n", NAMES[:7], b"e", bytes(48)),
    "no names": (b"t", b"1", b"n", b"", b"e", bytes(48)),
    "a cut event": (b"t", b"1", b"n", NAMES, b"e", bytes(40)),
    "a detail longer than the entry": (b"t", b"1", b"n", NAMES, b"e", bytes(46) + b"\xff\xff"),
    "an event of no kind": (b"t", b"1", b"n", NAMES, b"e", b"\xff\x80\x00\x00\x01" + bytes(43)),
    "names that are no UTF-8": (b"t", b"1", b"n", b"\x80\x00\x00\x01\x00\x03\x01n\xff", b"e", bytes(48)),
    "too many fields": (b"t", b"1", b"n", NAMES, b"e", bytes(48), b"v", b"", b"x", b"y"),
}


@pytest.mark.parametrize("sequence", [0, 7])
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
async def test_keep_nobody_else_from_hearing(
    followed: Followed, redis: RedisConnection, fields: tuple[bytes, ...], sequence: int
) -> None:
    near, far = await followed.watch("t"), await followed.watch("u")
    assert followed.partition("t") != followed.partition("u")
    await followed.put("t", b"1")
    ends = await followed.put("u", b"1")
    partition = followed.partition("t")
    await followed.live(near, far)
    (last,) = (await followed.ends(partition)).values()
    redis.command("XADD", f"{{p{partition:02d}}}:events", f"{last + 1}-{sequence}", *fields)
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        for key in (b"2", b"3"):
            ends |= await followed.put("u", key)
            await far.hear(ends)
        assert far.keys == [b"1", b"2", b"3"]
        late = await followed.watches.open(near.watcher.interest, {partition}, {partition: last})
        assert isinstance(late, Refusal)
        assert late.reason is Reason.DAMAGED
