"""What the core can be told, all of it, from the environment."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from quintet_kit.settings import Milliseconds, Port, ProcessSettings

from quintet_core.domain.limits import DAY_MS, LABEL_BYTES_FORMAT_MAX, TEXT_BYTES_FORMAT_MAX, Limits

_SOCKET_PATH_BYTES_MAX = 107
_SCHEMES = ("redis://", "rediss://", "unix://")


def _checked_url(url: str) -> str:
    if not url.startswith(_SCHEMES):
        raise ValueError("must be a URL that begins with redis://, rediss:// or unix://")
    return url


def _readable(path: Path) -> Path:
    if not (path.is_file() and os.access(path, os.R_OK)):
        raise ValueError("must be a readable file")
    return path


RedisUrl = Annotated[str, AfterValidator(_checked_url)]
ReadableFile = Annotated[Path, AfterValidator(_readable)]


_LIMITS = Limits()


def _limit(name: str, least: int, most: int, description: str) -> Any:
    """A bound of requests, with the default that it has without settings."""
    return Field(getattr(_LIMITS, name), ge=least, le=most, description=description)


class CoreSettings(ProcessSettings):
    """The core, `python -m quintet_core`."""

    redis_url: RedisUrl = Field(
        "redis://127.0.0.1:6379/0",
        description="The Redis that holds all state: redis://, rediss:// (TLS) or unix:///path?db=0.",
    )
    redis_password: SecretStr = Field(SecretStr(""), description="Password for Redis, in place of one in the URL.")
    redis_username: str = Field("", description="ACL user for Redis, in place of one in the URL.")
    redis_ca_file: ReadableFile | None = Field(
        None, description="PEM file of who may have signed Redis's certificate; the system's list when not given."
    )
    redis_cert_file: ReadableFile | None = Field(None, description="PEM certificate shown to Redis.")
    redis_key_file: ReadableFile | None = Field(None, description="PEM key of that certificate.")
    redis_timeout_ms: int = Field(
        5000, ge=100, le=60_000, description="Silence of Redis after which its connection is given up."
    )
    partitions: int = Field(
        16, ge=1, le=1024, description="Parts that all state is split into. Fixed at the first start on a Redis."
    )

    core_socket: Path | None = Field(
        None, description="Unix socket to listen on. Whoever can open the file may do everything."
    )
    core_socket_mode: Literal["0600", "0660", "0666"] = Field("0600", description="Mode of that file.")
    core_tcp: bool = Field(True, description="Listen on TCP as well; 0 needs QUINTET_CORE_SOCKET.")
    core_host: str = Field("127.0.0.1", description="Address of the TCP listener.")
    core_port: Port = Field(50051, description="Port of the TCP listener.")
    tls_cert_file: ReadableFile | None = Field(None, description="PEM certificate (chain) of the TCP listener.")
    tls_key_file: ReadableFile | None = Field(None, description="PEM key of that certificate.")
    tls_client_ca_file: ReadableFile | None = Field(
        None, description="PEM file of who signs clients' certificates; with it clients must show one."
    )
    tokens_file: ReadableFile | None = Field(
        None,
        description="TOML file of bearer tokens with namespaces and verbs, asked for on TCP; read anew on change.",
    )

    calls_max: int = Field(
        20_000, ge=1, le=1_000_000, description="Calls and streams that each listener serves at once."
    )
    session_ttl_ms: int = Field(
        10_000, ge=500, le=3_600_000, description="How long a session and its leases outlive its last heartbeat."
    )
    session_in_flight_max: int = Field(
        10_000, ge=1, le=100_000, description="Operations in flight on a session, beyond which it is not read."
    )
    payload_bytes_max: int = _limit("payload_bytes_max", 0, 32 << 20, "Largest payload of a job, and value of a row.")
    batch_jobs_max: int = _limit("batch_jobs_max", 1, 1000, "Most jobs in one enqueue or dequeue.")
    batch_bytes_max: int = _limit(
        "batch_bytes_max",
        1,
        48 << 20,
        "Most payload bytes in one enqueue of several jobs, or value bytes in one write of several rows.",
    )
    batch_rows_max: int = _limit("batch_rows_max", 1, 1000, "Most rows in one write_rows.")
    redrive_ids_max: int = _limit("redrive_ids_max", 1, 10_000, "Most ids that one redrive names.")
    queues_per_dequeue_max: int = _limit("queues_per_dequeue_max", 1, 10_000, "Most queues that one dequeue names.")
    tables_per_watch_max: int = _limit("tables_per_watch_max", 1, 10_000, "Most tables that one watch names.")
    wait_ms_max: int = _limit(
        "wait_ms_max", 0, 2**32 - 1, "Longest wait that a dequeue may ask for, other than without end."
    )
    lease_ms_max: int = _limit("lease_ms_max", 1000, 3650 * DAY_MS, "Longest lease, backoff and deduplication window.")
    delay_ms_max: int = _limit(
        "delay_ms_max", 1000, 36_525 * DAY_MS, "Longest delay, time to live and pause that has an end."
    )
    name_bytes_max: int = _limit(
        "name_bytes_max", 1, TEXT_BYTES_FORMAT_MAX, "Longest name of a queue or table, in UTF-8."
    )
    namespace_bytes_max: int = _limit("namespace_bytes_max", 1, LABEL_BYTES_FORMAT_MAX, "Longest name of a namespace.")
    label_bytes_max: int = _limit(
        "label_bytes_max",
        1,
        LABEL_BYTES_FORMAT_MAX,
        "Longest content type, deduplication key, and label of a worker, client or consumer.",
    )
    key_bytes_max: int = _limit("key_bytes_max", 1, TEXT_BYTES_FORMAT_MAX, "Longest key of a row.")
    failure_reason_bytes_max: int = _limit(
        "failure_reason_bytes_max", 0, TEXT_BYTES_FORMAT_MAX, "Longest reason of a release."
    )
    attributes_max: int = _limit("attributes_max", 0, 1000, "Most attributes of a job.")
    attributes_bytes_max: int = _limit(
        "attributes_bytes_max", 0, TEXT_BYTES_FORMAT_MAX, "Most bytes of a job's attributes, names and values."
    )
    page_max: int = _limit("page_max", 1, 10_000, "Most entries on a page of a list or scan.")
    events_per_read_max: int = _limit("events_per_read_max", 1, 100_000, "Most events in one read of the log.")
    owners_max: int = _limit("owners_max", 1, 10_000_000, "Owners that one session has open at once.")
    parked_max: int = _limit("parked_max", 0, 10_000_000, "Dequeues that wait at once.")
    awaiting_max: int = _limit("awaiting_max", 0, 10_000_000, "Calls of await_jobs that wait at once.")
    event_subscriptions_max: int = _limit(
        "event_subscriptions_max", 0, 100_000, "Subscriptions to events that run at once."
    )
    metrics_streams_max: int = _limit("metrics_streams_max", 0, 100_000, "Streams of snapshots that run at once.")
    block_streams_max: int = _limit(
        "block_streams_max", 0, 100_000, "Reads of a log in blocks that run at once; each holds about 2 MiB."
    )
    consumers_max: int = _limit("consumers_max", 0, 10_000, "Named consumers of each log.")
    namespaces_max: int = _limit("namespaces_max", 0, 100_000, "Namespaces that have settings of their own.")
    watches_max: int = _limit("watches_max", 0, 100_000, "Watches of rows that run at once.")
    queued_operations_max: int = _limit(
        "queued_operations_max", 1, 10_000_000, "Operations that wait at once to be sent to Redis."
    )
    queued_bytes_max: int = _limit("queued_bytes_max", 1 << 20, 16 << 30, "Bytes of operations that wait so.")
    events_tail: int = Field(
        1000,
        ge=0,
        le=10_000_000,
        description="Events that each partition keeps, however old, when no consumer needs them.",
    )
    events_keep_ms: int = Field(
        60_000,
        ge=0,
        le=604_800_000,
        description="Events younger than that stay, needed or not, so that whoever follows them may be away so long.",
    )
    events_cap: int = Field(
        1_000_000, ge=1000, le=1_000_000_000, description="Events that each partition keeps at most, needed or not."
    )
    metrics_tail: int = Field(
        1000,
        ge=0,
        le=10_000_000,
        description="Snapshots that each partition keeps, however old, when no consumer needs them.",
    )
    metrics_keep_ms: int = Field(
        600_000, ge=0, le=604_800_000, description="Snapshots younger than that stay, needed or not."
    )
    metrics_cap: int = Field(
        200_000, ge=1000, le=1_000_000_000, description="Snapshots that each partition keeps at most, needed or not."
    )

    snapshot_interval_ms: int = Field(
        1000,
        ge=0,
        le=3_600_000,
        description="How often a snapshot of each queue, table and process is written, by some core; 0: never.",
    )
    snapshot_queues_max: int = Field(
        250,
        ge=1,
        le=100_000,
        description="Queues and tables of each partition whose snapshots are written in one interval; others wait for"
        " the next.",
    )
    metrics_series_queues_max: int = Field(
        200,
        ge=0,
        le=100_000,
        description="Queues and tables that /metrics has series of: the fullest and the busiest.",
    )

    allow_weak_durability: bool = Field(
        False, description="Serve although Redis does not write every change to disk before it answers."
    )
    metrics_port: Port = Field(9100, description="Port of /metrics, /healthz and /readyz.")
    drain_grace_ms: Milliseconds = Field(
        15_000, description="How long what is in flight may take to finish when the core stops."
    )

    @field_validator("core_socket")
    @classmethod
    def _check_socket(cls, path: Path | None) -> Path | None:
        if path is not None and len(os.fsencode(path.absolute())) > _SOCKET_PATH_BYTES_MAX:
            raise ValueError(f"must be a path of at most {_SOCKET_PATH_BYTES_MAX} bytes")
        return path.absolute() if path is not None else None

    @field_validator("core_tcp")
    @classmethod
    def _check_listener(cls, tcp: bool, info: ValidationInfo) -> bool:
        if not tcp and info.data.get("core_socket") is None:
            raise ValueError("must be 1 where QUINTET_CORE_SOCKET is not set, or nobody could reach the core")
        return tcp

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        for one, other in (
            ("tls_cert_file", "tls_key_file"),
            ("redis_cert_file", "redis_key_file"),
        ):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"QUINTET_{one.upper()} and QUINTET_{other.upper()} must be set together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("QUINTET_TLS_CLIENT_CA_FILE needs QUINTET_TLS_CERT_FILE")
        return self

    @property
    def limits(self) -> Limits:
        """The bounds of requests."""
        return Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)})
