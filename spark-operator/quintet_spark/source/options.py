"""What a reader may say: names, bounds and defaults of the source's options, all faults told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType
from quintet.v1 import event_service_pb2 as wire
from quintet_client.credentials import Credentials

from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.source.position import EARLIEST, LATEST, Position

EVENTS_LOG, METRICS_LOG = "events", "metrics"
STREAM, BATCH, ANY_KIND = "stream", "batch", ""
NAME_BYTES_MAX = 255
EVENTS_MAX = 1 << 53
RETRY_MS_MAX = 3_600_000

_ENDPOINT = re.compile(r"unix:.+|(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_WORDS = {"true": True, "false": False}


class OptionsError(ValueError):
    """Options are missing, unknown or out of bounds; the message tells of all of them, and of no secret."""


def _option(name: str, read: Callable[[str], Any], default: Any, **metadata: Any) -> Any:
    return field(default=default, metadata={"name": name, "read": read, **metadata})


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _name(text: str) -> str:
    if not 0 < len(text.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"must have 1 to {NAME_BYTES_MAX} bytes")
    return text


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    if found is None or (found[1] and not 0 < int(found[1]) < 1 << 16):
        raise ValueError("must be host:port, or unix:path")
    return text


def _log(text: str) -> str:
    if text.lower() not in (EVENTS_LOG, METRICS_LOG):
        raise ValueError(f"must be {EVENTS_LOG} or {METRICS_LOG}")
    return text.lower()


def _flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError("must be true or false")
    return _WORDS[text.lower()]


def _between(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


@dataclass(frozen=True, slots=True)
class Options:
    """Of one read. `events_max` and `consumer` are of streams, `end` is of batches."""

    endpoint: str = _option("endpoint", _endpoint, "", required=True)
    log: str = _option("stream", _log, EVENTS_LOG)
    start: Position = _option("start", Position.of_text, Position(word=EARLIEST))  # noqa: RUF009
    end: Position = _option("end", Position.of_text, Position(word=LATEST), only=BATCH)  # noqa: RUF009
    events_max: int = _option("maxEventsPerBatch", _between(1, EVENTS_MAX), 1_000_000, only=STREAM)
    split_events: int = _option("splitEvents", _between(1, EVENTS_MAX), 250_000)
    consumer: str = _option("consumer", _name, "", only=STREAM)
    namespace: str = _option("namespace", _name, "")
    carried: bool = _option("carried", _flag, True)
    fail_on_data_loss: bool = _option("failOnDataLoss", _flag, True)
    retry_ms: int = _option("retryMs", _between(0, RETRY_MS_MAX), 60_000)
    tls: bool = _option("tls", _flag, False)
    ca_file: str = _option("caFile", _text, "")
    cert_file: str = _option("certFile", _text, "")
    key_file: str = _option("keyFile", _text, "")
    server_name: str = _option("serverName", _text, "")
    token: str = _option("token", _text, "", secret=True)
    token_file: str = _option("tokenFile", _text, "")

    @classmethod
    def of(cls, told: Mapping[str, str], kind: str) -> Options:
        """Of a STREAM, a BATCH, or ANY_KIND of read; names are taken in any case of letters. Raises OptionsError."""
        known = {each.metadata["name"].lower(): each for each in fields(cls)}
        faults, read = list[str](), dict[str, Any]()
        for name, text in told.items():
            option = known.get(name.lower())
            if option is None:
                faults.append(f"{name}: there is no such option")
                continue
            only = option.metadata.get("only", kind)
            if kind and only != kind:
                faults.append(f"{option.metadata['name']}: is for a {only} only")
                continue
            try:
                read[option.name] = option.metadata["read"](text)
            except ValueError as fault:
                shown = "" if option.metadata.get("secret") else f" {text!r}"
                faults.append(f"{option.metadata['name']}{shown}: {fault}")
        faults += _contradictions(told)
        if faults:
            known_names = ", ".join(each.metadata["name"] for each in fields(cls))
            raise OptionsError(f"options of the quintet source: {'; '.join(faults)}. There are: {known_names}")
        return cls(**read)

    @property
    def schema(self) -> StructType:
        """Every column that there is."""
        return METRICS if self.log == METRICS_LOG else EVENTS

    @property
    def wire_log(self) -> wire.Log.ValueType:
        """The log as requests name it."""
        return wire.LOG_METRICS if self.log == METRICS_LOG else wire.LOG_EVENTS

    def credentials(self) -> Credentials:
        """With the files as they are now, on this machine. Raises OSError."""
        return Credentials(
            root_certificates=_content(self.ca_file),
            private_key=_content(self.key_file),
            certificate_chain=_content(self.cert_file),
            tls=self.tls,
            token=self.token,
            token_path=Path(self.token_file) if self.token_file else None,
            server_name=self.server_name,
        )

    def __repr__(self) -> str:
        return f"Options(endpoint={self.endpoint!r}, log={self.log!r}, consumer={self.consumer!r})"


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def _contradictions(told: Mapping[str, str]) -> list[str]:
    given = {name.lower() for name in told}
    faults = []
    if "endpoint" not in given:
        faults.append("endpoint: is missing")
    if {"token", "tokenfile"} <= given:
        faults.append("token and tokenFile: give one of them")
    if len({"certfile", "keyfile"} & given) == 1:
        faults.append("certFile and keyFile: give both or none")
    encrypted = "cafile" in given or _is_true(told, "tls")
    if not encrypted and {"certfile", "keyfile", "servername"} & given:
        faults.append("certFile, keyFile and serverName: are for TLS: give caFile, or tls=true")
    return faults


def _is_true(told: Mapping[str, str], name: str) -> bool:
    """Whether a flag is set, in any case of letters."""
    return any(key.lower() == name and text.lower() == "true" for key, text in told.items())


def checked_schema(wanted: StructType, options: Options) -> StructType:
    """`wanted` when each of its columns is one of the log's. Raises OptionsError that tells of all that are not."""
    known = {column.name: column.dataType for column in options.schema}
    faults = []
    for column in wanted:
        if column.name not in known:
            faults.append(f"{column.name}: there is no such column in {options.log}")
        elif column.dataType != known[column.name]:
            faults.append(
                f"{column.name}: is {known[column.name].simpleString()}, not {column.dataType.simpleString()}"
            )
    if len(set(wanted.names)) != len(wanted.names):
        faults.append("a column is named twice")
    if not len(wanted):
        faults.append("at least one column is needed")
    if faults:
        raise OptionsError(f"schema of the quintet source: {'; '.join(faults)}. There are: {', '.join(known)}")
    return wanted
