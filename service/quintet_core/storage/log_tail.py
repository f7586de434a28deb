"""The third connection to Redis: the end of the event log, as it grows.

One XREAD waits on the streams of all partitions that are followed. What it brings is on disk: Redis writes and fsyncs
its append-only file before it writes to any client, those that were blocked included (`beforeSleep` in its server.c).
A connection that breaks is replaced by another, which goes on behind the last entry that was taken; so is one that
waits while one more partition is to be followed, for a blocked connection takes no command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import hiredis
from quintet_kit.logs import get_logger

from quintet_core.storage.backoff import Backoff, wait_at_most
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.event_log import Entry, entry_of_stream, last_offset_of
from quintet_core.storage.keys import partition_tag
from quintet_core.storage.link import Link, LinkLostError, Reply, connect

BLOCK_MS = 1000
# Entries of one reply, all partitions together, and how many bytes it may have were they as large as those of the last:
# it bounds the memory of a reader that has much to catch up with.
ENTRIES_MAX = 64
REPLY_BYTES_MAX = 8 << 20
# A read that comes back by itself within this time takes up new partitions without a new connection.
PATIENCE_S = 0.002
# After a read that brought something, more may gather for so long: the next costs the same for one entry as for many.
GATHER_S = 0.001
_LOG_PERIOD_S = 10.0


class Follower(Protocol):
    """Who is told of what the log gains."""

    def positions(self) -> Mapping[int, int]:
        """The partitions that are followed, each with the offset (that of a whole entry) behind which to go on."""

    def on_entries(self, partition: int, entries: list[Entry]) -> None:
        """Entries behind the position, in order."""

    def on_loss(self, partition: int) -> None:
        """The log ends before the position: Redis has lost what was told already."""

    def on_damage(self) -> None:
        """One of the streams that are followed is none."""


class LogTail:
    """Reads while somebody follows."""

    def __init__(self, terms: RedisTerms, follower: Follower) -> None:
        self._terms = terms
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._gone = asyncio.Event()
        self._asked = asyncio.Event()
        self._followed: dict[bytes, int] = {}
        # Entries of each stream that the read on its way may bring.
        self._count = 0
        # The largest of the last reply, or half of what it was before.
        self._entry_bytes = REPLY_BYTES_MAX // ENTRIES_MAX
        self._heard_at = 0.0
        self._logged_at = float("-inf")
        self._refresh: asyncio.TimerHandle | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._refreshing = False
        self._task: asyncio.Task[None] | None = None
        self.connected = False

    def start(self) -> None:
        """Begin, and never stop trying."""
        self._task = asyncio.create_task(self._keep(), name="log tail")

    async def close(self) -> None:
        """Stop."""
        if self._refresh is not None:
            self._refresh.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def on_followed(self) -> None:
        """The follower has positions of more partitions than before."""
        self._asked.set()
        if self._link is not None and self._refresh is None:
            self._refresh = self._loop.call_later(PATIENCE_S, self._take_up)

    def _take_up(self) -> None:
        self._refresh = None
        followed = set(self._followed.values())
        if self._link is not None and not followed.issuperset(self._follower.positions()):
            self._refreshing = True
            self._link.abort()

    # --- connections

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            await self._asked.wait()
            self._refreshing = False
            try:
                await self._follow(backoff)
            except OSError as error:
                get_logger().debug("log_tail_lost", reason=str(error))
            except hiredis.ReplyError as error:
                self._on_refusal(str(error))
            except Exception:
                # Ours; but whoever follows must not be left without a reader for it.
                get_logger().exception("log_tail_failed")
            if not self._refreshing:
                await asyncio.sleep(backoff.next_s())

    def _on_refusal(self, why: str) -> None:
        now = self._loop.time()
        if now - self._logged_at >= _LOG_PERIOD_S:
            self._logged_at = now
            get_logger().warning("log_tail_refused", reason=why)
        if why.startswith("WRONGTYPE"):
            self._follower.on_damage()

    async def _follow(self, backoff: Backoff) -> None:
        """One connection, from its beginning to its end."""
        gone = self._gone = asyncio.Event()
        link = await connect(self._terms.address, gone.set, self._terms.tls)
        try:
            async with asyncio.timeout(self._terms.reply_timeout_s):
                await self._compare(link)
            backoff.reset()
            self._link, self.connected = link, True
            self._failure: Exception | None = None
            self._read()
            await self._stay(gone)
        finally:
            self._link, self.connected = None, False
            if self._gathering is not None:
                self._gathering.cancel()
            link.abort()

    async def _compare(self, link: Link) -> None:
        """Whether Redis still holds all that was told already. Under `appendfsync always` it does."""
        positions = dict(self._follower.positions())
        replies = await asyncio.gather(
            *(link.command("XREVRANGE", _stream(partition), "+", "-", "COUNT", 1) for partition in positions)
        )
        for (partition, position), reply in zip(positions.items(), replies, strict=True):
            last = last_offset_of(reply[0][0]) if reply else 0
            if last < position:
                get_logger().error("log_lost", partition=partition, told=position, last_offset=last)
                self._follower.on_loss(partition)

    async def _stay(self, gone: asyncio.Event) -> None:
        """Until the connection ends, or nothing was heard though an answer is due."""
        silence_s = BLOCK_MS / 1000 + self._terms.reply_timeout_s
        self._heard_at = self._loop.time()
        while not gone.is_set():
            await wait_at_most(gone, BLOCK_MS / 1000)
            if self._loop.time() - self._heard_at > silence_s:
                raise TimeoutError("the log's connection is silent")
        if self._failure is not None:
            raise self._failure

    # --- reads

    def _read(self) -> None:
        """Ask for what comes behind the positions; the answer asks again."""
        if self._link is None:
            return
        positions = self._follower.positions()
        if not positions:
            self._asked.clear()
            self._gone.set()
            return
        self._followed = {_stream(partition): partition for partition in positions}
        entries_max = min(ENTRIES_MAX, REPLY_BYTES_MAX // max(1, self._entry_bytes))
        count = self._count = max(1, entries_max // len(positions))
        # Behind whatever is named by the offset, as also damage may be: it must not come again and again.
        ids = [b"%d-18446744073709551615" % position for position in positions.values()]
        command = ("XREAD", "COUNT", count, "BLOCK", BLOCK_MS, "STREAMS", *self._followed, *ids)
        self._link.send(hiredis.pack_command(command), self._on_reply)  # type: ignore[arg-type]

    def _on_reply(self, reply: Reply) -> None:
        self._heard_at = self._loop.time()
        if isinstance(reply, Exception):
            self._failure = None if isinstance(reply, LinkLostError) else reply
            self._gone.set()
            return
        followed, most, largest = self._followed, 0, self._entry_bytes // 2
        for stream, raw in reply or ():
            entries = list(map(entry_of_stream, raw))
            most = max(most, len(entries))
            largest = max(largest, max((sum(map(len, entry)) for entry in entries), default=0))
            self._follower.on_entries(followed[stream], entries)
        self._entry_bytes = largest
        if 0 < most < self._count:
            self._gathering = self._loop.call_later(GATHER_S, self._read)
        else:
            self._read()


def _stream(partition: int) -> bytes:
    return f"{partition_tag(partition)}:events".encode()
