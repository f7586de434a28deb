"""The sink of a name."""

from __future__ import annotations

from typing import Literal

from quintet_spark.sinks.parquet import ParquetSink
from quintet_spark.sinks.sink import Place, Sink
from quintet_spark.sinks.table_formats import DELTA, ICEBERG, TableFormatSink

SinkName = Literal["parquet", "delta", "iceberg"]


def opened(name: SinkName, place: Place) -> Sink:
    """The sink; nothing is touched, and packages are not looked for, before it is used."""
    match name:
        case "parquet":
            return ParquetSink(place)
        case "delta":
            return TableFormatSink(DELTA, place)
        case "iceberg":
            return TableFormatSink(ICEBERG, place)
