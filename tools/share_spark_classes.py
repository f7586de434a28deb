"""Make an archive of the classes that Spark's JVM loads, for the JVMs that tests start (tests/conftest.py): each then
takes about half as long to have them ready.

    python tools/share_spark_classes.py FILE
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from quintet_spark.jobs.session import end_session

END_SECONDS_MAX = 300
"""Writing the archive takes the JVM as long as all before."""


def use_spark(spark: SparkSession, folder: str) -> None:
    """What jobs do most: streams with and without state into Parquet, and sums of what lies there."""
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    counted = rates.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 second"))
    for name, frame in (("plain", rates), ("counted", counted.agg(F.count("value").alias("count")).select("count"))):
        writer = frame.coalesce(1).writeStream.format("parquet").trigger(availableNow=True).queryName(name)
        query = writer.option("path", f"{folder}/{name}").option("checkpointLocation", f"{folder}/of-{name}").start()
        query.awaitTermination()
    found = spark.read.schema("timestamp timestamp, value long").parquet(f"{folder}/plain")
    found.groupBy("timestamp").agg(F.sum("value"), F.percentile_approx("value", 0.5)).orderBy("timestamp").collect()


def main() -> None:
    """Write the archive: the JVM does it as it ends."""
    archive = Path(sys.argv[1]).resolve()
    made = archive.with_suffix(".made")
    # Options of the JVM that runs Spark alone; the one that starts it would write an archive of its own.
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={made} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ["SPARK_SUBMIT_OPTS"] += " -Xlog:disable"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "1",
            "spark.local.dir": folder,
        }
        spark = SparkSession.builder.master("local[1]").appName("classes").config(map=settings).getOrCreate()
        use_spark(spark, folder)
        end_session(spark, END_SECONDS_MAX)
    made.replace(archive)


if __name__ == "__main__":
    main()
