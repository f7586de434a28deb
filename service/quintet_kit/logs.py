"""Structured logs on stderr: JSON lines for machines, readable lines at a terminal.

Every line has a stable `event` word, what happened in snake_case; everything that varies is a field. Payloads,
values and secrets are never logged.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from quintet_kit.settings import LogFormat, LogLevel

Event = dict[str, object]
"""A line before it is text."""
Render = Callable[[Event], str]


class Logger:
    """Writes lines; the fields that it was made with are on each."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def debug(self, event: str, /, **fields: object) -> None:
        """What only one who looks for a fault wants to know."""
        _write(logging.DEBUG, event, {**self._fields, **fields})

    def info(self, event: str, /, **fields: object) -> None:
        """What happened as it should."""
        _write(logging.INFO, event, {**self._fields, **fields})

    def warning(self, event: str, /, **fields: object) -> None:
        """What an operator may want to look at."""
        _write(logging.WARNING, event, {**self._fields, **fields})

    def error(self, event: str, /, **fields: object) -> None:
        """What went wrong."""
        _write(logging.ERROR, event, {**self._fields, **fields})

    def exception(self, event: str, /, **fields: object) -> None:
        """What went wrong, with the exception that is being handled."""
        _write(logging.ERROR, event, {**self._fields, **fields, "exc_info": sys.exc_info()})


def configure(
    process: str, level: LogLevel = "info", log_format: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Set up logging of this process, once, before the first line.

    `process` (`core`, `text-queue`, ...) is on every line. Lines of other libraries (grpc, asyncio) come out the
    same way, with event `library_log`.
    """
    out = stream or sys.stderr
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    _lines.process = process
    _lines.level = logging.getLevelNamesMapping()[level.upper()]
    _lines.out = out
    _lines.render = _render_json if as_json else _readable(colors=out.isatty())
    _route_standard_library(_lines.level)


def get_logger(**fields: object) -> Logger:
    """A logger whose lines carry `fields`."""
    return Logger(fields)


class _Lines:
    """Which lines are written, how, and where; one for the process. Until `configure`: all, as JSON, on stderr."""

    def __init__(self) -> None:
        self.process = ""
        self.level = logging.DEBUG
        self.out: TextIO | None = None
        self.render: Render = _render_json


def _write(level: int, event: str, fields: Event) -> None:
    if level < _lines.level:
        return
    fields["event"] = event
    fields["level"] = logging.getLevelName(level).lower()
    fields.setdefault("process", _lines.process)
    fields["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    out = _lines.out or sys.stderr
    out.write(_lines.render(fields) + "\n")
    out.flush()


def _render_json(event: Event) -> str:
    raised = event.pop("exc_info", None)
    if isinstance(raised, tuple):
        event["exception"] = "".join(traceback.format_exception(*raised)).rstrip("\n")
    return msgspec.json.encode(event, enc_hook=repr).decode()


def _readable(*, colors: bool) -> Render:
    # For people only: importing it takes longer than all else that a process logs with.
    from structlog.dev import ConsoleRenderer

    renderer = ConsoleRenderer(colors=colors)
    return lambda event: str(renderer(None, "", event))


class _Library(logging.Handler):
    """Lines of other libraries."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it as a line of ours."""
        try:
            fields: Event = {"library": record.name, "message": record.getMessage()}
            if record.exc_info:
                fields["exc_info"] = record.exc_info
            _write(record.levelno, "library_log", fields)
        except Exception:  # a line that cannot be written is no fault of whoever writes it
            self.handleError(record)


def _route_standard_library(level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_Library()]
    # Other libraries' information is noise in a production log; their warnings are not.
    root.setLevel(logging.DEBUG if level == logging.DEBUG else max(logging.WARNING, level))


_lines = _Lines()
