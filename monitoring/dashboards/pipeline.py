"""The logs and who follows them: consumers, and the Spark jobs of the pipeline."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from monitoring.dashboards.frame import HERE, Panels, frame, with_rows
from monitoring.dashboards.panels import (
    BYTES,
    COUNT,
    RATE,
    RATIO,
    SECONDS,
    Limits,
    Query,
    lines,
    number,
)

MEMBER = "{{instance}} {{executor_id}}"


def dashboard() -> Dashboard:
    """From the logs to the lake."""
    about = (
        "The event log and the metrics log, their consumers, and the Spark jobs that archive and roll them up. "
        "Series of Spark are there while its drivers are scraped."
    )
    rows = [("Logs", _logs()), ("Spark: streams", _streams()), ("Spark: processes", _processes())]
    return with_rows(frame("quintet-pipeline", "Quintet: pipeline", about), rows)


def _logs() -> Panels:
    return [
        number(
            "Fullest log",
            "How full the fullest partition's log is, of its cap.",
            RATIO,
            Query(f"max(quintet_core_log_cap_ratio{{{HERE}}})"),
            width=6,
            limits=Limits(0.8, 0.98),
            alert="QuintetLogCapNear",
        ),
        number(
            "Furthest behind",
            "Records that the slowest consumer has not committed.",
            COUNT,
            Query(f"max(quintet_core_consumer_lag_records{{{HERE}}}) or vector(0)"),
            width=6,
            limits=Limits(1e6),
            alert="QuintetConsumerLagging",
        ),
        number(
            "Lost",
            "Times that the cap cut what a consumer still wanted, in the time shown.",
            COUNT,
            Query(
                f"sum(increase(quintet_core_events_dropped_total{{{HERE}}}[$__range]))"
                f" + sum(increase(quintet_core_snapshots_dropped_total{{{HERE}}}[$__range]))"
            ),
            width=6,
            limits=Limits(red=1),
            alert="QuintetEventsDropped",
        ),
        number(
            "Newest snapshot",
            "How old the newest snapshot of queues and tables is.",
            SECONDS,
            Query(f"min(quintet_core_snapshot_age_seconds{{{HERE}}})"),
            width=6,
            limits=Limits(10, 30),
            alert="QuintetSnapshotsStale",
        ),
        lines(
            "Behind",
            "Records that each consumer has not committed, of all partitions.",
            COUNT,
            Query(
                f"max by (installation, log, consumer) (quintet_core_consumer_lag_records{{{HERE}}})",
                "{{log}} {{consumer}}",
            ),
            limits=Limits(red=1e6),
            alert="QuintetConsumerLagging",
        ),
        lines(
            "Kept",
            "Records that each log holds, in the partition that holds most.",
            COUNT,
            Query(f"max by (log) (quintet_core_log_records{{{HERE}}})", "{{log}}"),
        ),
        lines(
            "Share of the cap",
            "At the cap the oldest records go, whether or not their consumers have them.",
            RATIO,
            Query(f"max by (log) (quintet_core_log_cap_ratio{{{HERE}}})", "{{log}}"),
            limits=Limits(0.8, 0.98),
            alert="QuintetLogCapNear",
        ),
        lines(
            "Written and read",
            "Events that happen, beside the rows that each stream of Spark takes in.",
            RATE,
            Query(
                f"sum(max by (installation, kind) (rate(quintet_core_events_total{{{HERE}}}[$__rate_interval])))",
                "events",
            ),
            Query(f"max by (query) (spark_streaming_inputRate_total{{{HERE}}})", "{{query}} reads"),
            width=24,
        ),
    ]


def _streams() -> Panels:
    return [
        lines(
            "Rows in and through",
            "Rows that come in, and that the stream could take at its pace. It keeps up while the second is higher.",
            RATE,
            Query(f"max by (query) (spark_streaming_inputRate_total{{{HERE}}})", "{{query}} in"),
            Query(f"max by (query) (spark_streaming_processingRate_total{{{HERE}}})", "{{query}} could"),
        ),
        lines(
            "Time of a batch",
            "How long the last batch of each stream took.",
            SECONDS,
            Query(f"max by (query) (spark_streaming_latency{{{HERE}}}) / 1000", "{{query}}"),
        ),
        lines(
            "Behind the events",
            "How long ago it was where the watermark stands: what is older is late.",
            SECONDS,
            Query(
                f"time() - (max by (query) (spark_streaming_eventTime_watermark{{{HERE}}}) > 0) / 1000",
                "{{query}}",
            ),
        ),
        lines(
            "Rows of state",
            "What a stream keeps between batches: open windows of the rollup.",
            COUNT,
            Query(f"max by (query) (spark_streaming_states_rowsTotal{{{HERE}}})", "{{query}}"),
            width=12,
        ),
        lines(
            "Bytes of state",
            "In the memory of the executors.",
            BYTES,
            Query(f"max by (query) (spark_streaming_states_usedBytes{{{HERE}}})", "{{query}}"),
            width=12,
        ),
    ]


def _processes() -> Panels:
    return [
        lines(
            "Tasks",
            "Tasks that run now, by executor (of a local run, the driver), and those that failed in five minutes.",
            COUNT,
            Query(f"metrics_executor_activeTasks{{{HERE}}}", f"{MEMBER} run"),
            Query(f"increase(metrics_executor_failedTasks_total{{{HERE}}}[5m]) > 0", f"{MEMBER} failed"),
        ),
        lines(
            "Heap",
            "Heap of the JVM in use, at its highest between two looks of Spark.",
            BYTES,
            Query(f"metrics_executor_JVMHeapMemory_bytes{{{HERE}}}", MEMBER),
        ),
        lines(
            "Collecting garbage",
            "Share of the time of tasks that went to it.",
            RATIO,
            Query(
                f"rate(metrics_executor_totalGCTime_seconds_total{{{HERE}}}[$__rate_interval])"
                f" / (rate(metrics_executor_totalDuration_seconds_total{{{HERE}}}[$__rate_interval]) > 0)",
                MEMBER,
            ),
        ),
    ]
