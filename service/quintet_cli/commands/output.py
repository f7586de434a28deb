"""How a command answers: tables for people, one JSON object a line for programs. Progress goes to stderr."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
import msgspec
from quintet_client import Job, JobState

if TYPE_CHECKING:  # rich takes as long to import as a short command lasts: it is imported where a table is drawn
    from rich.console import Console
    from rich.progress import Progress

STATES = tuple(state.value for state in JobState)
"""What --state takes. (Of an enum, click would take the names, in capitals.)"""
_WIDTH_WITHOUT_TERMINAL = 160
_PAYLOAD_SHOWN_MAX = 60


class Output:
    """Where a command's answer goes; `json` is what `--json` said."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _WIDTH_WITHOUT_TERMINAL
        return console

    def record(self, record: Mapping[str, Any]) -> None:
        """One JSON object on a line of its own, at once: a reader of a pipe waits for it."""
        click.echo(msgspec.json.encode(record))

    def say(self, sentence: str, record: Mapping[str, Any]) -> None:
        """One sentence for people, or `record` as JSON."""
        if self.json:
            self.record(record)
        else:
            print(sentence, flush=True)

    def clear(self) -> None:
        """At a terminal, begin again at its top; what is shown anew takes the place of the old."""
        if self._console.is_terminal:
            self._console.clear()

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
        """A table for people; numbers to the right."""
        from rich.table import Table

        table = Table(title=title or None, title_justify="left")
        listed = [list(row) for row in rows]
        for index, heading in enumerate(headings):
            numeric = bool(listed) and all(isinstance(row[index], int | float) for row in listed)
            table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
        for row in listed:
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)

    def jobs(self, jobs: Sequence[Job], *, payloads: bool = True) -> None:
        """Jobs, in the order given."""
        if self.json:
            for job in jobs:
                self.record(job_record(job, payloads=payloads))
            return
        headings = ["id", "queue", "state", "rank", "attempts", "bytes", "token", "payload" if payloads else "failure"]
        self.table(headings, ([*_job_cells(job), _last_cell(job, payloads)] for job in jobs))

    def progress(self, what: str, total: int | None) -> Progress:
        """A bar on stderr with one task already added (id 0); silent without a terminal or with `--json`."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=self.json or not console.is_terminal,
        )
        progress.add_task(what, total=total)
        return progress


def job_record(job: Job, *, payloads: bool = True) -> dict[str, Any]:
    """A job as a JSON object: `payload` when it is UTF-8, else `payload_base64`."""
    record: dict[str, Any] = dataclasses.asdict(job)
    payload = record.pop("payload")
    if payloads:
        record.update(payload_record(payload))
    return record


def payload_record(payload: bytes) -> dict[str, str]:
    """A payload as a JSON member."""
    return bytes_record("payload", payload)


def bytes_record(name: str, data: bytes) -> dict[str, str]:
    """Bytes as the JSON member `name` when they are UTF-8, else as `name`_base64."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def shown(data: bytes) -> str:
    """The beginning of bytes for people: a dot for what cannot be printed."""
    text = data[: _PAYLOAD_SHOWN_MAX * 4].decode(errors="replace")
    printable = "".join(each if each.isprintable() else "\N{MIDDLE DOT}" for each in text)
    return printable if len(printable) <= _PAYLOAD_SHOWN_MAX else f"{printable[:_PAYLOAD_SHOWN_MAX]}..."


def instant(at_ms: int) -> str:
    """Epoch milliseconds for people, in UTC; empty for 0."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if at_ms else ""


def _job_cells(job: Job) -> list[object]:
    attempts = f"{job.attempts}/{job.attempts_max}" if job.attempts_max else str(job.attempts)
    return [job.id, job.queue, job.state, job.rank, attempts, job.payload_bytes, job.lease.token if job.lease else ""]


def _last_cell(job: Job, payloads: bool) -> str:
    return shown(job.payload) if payloads else job.failure_reason


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, float) else str(value)
    # Square brackets in names and payloads are not markup.
    return text.replace("[", r"\[")
