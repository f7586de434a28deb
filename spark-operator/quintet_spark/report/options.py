"""What a report is measured against, and how much of it is shown."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class ReportOptions:
    """Targets and bounds of a report. Raises ValueError when one of them makes no sense.

    target_wait_ms: how long a job may be ready before it is delivered.
    target_share: the share of deliveries, 0 to 1, that must be within it.
    poison_deliveries: a job delivered this often is poison; so is every job that died.
    length_max: the length of a queue that the forecast warns of; None: of no length.
    forecast_window_ms: how far back from the newest snapshot the forecast looks.
    alarm_within_ms: a queue that reaches length_max sooner than this needs action.
    queues_shown: queues of each table of the page; the rest is summed up in one row. The Parquet tables hold all.
    jobs_shown: poison jobs of the page.
    poison_jobs_max: poison jobs of the Parquet table, the worst ones.
    """

    target_wait_ms: int = 1_000
    target_share: float = 0.99
    poison_deliveries: int = 5
    length_max: int | None = None
    forecast_window_ms: int = 24 * HOUR_MS
    alarm_within_ms: int = 7 * 24 * HOUR_MS
    queues_shown: int = 20
    jobs_shown: int = 20
    poison_jobs_max: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.target_share <= 1:
            raise ValueError(f"target_share is {self.target_share}, not within 0 (exclusive) to 1")
        for name in (
            "target_wait_ms",
            "poison_deliveries",
            "length_max",
            "forecast_window_ms",
            "alarm_within_ms",
            "queues_shown",
            "jobs_shown",
            "poison_jobs_max",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, not at least 1")
