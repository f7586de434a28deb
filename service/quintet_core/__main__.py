"""`python -m quintet_core`: the core as a process."""

from __future__ import annotations

import quintet_kit.early  # noqa: F401 - before everything else

# isort: split

import asyncio
import sys

from quintet_kit import collector
from quintet_kit.exposition import Exposition
from quintet_kit.lifecycle import StopSignal, announce, drain, run, write_ready_file
from quintet_kit.logs import configure, get_logger
from quintet_kit.settings import EX_CONFIG, load_or_exit

from quintet_core.composition import Core, redis_terms
from quintet_core.rpc.server import Servers, TlsFiles
from quintet_core.rpc.tokens_file import TokensFile
from quintet_core.settings import CoreSettings

EX_CANNOT_LISTEN = 69


async def serve(settings: CoreSettings, stop: StopSignal) -> int:
    """Run until told to stop; the exit code."""
    try:
        core = Core(settings, redis_terms(settings))
        tokens = TokensFile(settings.tokens_file) if settings.tokens_file is not None else None
    except (ValueError, OSError) as error:
        get_logger().error("settings_wrong", reason=str(error))
        return EX_CONFIG
    try:
        exposition = await Exposition.start(
            registry=core.registry, ready=core.readiness, host=settings.metrics_host, port=settings.metrics_port
        )
        await _listen(core.servers, settings, tokens)
    except OSError as error:
        get_logger().error("cannot_listen", reason=str(error))
        return EX_CANNOT_LISTEN
    try:
        return await _run(core, settings, stop, {**core.servers.listening, "metrics": exposition.address})
    finally:
        await exposition.close()


async def _listen(servers: Servers, settings: CoreSettings, tokens: TokensFile | None) -> None:
    if settings.core_socket is not None:
        await servers.listen_unix(settings.core_socket, int(settings.core_socket_mode, 8))
    if not settings.core_tcp:
        return
    tls = None
    if settings.tls_cert_file is not None and settings.tls_key_file is not None:
        tls = TlsFiles(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    access_of = tokens.access_of if tokens is not None else None
    await servers.listen_tcp(settings.core_host, settings.core_port, tls, access_of)


async def _run(core: Core, settings: CoreSettings, stop: StopSignal, listening: dict[str, str]) -> int:
    await core.health.show(ready=False)
    core.start()
    announce(listening, None)
    announcing = asyncio.ensure_future(_announce_ready(core, settings, listening))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((stopped, core.connection.unsuitable), return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    stopped.cancel()
    if core.connection.unsuitable.done():
        await core.close()
        return EX_CONFIG
    await drain(
        set_not_ready=core.set_not_ready,
        delay_ms=settings.drain_delay_ms,
        stop_accepting=core.stop_accepting,
        finish=core.finish,
        grace_ms=settings.drain_grace_ms,
        close=core.close,
    )
    return 0


async def _announce_ready(core: Core, settings: CoreSettings, listening: dict[str, str]) -> None:
    await core.wait_ready()
    collector.freeze()
    get_logger().info("ready", replica=core.replica.hex(), weak_durability=settings.allow_weak_durability)
    if settings.ready_file is not None:
        write_ready_file(settings.ready_file, listening)


def main() -> int:
    """The process."""
    settings = load_or_exit(CoreSettings)
    configure("core", settings.log_level, settings.log_format)
    return run(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
