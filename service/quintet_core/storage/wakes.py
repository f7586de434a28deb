"""The second connection to Redis: told by other cores, through a channel, that queues have jobs again.

A message is the sender's replica id (8 bytes), the number of ready jobs (4 bytes, big-endian) and the queue's name key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import hiredis
from quintet_kit.logs import get_logger

from quintet_core.storage import keys
from quintet_core.storage.backoff import Backoff, wait_at_most
from quintet_core.storage.connection import RedisTerms
from quintet_core.storage.link import Link, Reply, connect

PING_PERIOD_S = 5.0
_HEAD_BYTES = 12
_PING: bytes = hiredis.pack_command(("PING",))


class WakeSubscriber:
    """`on_wake(name_key, ready)` for each message of another core; `on_gap()` when messages may have been missed."""

    def __init__(
        self,
        terms: RedisTerms,
        replica: bytes,
        on_wake: Callable[[bytes, int], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._terms = terms
        self._replica = replica
        self._on_wake = on_wake
        self._on_gap = on_gap
        self._heard_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.connected = False

    def start(self) -> None:
        """Begin to listen, and never stop trying."""
        self._task = asyncio.create_task(self._keep(), name="wake subscriber")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._listen(backoff)
            except (OSError, hiredis.ReplyError) as error:
                get_logger().debug("wake_subscriber_lost", reason=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _listen(self, backoff: Backoff) -> None:
        gone = asyncio.Event()
        link = await connect(self._terms.address, gone.set, self._terms.tls)
        try:
            link.on_push = self._on_reply
            async with asyncio.timeout(self._terms.reply_timeout_s):
                await link.command("SUBSCRIBE", keys.WAKE_CHANNEL)
            backoff.reset()
            self.connected = True
            self._on_gap()
            await self._stay(link, gone)
        finally:
            self.connected = False
            link.abort()

    async def _stay(self, link: Link, gone: asyncio.Event) -> None:
        """Until the connection ends, or nothing was heard though asked."""
        loop = asyncio.get_running_loop()
        while not gone.is_set():
            asked_at = loop.time()
            # A message may come in the place of the answer, and the answer after it: both are taken by _on_reply.
            link.send(_PING, self._on_reply)
            await wait_at_most(gone, PING_PERIOD_S)
            if self._heard_at < asked_at and not gone.is_set():
                raise TimeoutError("the wake connection is silent")

    def _on_reply(self, reply: Reply) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if isinstance(reply, list) and reply[0] == b"message":
            payload: bytes = reply[2]
            if payload[:8] != self._replica and len(payload) >= _HEAD_BYTES:
                self._on_wake(payload[_HEAD_BYTES:], int.from_bytes(payload[8:_HEAD_BYTES], "big"))
