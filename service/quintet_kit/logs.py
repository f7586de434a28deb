"""Structured logs on stderr: JSON lines for machines, readable lines at a terminal.

Every line has a stable `event` word, what happened in snake_case; everything that varies is a field. Payloads,
values and secrets are never logged.
"""

import logging
import sys
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from quintet_kit.settings import LogFormat, LogLevel

Logger = FilteringBoundLogger


def configure(
    process: str, level: LogLevel = "info", log_format: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Set up logging of this process, once, before the first line.

    `process` (`core`, `text-queue`, ...) is on every line. Lines of other libraries (grpc, asyncio) come out the
    same way, with event `library_log`.
    """
    out = stream or sys.stderr
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _NameProcess(process),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if as_json else _pass_on,
    ]
    renderer: Processor = _render_json if as_json else _readable(colors=out.isatty())
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    _route_standard_library(shared, renderer, out, level)


def get_logger(**fields: object) -> Logger:
    """A logger whose lines carry `fields`."""
    logger: Logger = structlog.get_logger(**fields)
    return logger


def _readable(*, colors: bool) -> Processor:
    # Without the values of variables: payloads are among them.
    formatter = structlog.dev.RichTracebackFormatter(show_locals=False)
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=formatter)


class _NameProcess:
    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("process", self._process)
        return event


def _pass_on(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return event


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()


def _library_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record: logging.LogRecord | None = event.get("_record")
    event["library"] = record.name if record else "unknown"
    event["message"] = event["event"]
    event["event"] = "library_log"
    return event


def _route_standard_library(shared: list[Processor], renderer: Processor, out: TextIO, level: LogLevel) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_library_event, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Other libraries' information is noise in a production log; their warnings are not.
    root.setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, logging.getLevelName(level.upper())))
