"""What is measured of tables, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks import etcd
from benchmarks.key_value_tongues import (
    KEYS,
    KeyValueTongue,
    keys,
    new_keys,
    redis_get,
    redis_set,
    zeromq_get,
    zeromq_update,
)
from benchmarks.load import Load
from benchmarks.notification_load import NotificationLoad
from benchmarks.plan import Bench, scenario
from benchmarks.processes import CpuMeter, free_port
from benchmarks.resp import RespConnection
from benchmarks.stack import Stack, redis_server
from benchmarks.watch_load import WatchLoad, fill_rows

VALUES = {"50 bytes": b"x" * 50, "1 KiB": b"x" * 1024}
ZEROMQ_UPDATE = "ZeroMQ UPDATE, {value}"
ZEROMQ_UPDATE_NEW = "ZeroMQ UPDATE, {value}, new rows"
ZEROMQ_GET = "ZeroMQ GET, {value}"
REDIS_SET = "Redis SET, {value}"
REDIS_GET = "Redis GET, {value}"
ETCD = "etcd put, 1 KiB, new keys"
UPDATES_PER_S = 5000
NOTIFICATIONS = f"ZeroMQ notifications, {UPDATES_PER_S:,} updates/s"
WATCHERS = 100
WATCH = f"watch, {WATCHERS} watchers, {UPDATES_PER_S:,} updates/s"

_PART, _PUBLICATIONS = "zmq-kv", "zmq-kv-pub"


class RowScenarios:
    """Writes and reads of rows through ZeroMQ beside Redis itself and etcd; how soon changes are told."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._plan = bench.plan
        self._stack = bench.stack

    def one_round(self, *, with_etcd: bool) -> None:
        """Side by side: for each number of clients and size of value every contender."""
        for clients in self._plan.loops:
            for size, value in VALUES.items():
                self._contenders(clients, size, value)
        if self._stack:
            self._zeromq_update(self._stack, ZEROMQ_UPDATE_NEW, max(self._plan.loops), "1 KiB", new=True)
            self._notifications(self._stack)
            self._watch(self._stack)
        if with_etcd:
            self._etcd()

    def _contenders(self, clients: int, size: str, value: bytes) -> None:
        if stack := self._stack:
            self._zeromq_update(stack, ZEROMQ_UPDATE, clients, size)
            self._zeromq_get(stack, clients, size, value)
        self._redis(REDIS_SET.format(value=size), clients, redis_set, value)
        self._redis(REDIS_GET.format(value=size), clients, redis_get, value)

    @scenario
    def _zeromq_update(self, stack: Stack, template: str, clients: int, size: str, *, new: bool = False) -> None:
        name = template.format(value=size)
        if self._bench.begins(name, clients):
            table, value = next(self._bench.names), VALUES[size]
            fill_rows(stack.core_target, table, value)
            shared = new_keys() if new else keys()
            self._zeromq(stack, name, (zeromq_update(table, value, shared) for _ in range(clients)), clients)

    @scenario
    def _zeromq_get(self, stack: Stack, clients: int, size: str, value: bytes) -> None:
        name = ZEROMQ_GET.format(value=size)
        if self._bench.begins(name, clients):
            table = next(self._bench.names)
            fill_rows(stack.core_target, table, value)
            shared = keys()
            self._zeromq(stack, name, (zeromq_get(table, value, shared) for _ in range(clients)), clients)

    def _zeromq(self, stack: Stack, name: str, tongues: Iterable[KeyValueTongue], clients: int) -> None:
        load = Load(stack.address(_PART), tongues)
        self._bench.take_down(name, clients, load, CpuMeter(stack.processes(_PART, "core", "redis")))

    @scenario
    def _redis(
        self, name: str, clients: int, tongue: Callable[[bytes, Iterator[bytes]], KeyValueTongue], value: bytes
    ) -> None:
        if self._bench.begins(name, clients):
            port = free_port()
            with redis_server(self._plan.directory, port) as (path, pid):
                _fill_redis(path, value)
                shared = keys()
                load = Load(("127.0.0.1", port), (tongue(value, shared) for _ in range(clients)))
                self._bench.take_down(name, clients, load, CpuMeter({"redis": pid}))

    @scenario
    def _etcd(self) -> None:
        if not etcd.missing() and self._bench.begins(ETCD, etcd.CLIENTS):
            with etcd.etcd(self._plan.directory) as (address, child):
                load = etcd.EtcdCheck(address)
                self._bench.take_down(ETCD, etcd.CLIENTS, load, CpuMeter({"etcd": child.pid}))

    @scenario
    def _notifications(self, stack: Stack) -> None:
        if self._bench.begins(NOTIFICATIONS, 1):
            requests, publications = stack.address(_PART), stack.address(_PART, _PUBLICATIONS)
            load = NotificationLoad(requests, publications, next(self._bench.names), UPDATES_PER_S)
            self._bench.take_down(NOTIFICATIONS, 1, load, CpuMeter(stack.processes(_PART, "core", "redis")))

    @scenario
    def _watch(self, stack: Stack) -> None:
        if self._bench.begins(WATCH, WATCHERS):
            load = WatchLoad(stack.core_target, next(self._bench.names), WATCHERS, UPDATES_PER_S)
            self._bench.take_down(WATCH, WATCHERS, load, CpuMeter(stack.processes("core", "redis")))


def _fill_redis(path: Path, value: bytes) -> None:
    commands = redis_set(value, keys()).talk()
    with RespConnection(path) as redis:
        redis.send((next(commands) or b"") + b"".join(commands.send(b"+OK\r\n") or b"" for _ in range(KEYS - 1)))
        for _ in range(KEYS):
            redis.receive()
