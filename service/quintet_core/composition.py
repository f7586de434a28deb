"""The core put together: every part made once, in the order in which one stands on the other."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from quintet_kit.metrics import Row, process_registry, series

from quintet_core.domain.errors import Reason, refusal
from quintet_core.domain.event import Log
from quintet_core.domain.snapshot import ProcessSnapshot
from quintet_core.maintenance import due, letters, logs, sessions, snapshots, sweep
from quintet_core.maintenance.rounds import Duty, Rounds
from quintet_core.metrics import CoreMetrics, Recorder, read_at_scrape
from quintet_core.operations.bulk import BulkOperations
from quintet_core.operations.consumers import ConsumerOperations
from quintet_core.operations.namespaces import NamespaceOperations
from quintet_core.operations.queues import QueueOperations
from quintet_core.operations.tables import TableOperations
from quintet_core.rpc.admin import AdminServicer, Standing
from quintet_core.rpc.door import Door
from quintet_core.rpc.event_wire import encode_event
from quintet_core.rpc.events import EventServicer
from quintet_core.rpc.metrics import MetricsServicer
from quintet_core.rpc.queues import QueueServicer
from quintet_core.rpc.server import Health, Servers, Servicers
from quintet_core.rpc.session import SessionServicer
from quintet_core.rpc.tables import TableServicer
from quintet_core.rpc.watch import WatchServicer
from quintet_core.settings import CoreSettings
from quintet_core.storage.connection import RedisConnection, RedisTerms, tls_context
from quintet_core.storage.fan_out import FanOut
from quintet_core.storage.link import Address
from quintet_core.storage.log_reader import LogReader
from quintet_core.storage.log_tail import LogTail
from quintet_core.storage.pipeline import Pipeline
from quintet_core.storage.redis_store import RedisStore
from quintet_core.storage.table_store import TableStore
from quintet_core.storage.wakes import WakeSubscriber
from quintet_core.waiting.awaits import Awaits
from quintet_core.waiting.dequeues import Dequeues
from quintet_core.waiting.sessions import HEARTBEATS_PER_TTL, Sessions
from quintet_core.watching.series import QueueSeries
from quintet_core.watching.snapshots import NewestSnapshots
from quintet_core.watching.watches import Watches

REVIEW_PERIOD_S = 1.0


def redis_terms(settings: CoreSettings) -> RedisTerms:
    """What the settings say of Redis. Raises OSError or ssl.SSLError for TLS files that cannot be used."""
    address = Address.parse(settings.redis_url)
    if password := settings.redis_password.get_secret_value():
        address = replace(address, password=password)
    if settings.redis_username:
        address = replace(address, username=settings.redis_username)
    tls = None
    if address.tls:
        files = (settings.redis_ca_file, settings.redis_cert_file, settings.redis_key_file)
        tls = tls_context(*(str(path or "") for path in files))
    return RedisTerms(
        address, settings.partitions, settings.redis_timeout_ms / 1000, settings.allow_weak_durability, tls
    )


class Core:
    """All parts of one core. Made inside the event loop; nothing runs before `start`."""

    def __init__(self, settings: CoreSettings, terms: RedisTerms) -> None:
        self._settings = settings
        self.replica = secrets.token_bytes(8)
        self.draining = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

        self.observers = FanOut()
        self._limits = limits = settings.limits
        self.pipeline = Pipeline(self.replica, self.observers, terms.reply_timeout_s, limits)
        self.connection = RedisConnection(terms, self.pipeline)
        self.store = RedisStore(self.pipeline, settings.partitions)
        self.dequeues = Dequeues(self.store, limits)
        self.awaits = Awaits(self.store, limits)
        self.sessions = Sessions(self.store, limits, settings.session_ttl_ms, lambda: self.connection.signing_key)
        self.wakes = WakeSubscriber(terms, self.replica, self.observers.on_woken, self._review_all)
        self.registry = process_registry()
        self.metrics = CoreMetrics(self.registry)
        self.recorder = Recorder(self.metrics)
        self.watches = Watches(
            self.store, encode_event, self.metrics.watch_events.at().inc, self.metrics.watch_falls.at().inc
        )
        self.tail = LogTail(terms, self.watches)
        self.reader = LogReader(terms)
        self.watches.on_followed = self.tail.on_followed
        self.timers = due.DueTimers(self.store)
        self.sweep = sweep.Sweep(self.store)
        self.newest = NewestSnapshots(self.store, settings.snapshot_interval_ms)
        self.snapshots = self._snapshot_duty()
        self.rounds = Rounds(self._duties(), lambda: self.connection.ready, self._count_failure)
        self.health = Health()
        self.session_servicer, self.servers = self._doors()
        self._connect_parts()
        self._show_gauges()
        self._show_queues()

    @property
    def ready(self) -> bool:
        """Whether work may be sent here."""
        return self.connection.ready and not self.draining.is_set()

    def readiness(self) -> tuple[bool, str]:
        """The same, and why."""
        return self.ready, "draining" if self.draining.is_set() else self.connection.standing

    # --- life

    def start(self) -> None:
        """Begin to connect and to do duties."""
        self.connection.start()
        self.wakes.start()
        self.tail.start()
        self.rounds.start()
        self.snapshots.start()

    async def wait_ready(self) -> None:
        """Return when work may be sent here for the first time."""
        attached = asyncio.Event()
        self.connection.attached.append(attached.set)
        if not self.connection.ready:
            await attached.wait()
        self.connection.attached.remove(attached.set)

    def set_not_ready(self) -> None:
        """Tell everybody who asks to send work elsewhere."""
        self.draining.set()
        self._background(self.health.show(ready=False))

    async def stop_accepting(self) -> None:
        """Refuse what is new, end what only waits, and tell sessions to go elsewhere."""
        self.dequeues.close(refusal(Reason.DRAINING))
        self.awaits.close(refusal(Reason.DRAINING))
        self.watches.close_all(refusal(Reason.DRAINING))
        self.reader.refuse(refusal(Reason.DRAINING))
        self.newest.close_all(refusal(Reason.DRAINING))
        grace_s = self._settings.drain_grace_ms / 1000
        self._background(self.session_servicer.drain(grace_s))
        self._background(self.servers.stop(grace_s))
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Return when nothing is in flight any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop everything."""
        await self.servers.stop(0)
        for task in self._tasks:
            task.cancel()
        await self.rounds.close()
        await self.snapshots.close()
        await self.timers.close()
        await self.wakes.close()
        await self.tail.close()
        await self.reader.close()
        await self.connection.close()

    # --- parts

    def _duties(self) -> list[Duty]:
        settings, store = self._settings, self.store
        self.trims = self._log_trims()
        return [
            Duty("due", due.PERIOD_S, self.timers.ask_all),
            Duty("lapse", sessions.PERIOD_S, sessions.LapsedSessions(store).release),
            Duty("heartbeat", settings.session_ttl_ms / 1000 / HEARTBEATS_PER_TTL, self.sessions.heartbeat_all),
            Duty("review", REVIEW_PERIOD_S, self._review),
            *(Duty("trim", logs.PERIOD_S, trim.trim) for trim in self.trims),
            Duty("letters", letters.PERIOD_S, letters.DeadLetters(store, self.metrics.dead_lettered.at().inc).move),
            Duty("sweep", sweep.PERIOD_S, self.sweep.sweep),
        ]

    def _log_trims(self) -> list[logs.LogTrim]:
        settings, metrics = self._settings, self.metrics
        events = logs.Retention(settings.events_tail, settings.events_keep_ms, settings.events_cap)
        snapshots = logs.Retention(settings.metrics_tail, settings.metrics_keep_ms, settings.metrics_cap)
        trims = [
            logs.LogTrim(self.store, events, metrics.events_dropped.at().inc),
            logs.LogTrim(self.store, snapshots, metrics.snapshots_dropped.at().inc, Log.METRICS),
        ]
        self.observers.clocks += [trim.on_clock for trim in trims]
        return trims

    def _snapshot_duty(self) -> snapshots.SnapshotDuty:
        settings = self._settings
        terms = snapshots.SnapshotTerms(settings.snapshot_interval_ms, settings.snapshot_queues_max)
        around = snapshots.Surroundings(
            lambda: self.connection.ready, self._describe_process, self.newest.read_slot, self._count_failure
        )
        return snapshots.SnapshotDuty(self.store, terms, around)

    def _describe_process(self, now_ms: int, interval_ms: int) -> ProcessSnapshot:
        return ProcessSnapshot("core", self.replica.hex(), now_ms, interval_ms, series(self.metrics))

    async def _review(self) -> None:
        self.dequeues.review_some(REVIEW_PERIOD_S)
        self.awaits.review_some(REVIEW_PERIOD_S)

    def _review_all(self) -> None:
        self.dequeues.review_all()
        self.awaits.review_all()

    def _doors(self) -> tuple[SessionServicer, Servers]:
        operations, bulk = QueueOperations(self.store, self._limits), BulkOperations(self.store, self._limits)
        table_store = TableStore(self.pipeline, self._settings.partitions, self.sweep.expect)
        tables = TableOperations(table_store, self._limits)
        door = Door(self.recorder.called)
        session_servicer = SessionServicer(
            operations,
            bulk,
            tables,
            self.dequeues,
            self.awaits,
            self.sessions,
            self._settings.session_in_flight_max,
            self.recorder.session_answered,
            self.recorder.session_refused,
        )
        servicers = Servicers(
            queues=QueueServicer(operations, bulk, self.dequeues, self.awaits, door),
            tables=TableServicer(tables, door),
            sessions=session_servicer,
            events=EventServicer(
                self.store,
                self.reader,
                ConsumerOperations(self.store, self._limits),
                self.watches,
                self._limits,
                door,
                self.recorder.answered,
            ),
            watch=WatchServicer(self.store, self.watches, self._limits, self.recorder.answered),
            metrics=MetricsServicer(self.newest, self._limits, door, self.recorder.answered),
            admin=AdminServicer(self._standing(), NamespaceOperations(self.store, self._limits), door),
            health=self.health.servicer,
        )
        return session_servicer, Servers(servicers, self._settings.calls_max)

    def _standing(self) -> Standing:
        return Standing(
            version=version("quintet"),
            partitions=self._settings.partitions,
            replica=self.replica.hex(),
            started_at_ms=time.time_ns() // 1_000_000,
            connection=self.connection,
            sessions=self.sessions,
            parked_waits=lambda: self.dequeues.parked + self.awaits.awaiting,
            is_ready=lambda: self.ready,
            is_draining=self.draining.is_set,
        )

    def _connect_parts(self) -> None:
        self.observers.batches.append(self.recorder.on_batch)
        self.observers.clocks.append(self.timers.on_clock)
        # Dequeues first: who only waits to be told must not keep them from a job.
        self.observers.wakes += [self.dequeues.on_woken, self.awaits.on_woken]
        self.connection.attached += [self._show_health, self._review_all, self._ask_due]
        self.connection.attached.append(self.metrics.redis_connects.at().inc)
        self.connection.lost.append(self._show_health)

    def _show_health(self) -> None:
        self._background(self.health.show(self.ready))

    def _ask_due(self) -> None:
        self._background(self.timers.ask_all())

    def _count_failure(self, duty: str) -> None:
        self.metrics.duty_failures.at(duty).inc()

    def _show_gauges(self) -> None:
        metrics, connection = self.metrics, self.connection
        read_at_scrape(metrics.queued, lambda: self.pipeline.queued)
        read_at_scrape(metrics.sessions, lambda: self.sessions.attached)
        read_at_scrape(metrics.owners, lambda: self.sessions.owners)
        read_at_scrape(metrics.parked, lambda: self.dequeues.parked)
        read_at_scrape(metrics.awaiting, lambda: self.awaits.awaiting)
        read_at_scrape(metrics.ready, lambda: self.ready)
        read_at_scrape(metrics.redis_connected, lambda: connection.ready)
        read_at_scrape(metrics.wake_connected, lambda: self.wakes.connected)
        read_at_scrape(metrics.snapshot_age_seconds, lambda: self.newest.age_s)
        read_at_scrape(metrics.watches, lambda: self.watches.open_watches)
        read_at_scrape(metrics.watch_lag_events, lambda: self.watches.lag_events)
        read_at_scrape(metrics.tail_connected, lambda: self.tail.connected)
        for trim in self.trims:
            metrics.log_records.at(trim.log).set_function(partial(getattr, trim, "records_max"))
            metrics.log_cap_ratio.at(trim.log).set_function(partial(getattr, trim, "cap_ratio"))
        metrics.consumer_lag.at().read = self._lags
        read_at_scrape(metrics.aof_last_write_ok, lambda: _last_write_is_ok(connection))
        read_at_scrape(metrics.durable, lambda: connection.durability is not None and connection.durability.durable)

    def _lags(self) -> list[Row]:
        return [((trim.log, consumer), lag) for trim in self.trims for consumer, lag in trim.lags().items()]

    def _show_queues(self) -> None:
        metrics, shown = self.metrics, QueueSeries(self.newest, self._settings.metrics_series_queues_max)
        metrics.events.at().read = shown.events
        metrics.queue_jobs.at().read = shown.queue_jobs
        metrics.queue_oldest_ready_age_seconds.at().read = shown.queue_oldest_ready_ages
        metrics.queue_events.at().read = shown.queue_events
        metrics.table_rows.at().read = shown.table_rows
        metrics.table_events.at().read = shown.table_events
        read_at_scrape(metrics.unlisted_queues, lambda: shown.shown.unlisted)

    def _background(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _last_write_is_ok(connection: RedisConnection) -> bool:
    return connection.durability is not None and connection.durability.last_write_status == "ok"
