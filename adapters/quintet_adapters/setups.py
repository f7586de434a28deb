"""What each protocol needs of the process around it: settings, words for metrics, listeners."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from quintet_client.watch import Watch
from quintet_kit.settings import load_or_exit

from quintet_adapters.adapter import Adapter
from quintet_adapters.default_queue import DefaultQueue
from quintet_adapters.protocols.conversation import Converse
from quintet_adapters.protocols.etzel import Etzel
from quintet_adapters.protocols.etzel_requests import EtzelReader
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_adapters.protocols.job_centre_requests import JobCentreReader
from quintet_adapters.protocols.taskflux import TaskFlux
from quintet_adapters.protocols.taskflux_requests import TaskFluxService
from quintet_adapters.protocols.text_queue import TextQueue
from quintet_adapters.protocols.zmq_kv import ZmqKv
from quintet_adapters.settings import (
    AdapterSettings,
    AnyAdapterSettings,
    EtzelSettings,
    JobCentreSettings,
    TaskFluxSettings,
    TextQueueSettings,
    ZmqKvSettings,
)
from quintet_adapters.transports import tcp
from quintet_adapters.transports.listener import Listener, ServerListener
from quintet_adapters.transports.zeromq.service import ZmqKvService

Listen = Callable[[Adapter, ssl.SSLContext | None], Awaitable[Sequence[Listener]]]
"""Opens every address of the adapter. Raises OSError when one cannot be had."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One protocol's."""

    name: str
    settings: AnyAdapterSettings
    metrics_port: int
    commands: Sequence[str]
    listen: Listen


def _text_queue() -> Setup:
    settings = load_or_exit(TextQueueSettings)
    limits = settings.limits()

    async def listen(adapter: Adapter, tls: ssl.SSLContext | None) -> Sequence[Listener]:
        counts = adapter.metrics.requests
        return [await _tcp("text-queue", adapter, lambda: TextQueue(limits, counts), settings, settings.port, tls)]

    return Setup("text-queue", settings, settings.metrics_port, TextQueue.commands, listen)


def _job_centre() -> Setup:
    settings = load_or_exit(JobCentreSettings)
    reader = JobCentreReader(settings.limits())

    async def listen(adapter: Adapter, tls: ssl.SSLContext | None) -> Sequence[Listener]:
        counts = adapter.metrics.requests
        return [await _tcp("job-centre", adapter, lambda: JobCentre(reader, counts), settings, settings.port, tls)]

    return Setup("job-centre", settings, settings.metrics_port, JobCentre.commands, listen)


def _etzel() -> Setup:
    settings = load_or_exit(EtzelSettings)
    reader = EtzelReader(settings.limits())

    async def listen(adapter: Adapter, tls: ssl.SSLContext | None) -> Sequence[Listener]:
        counts = adapter.metrics.requests
        return [
            await _tcp(name, adapter, partial(converse, reader, counts), settings, port, tls)
            for name, converse, port in (
                ("etzel", Etzel.by_websocket, settings.port),
                ("etzel-lines", Etzel.by_lines, settings.lines_port),
            )
        ]

    return Setup("etzel", settings, settings.metrics_port, Etzel.commands, listen)


def _taskflux() -> Setup:
    settings = load_or_exit(TaskFluxSettings)
    service = TaskFluxService(settings.limits())

    async def listen(adapter: Adapter, tls: ssl.SSLContext | None) -> Sequence[Listener]:
        counts = adapter.metrics.requests
        listener = await _tcp("taskflux", adapter, lambda: TaskFlux(service, counts), settings, settings.port, tls)
        service.address = settings.advertised_address or listener.address
        DefaultQueue(adapter.session, settings.namespace)
        return [listener]

    return Setup("taskflux", settings, settings.metrics_port, TaskFlux.commands, listen)


def _zmq_kv() -> Setup:
    settings = load_or_exit(ZmqKvSettings)

    def new_watch() -> Watch:
        return Watch(settings.core_target, namespace=settings.namespace, credentials=settings.credentials())

    async def listen(adapter: Adapter, tls: ssl.SSLContext | None) -> Sequence[Listener]:
        return ZmqKvService.open(adapter, settings.terms(), new_watch).listeners

    return Setup("zmq-kv", settings, settings.metrics_port, ZmqKv.commands, listen)


async def _tcp(
    name: str,
    adapter: Adapter,
    converse: Converse,
    settings: AdapterSettings,
    port: int,
    tls: ssl.SSLContext | None,
) -> Listener:
    """A TCP port whose bytes the conversation reads as they are."""
    return ServerListener(name, await tcp.listen(adapter, converse, settings.tcp_limits(), settings.host, port, tls))


SETUPS: Final[dict[str, Callable[[], Setup]]] = {
    "text-queue": _text_queue,
    "job-centre": _job_centre,
    "taskflux": _taskflux,
    "zmq-kv": _zmq_kv,
    "etzel": _etzel,
}
"""By the protocol's name. Each reads its settings; faulty ones end the process."""
