"""The fourth connection to Redis: long stretches of the logs, by commands that cost Redis next to nothing.

A function of the library that reads an entry and joins it to others takes Redis five to ten times as long as the plain
command; and what is read by the million must not stand in the way of operations.
"""

from __future__ import annotations

import asyncio
import struct

import hiredis

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.limits import SEQUENCE_MAX
from quintet_core.storage import keys
from quintet_core.storage.blocks import Block, BrokenLogError, Found, Range, block_of
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.link import Link, LinkLostError, Reply, connect, into

_BLOCK_BYTES = 1 << 20
# Redis keeps a reply in memory until it is sent, whatever it has grown to. It has at most so many entries, fewer where
# those of the last one were large or carried values; and where entries are many events each, offsets that lie so close.
_ENTRIES_MAX, _CARRYING_MAX, _FIRST_ENTRIES = 256, 16, 16
_OFFSETS_MAX = 16_384
# The entry with the last record of a range is likely to end not far behind it.
_OFFSETS_BEYOND = 512


class LogReader:
    """Reads ranges, entries at a time. Connects when it is first asked, and again when it was cut off."""

    def __init__(self, terms: RedisTerms) -> None:
        self._terms = terms
        self._link: Link | None = None
        self._refusing: Refusal | None = None
        self._connecting = asyncio.Lock()
        self._entry_bytes: dict[tuple[int, str], float] = {}

    def refuse(self, why: Refusal) -> None:
        """From now on, whatever is asked: what reads on can go on elsewhere."""
        self._refusing = why

    async def close(self) -> None:
        """Drop the connection. It is made anew when there is a call still."""
        if self._link is not None:
            self._link.abort()

    async def read_block(self, partition: int, wanted: Range, with_carried: bool) -> Block | Refusal:
        """The records of a range, or the first of them: about a mebibyte, never none. A range is within the log, and
        not empty. Refusals: OFFSET_TRIMMED, UNAVAILABLE, DAMAGED."""
        if self._refusing is not None:
            return self._refusing
        try:
            found = await self._found(partition, wanted)
            block = block_of(found, wanted, with_carried)
        except (OSError, TimeoutError):
            return refusal(Reason.UNAVAILABLE)
        except hiredis.ReplyError as error:
            damaged = str(error).startswith("WRONGTYPE")
            return refusal(Reason.DAMAGED if damaged else Reason.UNAVAILABLE)
        except BrokenLogError as error:
            return refusal(Reason.OFFSET_TRIMMED, first_offset=str(error.first_offset))
        except (ValueError, IndexError, struct.error):
            return refusal(Reason.DAMAGED)
        return block

    async def _found(self, partition: int, wanted: Range) -> Found:
        known = (partition, wanted.log.value)
        count = self._entries_wanted(self._entry_bytes.get(known))
        reach = min(wanted.through - wanted.after, _OFFSETS_MAX)
        found = await self._read(partition, wanted, wanted.after + reach + _OFFSETS_BEYOND, count)
        if not found.ids:
            # The next entry is a large one.
            found = await self._read(partition, wanted, SEQUENCE_MAX, 1)
        if found.ids:
            largest = max(map(len, found.records))
            if found.carried:
                largest = max(largest + max(map(len, found.carried)), _BLOCK_BYTES // _CARRYING_MAX)
            self._entry_bytes[known] = largest
        return found

    def _entries_wanted(self, entry_bytes: float | None) -> int:
        if entry_bytes is None:
            return _FIRST_ENTRIES
        return max(1, min(_ENTRIES_MAX, int(_BLOCK_BYTES / (entry_bytes + 1))))

    async def _read(self, partition: int, wanted: Range, last: int, count: int) -> Found:
        """Entries behind `after` and up to `last`, and up to where the log was trimmed when they had been read."""
        tag = keys.partition_tag(partition)
        after, until = f"({wanted.after}-0", f"{last}-0"
        link = await self._connected()
        entries: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        trimmed: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        commands = [
            _packed("XRANGE", f"{tag}:{wanted.log}", after, until, "COUNT", count),
            _packed("HGET", f"{tag}:meta", f"{wanted.log}_trimmed"),
        ]
        link.send_all(commands, [into(entries), into(trimmed)])
        try:
            async with asyncio.timeout(self._terms.reply_timeout_s):
                read, cut = await entries, await trimmed
        except TimeoutError:
            link.abort()
            raise
        for reply in (read, cut):
            if isinstance(reply, Exception):
                raise reply
        if not isinstance(read, list):
            raise LinkLostError("Redis answers something else than entries")
        return Found.of_stream(read, int(cut or 0))

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is None or not self._link.open:
                self._link = await connect(self._terms.address, _nothing, self._terms.tls)
            return self._link


def _packed(*parts: str | int) -> bytes:
    # The stub wants a tuple of one element.
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]
    return packed


def _nothing() -> None:
    """Who reads is told by the answer."""
