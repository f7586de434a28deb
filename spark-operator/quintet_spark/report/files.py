"""A text file where Spark writes: on this machine, in HDFS, in an object store."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write the file whole or not at all (as far as the file system moves files in one step), over what is there.

    Goes through Hadoop, as Spark's own writers do, and so knows the same addresses and credentials. Needs a session
    with a JVM of its own, not Spark Connect.
    """
    gateway: Any = spark.sparkContext._gateway
    hadoop = gateway.jvm.org.apache.hadoop.fs
    end, began = hadoop.Path(path), hadoop.Path(f"{path}.new")
    files = end.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    stream = files.create(began, True)
    try:
        # A page has a name with any character of Unicode in it, but halves of one cannot be written.
        stream.write(bytearray(text.encode("utf-8", "replace")))
    finally:
        stream.close()
    files.delete(end, False)
    if not files.rename(began, end):
        raise OSError(f"{path}: the new file could not be put there; it is left as {path}.new")
