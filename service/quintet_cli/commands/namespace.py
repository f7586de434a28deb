"""`quintet namespace get` and `quintet namespace set`."""

from __future__ import annotations

import dataclasses

import click
from quintet_client import Client, NamespaceSettings

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output


@click.group()
def namespace() -> None:
    """What holds for all queues and tables of a namespace."""


@namespace.command()
@connected
async def get(client: Client, output: Output) -> int:
    """Show it."""
    _show(client, output, await client.namespace_settings())
    return exit_codes.DONE


@namespace.command("set")
@click.option("--job-events/--no-job-events", default=None, help="Write changes of jobs to the event log.")
@click.option("--carry-payloads/--no-carry-payloads", default=None, help="Events of new jobs carry the payload.")
@click.option("--carry-values/--no-carry-values", default=None, help="Events of rows put carry the value.")
@connected
async def set_(
    client: Client, output: Output, job_events: bool | None, carry_payloads: bool | None, carry_values: bool | None
) -> int:
    """Change what is named; the rest stays as it is."""
    said = {
        "job_events_off": None if job_events is None else not job_events,
        "events_carry_payloads": carry_payloads,
        "events_carry_values": carry_values,
    }
    settings = await client.namespace_settings()
    settings = dataclasses.replace(settings, **{name: value for name, value in said.items() if value is not None})
    await client.update_namespace(settings)
    _show(client, output, settings)
    return exit_codes.DONE


def _show(client: Client, output: Output, settings: NamespaceSettings) -> None:
    record = dataclasses.asdict(settings)
    if output.json:
        output.record({"namespace": client.namespace, **record})
        return
    rows = [("namespace", client.namespace), *((name, "yes" if value else "no") for name, value in record.items())]
    output.table(("what", "is"), rows)
