"""What can be done to a stack under load, each by a name: parts that are killed, stopped, frozen; connections that are
cut or fall silent. Every fault is over when its action returns, and everything runs again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from tests.support.proxy import Proxy, Way
from tests.support.stack import Part, Stack

FROZEN_SECONDS_MAX = 3.0
HELD_SECONDS_MAX = 1.0
Fault = Callable[[Random], None]


class Networks:
    """Proxies between the parts of a stack not started yet, and a second core for the adapters to go to."""

    def __init__(self, stack: Stack) -> None:
        self.second = stack.second_core()
        self.redis = Proxy(stack.folder / "to-redis.sock", stack.redis.path)
        self.core = Proxy(stack.folder / "to-core.sock", stack.core.socket)
        stack.core.environment["QUINTET_REDIS_URL"] = f"unix://{self.redis.place}"
        self.second.environment.update(stack.core.environment)
        self._others = [self.second, stack.core]
        for adapter in stack.adapters:
            adapter.environment["QUINTET_CORE_TARGET"] = f"unix:{self.core.place}"

    def move(self) -> None:
        """The adapters lose their core and find another one, which has to resume their sessions."""
        self.core.retarget(self._others[0].socket)
        self._others.reverse()
        self.core.cut()

    def close(self) -> None:
        """For good."""
        self.redis.close()
        self.core.close()


@contextmanager
def breakable(**environment: str) -> Iterator[tuple[Stack, Networks]]:
    """A running stack whose connections can be broken."""
    stack = Stack(**environment)
    networks = Networks(stack)
    try:
        with stack:
            networks.second.start()
            yield stack, networks
    finally:
        networks.close()


def faults(stack: Stack, networks: Networks) -> dict[str, Fault]:
    """All of them. The choice of lengths is the caller's `Random`."""
    adapters = {"job-centre": stack.job_centre, "text-queue": stack.text_queue}
    return {
        "kill Redis": killed(stack.redis),
        "kill the core": killed(stack.core),
        **{f"kill {name}": killed(adapter) for name, adapter in adapters.items()},
        "kill the second core": killed(networks.second),
        "kill everything": killed(stack.redis, stack.core, networks.second, *stack.adapters),
        "kill the core and Redis": killed(stack.redis, stack.core),
        "stop the core": stopped(stack.core),
        "stop job-centre": stopped(stack.job_centre),
        "freeze Redis": _frozen(stack.redis),
        "freeze the core": _frozen(stack.core),
        "move the adapters to the other core": lambda _: networks.move(),
        "cut between the adapters and the core": lambda _: networks.core.cut(),
        "cut between the core and Redis": lambda _: networks.redis.cut(),
        "lose answers of the core": _silent(networks.core),
        "lose answers of Redis": _silent(networks.redis),
    }


def killed(*parts: Part) -> Fault:
    """kill -9 at once; started again from the bottom up."""

    def fault(_: Random) -> None:
        for part in parts:
            part.kill9()
        for part in parts:
            part.start()

    return fault


def stopped(part: Part) -> Fault:
    """SIGTERM, in order."""

    def fault(_: Random) -> None:
        part.terminate()
        part.start()

    return fault


def _frozen(part: Part) -> Fault:
    """SIGSTOP, shorter or longer than a session lives."""

    def fault(choice: Random) -> None:
        part.freeze()
        time.sleep(choice.random() * FROZEN_SECONDS_MAX)
        part.thaw()

    return fault


def _silent(proxy: Proxy) -> Fault:
    """Answers stop to arrive; then the connections break, and what was on its way is lost."""

    def fault(choice: Random) -> None:
        proxy.hold(Way.BACK)
        time.sleep(choice.random() * HELD_SECONDS_MAX)
        proxy.cut()

    return fault
