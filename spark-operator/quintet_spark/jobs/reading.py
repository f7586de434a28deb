"""The logs of a core as streams."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from quintet_spark.jobs.settings import CoreSettings, StreamSettings

EVENTS_MAX = 1 << 53
"""Everything that there is, in one batch."""


def connection(settings: CoreSettings) -> dict[str, str]:
    """Options of the source that say where the core is and who asks."""
    named = {
        "endpoint": settings.spark_endpoint,
        "caFile": settings.spark_ca_file,
        "certFile": settings.spark_cert_file,
        "keyFile": settings.spark_key_file,
        "serverName": settings.spark_server_name,
        "tokenFile": settings.spark_token_file,
    }
    told = {name: str(value) for name, value in named.items() if value}
    return told | ({"tls": "true"} if settings.spark_tls else {})


def log_stream(
    spark: SparkSession,
    settings: StreamSettings,
    log: str,
    *,
    consumer: str,
    events_max: int,
    schema: StructType | None = None,
) -> DataFrame:
    """A log (events, metrics) from where the checkpoint says, else from `spark_start`; of `schema` the columns."""
    options = connection(settings) | {
        "stream": log,
        "consumer": consumer,
        "start": settings.spark_start,
        "maxEventsPerBatch": str(events_max),
        "retryMs": str(settings.spark_retry_ms),
        "failOnDataLoss": "false" if settings.spark_data_loss_allowed else "true",
    }
    if settings.spark_namespace:
        options["namespace"] = settings.spark_namespace
    reader = spark.readStream.format("quintet").options(**options)
    if schema is not None:
        reader = reader.schema(schema).option("carried", str("payload" in schema.names).lower())
    return reader.load()
