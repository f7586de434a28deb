"""`quintet events`."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import click
from quintet_client import Client, Event, Partition

from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, bytes_record, instant, shown

HEADINGS = ("time", "partition", "offset", "event", "queue, table", "job, key", "attempt", "state", "detail")
_READ_EVENTS_MAX = 1000


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they happen, until Ctrl+C.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=50, show_default=True, help="How many of the past.")
@click.option("--queue", help="Only events of this queue.")
@click.option("--table", help="Only events of this table; of both, when --queue is given too.")
@click.option("--all-namespaces", is_flag=True, help="Not only those of --namespace.")
@connected
async def events(
    client: Client,
    output: Output,
    follow: bool,
    last: int,
    queue: str | None,
    table: str | None,
    all_namespaces: bool,
) -> None:
    """Show the last events of the log, and with --follow those to come."""

    def wanted(event: Event) -> bool:
        named = event.table == table if _is_of_table(event) else event.queue == queue
        return (named or (queue is None and table is None)) and (all_namespaces or event.namespace == client.namespace)

    partitions = await client.list_partitions()
    past = await _past(client, partitions, last) if last else []
    found = [event for event in past if wanted(event)][-last:] if last else []
    _show(output, found, follow)
    if follow:
        after_offsets = {each.partition: each.last_offset for each in partitions}
        async for event in client.subscribe(after_offsets=after_offsets, all_namespaces=all_namespaces):
            if wanted(event):
                _show_line(output, event)


async def _past(client: Client, partitions: list[Partition], last: int) -> list[Event]:
    """The newest events of every partition, in order of time."""
    each_max = min(max(last, _READ_EVENTS_MAX), 10_000)
    read: list[list[Event]] = []
    for partition in partitions:
        after_offset = max(partition.first_offset - 1, partition.last_offset - each_max)
        if after_offset < partition.last_offset:
            read.append(await client.read_events(partition.partition, after_offset=after_offset, events_max=each_max))
    return list(heapq.merge(*read, key=lambda event: (event.at_ms, event.partition, event.offset)))


def _show(output: Output, found: list[Event], follow: bool) -> None:
    if output.json or follow:
        for event in found:
            _show_line(output, event)
    else:
        output.table(HEADINGS, (_row(event) for event in found))


def _show_line(output: Output, event: Event) -> None:
    words = " ".join(
        f"{name}={value}"
        for name, value in (
            ("queue", event.queue),
            ("job", event.job_id),
            ("table", event.table),
            ("key", shown(event.key)),
            ("attempt", event.attempt),
            ("state", event.state or "gone" if event.job_id else ""),
            ("detail", event.detail),
        )
        if value
    )
    sentence = f"{instant(event.at_ms)} {event.partition}/{event.offset} {event.kind} {words}"
    output.say(sentence, _record(event))


def _record(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = dataclasses.asdict(event)
    key, carried = record.pop("key"), {name: record.pop(name) for name in ("value", "payload")}
    record |= bytes_record("key", key)
    for name, content in carried.items():
        record |= {} if content is None else bytes_record(name, content)
    return record


def _is_of_table(event: Event) -> bool:
    # A table's name may be empty, as a queue's may.
    return event.kind.startswith(("row_", "table_"))


def _row(event: Event) -> tuple[object, ...]:
    return (
        instant(event.at_ms),
        event.partition,
        event.offset,
        event.kind,
        event.table or event.queue,
        event.job_id or shown(event.key),
        event.attempt,
        event.state or ("gone" if event.job_id else ""),
        event.detail,
    )
