"""Every bound of the core that a request can meet, in one place."""

from __future__ import annotations

from dataclasses import dataclass

NAME_BYTES_MAX = 4096
NAMESPACE_BYTES_MAX = 255
KEY_BYTES_MAX = 4096
LABEL_BYTES_MAX = 255
FAILURE_REASON_BYTES_MAX = 1024
ATTRIBUTES_MAX = 64
ATTRIBUTES_BYTES_MAX = 4096
DAY_MS = 86_400_000
LEASE_MS_MAX = 365 * DAY_MS
DELAY_MS_MAX = 36_525 * DAY_MS
ATTEMPTS_MAX = 2**31 - 1
PAGE_MAX = 1000
PAGE_DEFAULT = 100
DEDUPLICATION_WINDOW_MS_DEFAULT = 300_000
SEQUENCE_MAX = 2**53


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that are settings."""

    payload_bytes_max: int = 4 * 1024 * 1024
    batch_jobs_max: int = 100
    batch_bytes_max: int = 8 * 1024 * 1024
    queues_per_dequeue_max: int = 1000
    wait_ms_max: int = 2**32 - 1
    batch_rows_max: int = 100
