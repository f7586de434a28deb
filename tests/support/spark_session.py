"""A local Spark session: two threads, loopback only, all files in one folder; and its end, with no process left."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from quintet_spark.jobs.session import end_session
from quintet_spark.workers import WORKER_CONF

END_SECONDS_MAX = 60


@contextmanager
def local_session(folder: Path, **settings: str) -> Iterator[SparkSession]:
    """One session, with `settings` ("spark__ui__enabled" for spark.ui.enabled) beyond the usual.

    Raises RuntimeError when there is no Java. There can be one session at a time in a process.
    """
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        raise RuntimeError("Spark needs Java 17: there is no `java` on the path, and JAVA_HOME is not set")
    # The daemon of Python workers, and what plans for a data source, run what this names.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("quintet-tests")
    for name, value in (_usual(folder) | {name.replace("__", "."): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        end_session(session, END_SECONDS_MAX)


def _usual(folder: Path) -> dict[str, str]:
    return {
        **WORKER_CONF,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "60s",
        # To plan anew as rows come is for more rows than these; drivers that tests start do it.
        "spark.sql.adaptive.enabled": "false",
    }
