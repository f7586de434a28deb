"""`python -m quintet_adapters text-queue|job-centre`: one adapter as a process."""

from __future__ import annotations

import quintet_kit.grpc_poller  # noqa: F401 - before anything imports grpc

# isort: split

import argparse
import asyncio
import contextlib
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from quintet_client.session import Session
from quintet_kit import collector
from quintet_kit.exposition import Exposition, address_of
from quintet_kit.lifecycle import StopSignal, announce, drain, run
from quintet_kit.logs import configure, get_logger
from quintet_kit.settings import EX_CONFIG, load_or_exit

from quintet_adapters.adapter import Adapter
from quintet_adapters.metrics import AdapterMetrics
from quintet_adapters.protocols.conversation import Conversation
from quintet_adapters.protocols.job_centre import JobCentre
from quintet_adapters.protocols.job_centre_requests import JobCentreReader
from quintet_adapters.protocols.text_queue import TextQueue
from quintet_adapters.settings import AdapterSettings, JobCentreSettings, TextQueueSettings
from quintet_adapters.transports import tcp

_SPARE_DESCRIPTORS: Final = 128
Converse = Callable[[], Conversation]


@dataclass(frozen=True, slots=True)
class _Setup:
    """What a protocol needs of the process around it."""

    name: str
    settings: JobCentreSettings | TextQueueSettings
    commands: Sequence[str]
    converse: Callable[[AdapterMetrics], Converse]


def _text_queue() -> _Setup:
    settings = load_or_exit(TextQueueSettings)
    limits = settings.limits()
    return _Setup(
        "text-queue",
        settings,
        TextQueue.commands,
        lambda metrics: lambda: TextQueue(limits, metrics.requests),
    )


def _job_centre() -> _Setup:
    settings = load_or_exit(JobCentreSettings)
    reader = JobCentreReader(settings.limits())
    return _Setup(
        "job-centre",
        settings,
        JobCentre.commands,
        lambda metrics: lambda: JobCentre(reader, metrics.requests),
    )


_SETUPS: Final[dict[str, Callable[[], _Setup]]] = {"text-queue": _text_queue, "job-centre": _job_centre}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one protocol until told to stop. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m quintet_adapters", description="One protocol adapter of Quintet.")
    parser.add_argument("protocol", choices=sorted(_SETUPS))
    setup = _SETUPS[parser.parse_args(arguments).protocol]()
    configure(setup.name, setup.settings.log_level, setup.settings.log_format)
    collector.relax()
    return run(lambda stop: _serve(setup, stop))


async def _serve(setup: _Setup, stop: StopSignal) -> int:
    settings = setup.settings
    _allow_descriptors(settings.connections_max + _SPARE_DESCRIPTORS)
    try:
        tls, credentials = settings.tls(), settings.credentials()
    except OSError as error:
        get_logger().error("file_unusable", reason=str(error))
        return EX_CONFIG
    metrics = AdapterMetrics(CollectorRegistry(), setup.commands)
    session = await Session.connect(settings.core_target, client=setup.name, credentials=credentials, wait_ready=False)
    adapter = Adapter(session, metrics, setup.converse(metrics), settings.connections_max)
    try:
        server = await tcp.listen(adapter, settings.tcp_limits(), settings.host, settings.port, tls)
        exposition = await _expose(settings, adapter, stop)
    except OSError as error:
        get_logger().error("listen_failed", reason=str(error))
        await session.close()
        return 1
    if await _core_found(session, stop):
        collector.freeze()
        announce({setup.name: address_of(server), "metrics": exposition.address}, settings.ready_file)
        await stop.wait()
    await _stop(settings, adapter, server, exposition)
    return 0


async def _expose(settings: AdapterSettings, adapter: Adapter, stop: StopSignal) -> Exposition:
    def ready() -> tuple[bool, str]:
        if stop.is_set:
            return False, "draining"
        return (True, "ready") if adapter.session.connected else (False, "the core cannot be reached")

    port = settings.metrics_port if isinstance(settings, JobCentreSettings | TextQueueSettings) else 0
    return await Exposition.start(registry=adapter.metrics.registry, ready=ready, host=settings.metrics_host, port=port)


async def _core_found(session: Session, stop: StopSignal) -> bool:
    """Waits for the core, however long that takes. False: the process was told to stop meanwhile."""
    found = asyncio.ensure_future(session.wait_connected())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({found, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for waiting in (found, stopped):
        waiting.cancel()
    return not stop.is_set


async def _stop(settings: AdapterSettings, adapter: Adapter, server: asyncio.Server, exposition: Exposition) -> None:
    async def stop_accepting() -> None:
        server.close()

    async def close() -> None:
        await adapter.close()
        await exposition.close()
        if settings.ready_file is not None:
            settings.ready_file.unlink(missing_ok=True)

    await drain(
        set_not_ready=lambda: None,  # the stop signal is what readiness looks at
        delay_ms=settings.drain_delay_ms,
        stop_accepting=stop_accepting,
        finish=adapter.finish,
        grace_ms=settings.grace_ms,
        close=close,
    )


def _allow_descriptors(wanted: int) -> None:
    """Raises the soft limit of open files towards what the connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
