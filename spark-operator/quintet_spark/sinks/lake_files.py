"""Files of the lake through Hadoop's file systems: local disks, HDFS, object stores, whatever Spark itself can reach.

Lists come in one call however long they are: each call to the JVM costs a round trip.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class LakeFiles:
    """What is below one path, a URI or a local path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._system = self._root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def names(self, folder: str = "") -> list[str]:
        """Names of what is in a folder, none when there is no such folder."""
        path = self._path(folder)
        if not self._system.exists(path):
            return []
        return [each.rpartition("/")[2] for each in self._lines(self._system.listStatus(path))]

    def matching(self, pattern: str) -> list[str]:
        """Paths below the root that match a glob, as URIs."""
        found = self._system.globStatus(self._path(pattern))
        return [] if found is None else self._lines(found)

    def text(self, name: str) -> str:
        """The content of a text file."""
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def delete(self, uri: str) -> bool:
        """Remove one file, named as `matching` does; False when it is gone already."""
        return bool(self._system.delete(self._jvm.org.apache.hadoop.fs.Path(uri), False))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def _lines(self, statuses: Any) -> list[str]:
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(statuses)
        # Spark escapes control characters in folder names, so a line end separates.
        joined = str(self._jvm.scala.collection.mutable.ArraySeq.make(paths).mkString("\n"))
        return joined.split("\n") if joined else []
