"""`quintet metrics`."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from quintet_client import Client, QueueSnapshot, Snapshots, TableSnapshot

from quintet_cli.commands import exit_codes
from quintet_cli.commands.connected import connected
from quintet_cli.commands.output import Output, instant

QUEUE_HEADINGS = ("queue", "ready", "delayed", "leased", "dead", "oldest", "in/s", "out/s", "done/s")
TABLE_HEADINGS = ("table", "rows", "put/s", "deleted/s")
_MINUTE_S, _HOUR_S = 60, 3600
_GONE_MS = 180_000

Thing = QueueSnapshot | TableSnapshot


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with each snapshot that is written, until Ctrl+C.")
@click.option("--all-namespaces", is_flag=True, help="Not only those of --namespace; as JSON also processes.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Rows of a table shown.")
@connected
async def metrics(client: Client, output: Output, follow: bool, all_namespaces: bool, limit: int) -> int:
    """Show what queues and tables looked like at their last snapshot, the fullest first."""
    board = _Board(output, limit, all_namespaces, again=follow)
    board.add(await client.snapshot(all_namespaces=all_namespaces))
    board.show()
    if follow:
        async for snapshots in client.stream_snapshots(all_namespaces=all_namespaces):
            board.add(snapshots)
            board.show()
    return exit_codes.DONE


class _Board:
    """The newest snapshot of everything, shown again and again; as JSON each once, as it comes."""

    def __init__(self, output: Output, limit: int, all_namespaces: bool, *, again: bool) -> None:
        self._output = output
        self._limit = limit
        self._again = again
        self._all_namespaces = all_namespaces
        self._queues: dict[tuple[str, str], QueueSnapshot] = {}
        self._tables: dict[tuple[str, str], TableSnapshot] = {}

    def add(self, snapshots: Snapshots) -> None:
        """Some newer ones."""
        if self._output.json:
            for kind, found in (
                ("queue", snapshots.queues),
                ("table", snapshots.tables),
                ("process", snapshots.processes),
            ):
                for each in found:
                    self._output.record({"kind": kind, **_record(each)})
        self._queues.update({(each.namespace, each.queue): each for each in snapshots.queues})
        self._tables.update({(each.namespace, each.table): each for each in snapshots.tables})

    def show(self) -> None:
        """What is known now."""
        if self._output.json:
            return
        if self._again:
            self._output.clear()
        self._forget_gone()
        queues = sorted(self._queues.values(), key=lambda each: (-each.held, each.namespace, each.queue))
        tables = sorted(self._tables.values(), key=lambda each: (-each.rows, each.namespace, each.table))
        if not queues and not tables:
            self._output.say("no snapshots yet", {})
        if queues:
            self._output.table(QUEUE_HEADINGS, (self._queue_row(each) for each in queues[: self._limit]))
        if tables:
            self._output.table(TABLE_HEADINGS, (self._table_row(each) for each in tables[: self._limit]))
        if newest := self._newest_ms():
            self._output.say(f"as of {instant(newest)}", {})
        more = max(0, len(queues) - self._limit) + max(0, len(tables) - self._limit)
        if more:
            self._output.say(f"and {more} more (--limit)", {})

    def _newest_ms(self) -> int:
        things: list[Thing] = [*self._queues.values(), *self._tables.values()]
        return max((each.at_ms for each in things), default=0)

    def _forget_gone(self) -> None:
        # What is there is told once a minute at least.
        gone_ms = self._newest_ms() - _GONE_MS
        self._queues = {key: each for key, each in self._queues.items() if each.at_ms > gone_ms}
        self._tables = {key: each for key, each in self._tables.items() if each.at_ms > gone_ms}

    def _named(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self._all_namespaces else name

    def _queue_row(self, each: QueueSnapshot) -> tuple[object, ...]:
        return (
            self._named(each.namespace, each.queue),
            each.ready,
            each.delayed,
            each.leased,
            each.dead,
            _age(each.oldest_ready_age_ms) if each.ready else "",
            round(each.enqueued_rate, 1),
            round(each.dequeued_rate, 1),
            round(each.acknowledged_rate, 1),
        )

    def _table_row(self, each: TableSnapshot) -> tuple[object, ...]:
        return (
            self._named(each.namespace, each.table),
            each.rows,
            round(each.put_rate, 1),
            round(each.deleted_rate, 1),
        )


def _record(each: Any) -> dict[str, Any]:
    return dataclasses.asdict(each)


def _age(age_ms: int) -> str:
    seconds = age_ms / 1000
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"
