"""`python -m quintet_adapters <protocol>`: one adapter as a process."""

from __future__ import annotations

import quintet_kit.early  # noqa: F401 - before everything else

# isort: split

import argparse
import asyncio
import contextlib
import resource
import sys
from collections.abc import Sequence
from typing import Final

from quintet_client.session import Session
from quintet_kit import collector
from quintet_kit.exposition import Exposition
from quintet_kit.lifecycle import StopSignal, announce, drain, run
from quintet_kit.logs import configure, get_logger
from quintet_kit.metrics import process_registry
from quintet_kit.settings import EX_CONFIG

from quintet_adapters.adapter import Adapter
from quintet_adapters.metrics import AdapterMetrics
from quintet_adapters.settings import AnyAdapterSettings
from quintet_adapters.setups import SETUPS, Setup
from quintet_adapters.transports.listener import Listener

_SPARE_DESCRIPTORS: Final = 128


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one protocol until told to stop. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m quintet_adapters", description="One protocol adapter of Quintet.")
    parser.add_argument("protocol", choices=sorted(SETUPS))
    setup = SETUPS[parser.parse_args(arguments).protocol]()
    configure(setup.name, setup.settings.log_level, setup.settings.log_format)
    return run(lambda stop: _serve(setup, stop))


async def _serve(setup: Setup, stop: StopSignal) -> int:
    settings = setup.settings
    _allow_descriptors(settings.connections_max + _SPARE_DESCRIPTORS)
    try:
        tls, credentials = settings.tls(), settings.credentials()
    except OSError as error:
        get_logger().error("file_unusable", reason=str(error))
        return EX_CONFIG
    metrics = AdapterMetrics(process_registry(), setup.commands)
    session = await Session.connect(settings.core_target, client=setup.name, credentials=credentials, wait_ready=False)
    adapter = Adapter(session, metrics, settings.connections_max)
    try:
        listeners = await setup.listen(adapter, tls)
        exposition = await _expose(setup, adapter, stop)
    except OSError as error:
        get_logger().error("listen_failed", reason=str(error))
        await session.close()
        return 1
    if await _core_found(session, stop):
        collector.freeze()
        addresses = {listener.name: listener.address for listener in listeners}
        announce({**addresses, "metrics": exposition.address}, settings.ready_file)
        await stop.wait()
    await _stop(settings, adapter, listeners, exposition)
    return 0


async def _expose(setup: Setup, adapter: Adapter, stop: StopSignal) -> Exposition:
    def ready() -> tuple[bool, str]:
        if stop.is_set:
            return False, "draining"
        return (True, "ready") if adapter.session.connected else (False, "the core cannot be reached")

    return await Exposition.start(
        registry=adapter.metrics.registry, ready=ready, host=setup.settings.metrics_host, port=setup.metrics_port
    )


async def _core_found(session: Session, stop: StopSignal) -> bool:
    """Waits for the core, however long that takes. False: the process was told to stop meanwhile."""
    found = asyncio.ensure_future(session.wait_connected())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({found, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for waiting in (found, stopped):
        waiting.cancel()
    return not stop.is_set


async def _stop(
    settings: AnyAdapterSettings, adapter: Adapter, listeners: Sequence[Listener], exposition: Exposition
) -> None:
    async def stop_accepting() -> None:
        for listener in listeners:
            listener.stop_accepting()

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
