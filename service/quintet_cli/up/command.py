"""The command `quintet up`."""

import asyncio
import signal
import sys
from functools import partial

import click
from quintet_kit import logs
from quintet_kit.lifecycle import StopSignal, end_process, run
from quintet_kit.options import setting_options, settings_of
from rich.console import Console

from quintet_cli.up.child import ChildError
from quintet_cli.up.everything import Everything, opened
from quintet_cli.up.settings import UpSettings
from quintet_cli.up.shown import as_json, show_table


@click.command("up")
@click.option("--json", "as_json_line", is_flag=True, help="When ready, print one JSON line instead of a table.")
@setting_options(UpSettings)
def up(as_json_line: bool, **given: object) -> None:
    """Run everything here: Redis on a data directory, the core, and the protocol adapters.

    Ctrl+C (or SIGTERM) stops everything in order; a second one stops at once. Nothing acknowledged is lost either way.
    """
    settings = settings_of(UpSettings, given)
    logs.configure("up", settings.log_level, settings.log_format)

    async def main(stop: StopSignal) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.on_signal, signal.SIGHUP)
        return await _run(settings, stop, as_json_line=as_json_line)

    sys.exit(run(main))


async def _run(settings: UpSettings, stop: StopSignal, *, as_json_line: bool) -> int:
    console = Console(stderr=True)
    try:
        async with opened(settings) as everything:
            stop.at_once = partial(_end_at_once, everything)
            if await _start(everything, stop, console):
                _show(everything, as_json_line=as_json_line)
                await stop.wait()
            console.print("Stopping ...", highlight=False)
    except ChildError as error:
        console.print(f"{error}; everything was stopped.", style="red", highlight=False, soft_wrap=True)
        return error.exit_code if error.exit_code is not None and error.exit_code > 0 else 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    console.print("Stopped.", highlight=False)
    return 0


async def _start(everything: Everything, stop: StopSignal, console: Console) -> bool:
    """Start everything, or give up when told to stop meanwhile; returns whether everything runs."""
    with console.status("Starting ...") as status:
        starting = asyncio.create_task(everything.start(lambda what: status.update(f"Starting {what} ...")))
        stopping = asyncio.create_task(_wait(stop))
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return False
        starting.result()
        return True


def _end_at_once(everything: Everything, signal_number: int) -> None:
    """The kernel ends the children when this process is gone; the lock stays with Redis until it is."""
    everything.directory.remove_runtime()
    end_process(signal_number)


async def _wait(stop: StopSignal) -> None:
    await stop.wait()


def _show(everything: Everything, *, as_json_line: bool) -> None:
    if as_json_line:
        click.echo(as_json(everything))
    else:
        show_table(everything, Console())
