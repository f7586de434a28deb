"""The life of the connection to Redis: connect, make ready, attach the pipeline; when it is lost, all of it again.

Operations flow only while Redis is what the core promises: recent enough, with our library, our partitions, and durable
settings. Weaker settings found later stop them again; a library that has gone is loaded again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import hiredis
from quintet_kit.logs import get_logger

from quintet_core.domain.durability import Durability
from quintet_core.domain.errors import Reason, refusal
from quintet_core.storage import readying
from quintet_core.storage.backoff import Backoff, wait_at_most
from quintet_core.storage.link import Address, Link, connect
from quintet_core.storage.pipeline import Pipeline
from quintet_core.storage.readying import UnsuitableRedisError

CHECK_PERIOD_S = 5.0
_LOG_PERIOD_S = 10.0


@dataclass(frozen=True, slots=True)
class RedisTerms:
    """Where Redis is and what is asked of it. `reply_timeout_s`: silence after which a connection is given up."""

    address: Address
    partitions: int
    reply_timeout_s: float
    weak_durability_allowed: bool = False
    tls: ssl.SSLContext | None = None


def tls_context(ca: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """TLS towards Redis from PEM files: who may have signed its certificate (empty: the system's list), and our own
    certificate and key where it asks for them. Raises OSError or ssl.SSLError."""
    context = ssl.create_default_context(cafile=ca or None)
    if certificate:
        context.load_cert_chain(certificate, key or None)
    return context


class RedisConnection:
    """Keeps a pipeline attached to Redis.

    `attached` are called each time operations can flow (again), `lost` each time they cannot any more; both in the
    event loop, without waiting. `unsuitable` ends with the reason when trying again is of no use.
    """

    def __init__(self, terms: RedisTerms, pipeline: Pipeline) -> None:
        self._terms = terms
        self._pipeline = pipeline
        self._task: asyncio.Task[None] | None = None
        self._is_attached = False
        self._is_closing = False
        self._logged_at = float("-inf")
        self.attached: list[Callable[[], None]] = []
        self.lost: list[Callable[[], None]] = []
        self.unsuitable: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.durability: Durability | None = None
        self.redis_version = ""
        self.library_version = 0
        self.signing_key = b""
        self.connects = 0
        self.connected = False

    @property
    def weak_durability_allowed(self) -> bool:
        """Whether operations flow in spite of weak durability."""
        return self._terms.weak_durability_allowed

    @property
    def ready(self) -> bool:
        """Whether operations flow."""
        return self._is_attached

    @property
    def standing(self) -> str:
        """In words, why operations flow or do not."""
        if self._is_attached:
            return "ready"
        if self.connected and self.durability is not None and self.durability.weaknesses:
            return "Redis is not durable: " + "; ".join(self.durability.weaknesses)
        return "no connection to Redis"

    def start(self) -> None:
        """Begin to connect, and never stop trying."""
        self._task = asyncio.create_task(self._keep(), name="redis connection")

    async def close(self) -> None:
        """Drop the connection for good."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._serve(backoff)
            except UnsuitableRedisError as error:
                get_logger().error("redis_unsuitable", reason=str(error))
                if not self.unsuitable.done():
                    self.unsuitable.set_result(str(error))
            except (OSError, hiredis.ReplyError, ValueError) as error:
                self._log_failure(error)
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, backoff: Backoff) -> None:
        """One connection, from its beginning to its end."""
        gone = asyncio.Event()

        def on_lost() -> None:
            gone.set()
            self._detach(Reason.UNAVAILABLE)

        link = await connect(self._terms.address, on_lost, self._terms.tls)
        try:
            await self._make_ready(link)
            self.connected = True
            self.connects += 1
            backoff.reset()
            while not gone.is_set():
                self._judge(link)
                await wait_at_most(gone, CHECK_PERIOD_S)
                if not gone.is_set():
                    await self._check(link)
        finally:
            self.connected = False
            link.abort()
            self._detach(Reason.UNAVAILABLE)

    async def _make_ready(self, link: Link) -> None:
        async with asyncio.timeout(max(self._terms.reply_timeout_s, 30.0)):
            self.redis_version = await readying.check_version(link)
            self.library_version = await readying.load_library(link)
            await readying.settle_partitions(link, self._terms.partitions)
            self.signing_key = await readying.read_signing_key(link)
            self.durability = await readying.read_durability(link)

    async def _check(self, link: Link) -> None:
        before = self.durability
        async with asyncio.timeout(self._terms.reply_timeout_s):
            self.library_version = await readying.load_library(link)
            self.signing_key = await readying.read_signing_key(link)
            self.durability = await readying.read_durability(link)
        if before is not None and before.weaknesses != self.durability.weaknesses:
            get_logger().warning("durability_changed", weaknesses=self.durability.weaknesses)

    def _judge(self, link: Link) -> None:
        """Let operations flow, or not, by what is known of durability now."""
        weaknesses = self.durability.weaknesses if self.durability is not None else ()
        if weaknesses and not self._terms.weak_durability_allowed:
            self._log_weakness(weaknesses)
            self._detach(Reason.NOT_DURABLE, "; ".join(weaknesses))
        elif not self._is_attached and link.open:
            self._attach(link, weaknesses)

    def _attach(self, link: Link, weaknesses: tuple[str, ...]) -> None:
        log = get_logger()
        log.info("redis_attached", redis_version=self.redis_version, library_version=self.library_version)
        if weaknesses:
            log.warning("weak_durability_allowed", weaknesses=weaknesses)
        self._is_attached = True
        self._pipeline.attach(link)
        for listener in self.attached:
            listener()

    def _detach(self, reason: Reason, why: str = "") -> None:
        was_attached, self._is_attached = self._is_attached, False
        message = f"Redis does not write to disk before it answers: {why}" if why else ""
        self._pipeline.detach(refusal(reason, message))
        if was_attached:
            log = get_logger()
            (log.info if self._is_closing else log.warning)("redis_detached", reason=reason.name)
            for listener in self.lost:
                listener()

    def _log_failure(self, error: Exception) -> None:
        if self._may_log():
            get_logger().warning("redis_unreachable", reason=f"{type(error).__name__}: {error}")

    def _log_weakness(self, weaknesses: tuple[str, ...]) -> None:
        if self._is_attached or self._may_log():
            get_logger().error("redis_not_durable", weaknesses=weaknesses)

    def _may_log(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._logged_at < _LOG_PERIOD_S:
            return False
        self._logged_at = now
        return True
