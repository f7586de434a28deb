"""What the jobs can be told, by environment or by their options. Nothing of Spark is imported here."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from quintet_kit.settings import CommaSeparated, LogFormat, LogLevel, Milliseconds, Settings


class SparkSettings(Settings):
    """Every job: where the lake is and which Spark does the work."""

    spark_lake: str = Field(
        "lake", min_length=1, description="Folder of the lake, a path or an address that Spark can write to."
    )
    spark_sink: Literal["parquet", "delta", "iceberg"] = Field(
        "parquet", description="What the lake's tables are; delta and iceberg need their packages in Spark."
    )
    spark_master: str = Field(
        "", description="Spark's master; empty: what spark-submit says, else local[*], all cores of this machine."
    )
    spark_conf: CommaSeparated = Field(
        (), description="More of Spark's own configuration, `name=value,name=value`; it wins over what jobs set."
    )
    spark_memory: str = Field(
        "1g", pattern=r"^[1-9][0-9]*[mg]$", description="Memory of a driver that is started here, `512m`, `2g`."
    )
    log_level: LogLevel = Field("info", description="Least severe log line that is written.")
    log_format: LogFormat = Field("auto", description="As for every process.")

    @field_validator("spark_conf")
    @classmethod
    def _are_pairs(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        if any("=" not in pair or pair.startswith("=") for pair in pairs):
            raise ValueError("a list `name=value,name=value`")
        return pairs


class CoreSettings(SparkSettings):
    """Jobs that speak to a core: where it is, and who they are."""

    spark_endpoint: str = Field("127.0.0.1:50051", min_length=1, description="The core: host:port or unix:/path.")
    spark_tls: bool = Field(False, description="Use TLS, trusting the system's certificates.")
    spark_ca_file: Path | None = Field(None, description="Certificates (PEM) to trust; turns TLS on.")
    spark_cert_file: Path | None = Field(None, description="Certificate (PEM), for mutual TLS.")
    spark_key_file: Path | None = Field(None, description="The key of that certificate.")
    spark_server_name: str = Field("", description="Name in the core's certificate, when it is not the endpoint's.")
    spark_token_file: Path | None = Field(
        None, description="File of the bearer token; read anew for every connection, on every machine that reads."
    )

    @model_validator(mode="after")
    def _files_are_there(self) -> Self:
        names = ("spark_ca_file", "spark_cert_file", "spark_key_file", "spark_token_file")
        faults = [
            f"QUINTET_{name.upper()}: value {str(path)!r}, must be a readable file"
            for name in names
            if (path := getattr(self, name)) is not None and not path.is_file()
        ]
        if (self.spark_cert_file is None) != (self.spark_key_file is None):
            faults.append("QUINTET_SPARK_CERT_FILE and QUINTET_SPARK_KEY_FILE: must be given both, or neither")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class StreamSettings(CoreSettings):
    """The streaming jobs, archive and rollup."""

    spark_once: bool = Field(False, description="Do everything that is there now, then end.")
    spark_start: str = Field(
        "earliest", min_length=1, description="Where a job without a checkpoint begins: as the source's option `start`."
    )
    spark_namespace: str = Field("", description="Only this namespace; empty: all that the token may see.")
    spark_data_loss_allowed: bool = Field(
        False, description="Go on behind what the log no longer holds, with a warning, instead of ending."
    )
    spark_retry_ms: Milliseconds = Field(
        60_000, le=3_600_000, description="How long a core may be away before a job ends with an error."
    )
    spark_stop_ms_max: Milliseconds = Field(
        30_000, description="How long a stop waits for the batch under way; it is done anew at the next start if not."
    )
    spark_archive_interval_s: float = Field(
        30, ge=0, description="Between batches of the archive. Each batch makes files: shorter, and there are more."
    )
    spark_archive_events_max: int = Field(
        10_000_000,
        ge=1,
        le=1 << 53,
        description="Records of one batch of the archive at most: with the interval, how fast it can catch up.",
    )
    spark_archive_files: int = Field(
        0, ge=0, le=1000, description="Files of a batch in each folder at most; 0: as many as Spark has cores."
    )
    spark_rollup_interval_s: float = Field(10, ge=0, description="Between batches of the rollup.")
    spark_rollup_window_s: int = Field(
        60, ge=1, le=86_400, description="Length of a window. Fixed for a lake: another one needs another checkpoint."
    )
    spark_rollup_late_ms: Milliseconds = Field(
        30_000, description="How much later than the newest record another may be read and still count."
    )


class ReportSettings(SparkSettings):
    """The report. Without a range of days it is about everything in the lake."""

    spark_report: str = Field("", description="Folder of the report; empty: `report` in the lake.")
    spark_report_from: date | None = Field(None, description="First day (UTC), YYYY-MM-DD.")
    spark_report_through: date | None = Field(None, description="Last day (UTC), YYYY-MM-DD.")
    spark_report_days: int | None = Field(
        None, ge=1, le=36_500, description="Only the newest so many days (UTC), today included; not with a first day."
    )
    spark_report_target_wait_ms: int = Field(1_000, ge=1, description="How long a job may be ready before it is taken.")
    spark_report_target_share: float = Field(
        0.99, gt=0, le=1, description="The share of deliveries that must be within it."
    )
    spark_report_length_max: int | None = Field(
        None, ge=1, description="The length of a queue that the forecast warns of."
    )

    @model_validator(mode="after")
    def _days_are_in_order(self) -> Self:
        begin, end = self.spark_report_from, self.spark_report_through
        if begin is not None and self.spark_report_days is not None:
            raise ValueError("QUINTET_SPARK_REPORT_DAYS and QUINTET_SPARK_REPORT_FROM: give one of them")
        if begin is not None and end is not None and begin > end:
            raise ValueError(f"QUINTET_SPARK_REPORT_FROM: value '{begin}', must be no later than the last day, {end}")
        return self


class RestoreSettings(CoreSettings):
    """The restore of a table."""

    spark_namespace: str = Field("default", description="Namespace of the table.")
    spark_into_namespace: str = Field("", description="Namespace to write to; empty: that of the table.")
    spark_existing: Literal["refuse", "merge", "replace"] = Field(
        "refuse",
        description="A table to write to that has rows: refuse; merge, over its rows; replace, after deleting it.",
    )
    spark_ttl: Literal["absolute", "remaining", "none"] = Field(
        "absolute",
        description="Rows with a deadline: keep it (those whose time has passed stay away); have as long to live as "
        "they had then; or live until deleted.",
    )
    spark_missing_allowed: bool = Field(
        False, description="Restore what can be restored when the archive does not hold all of it."
    )
