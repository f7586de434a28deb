"""The process that Spark forks Python workers from, with what they import imported before.

Where `spark.python.daemon.module` names this module, Spark starts `python -m quintet_spark.workers pyspark.worker` to
fork them from. Its own daemon imports nothing for them, and each worker then imports for half a second. Nothing that is
imported here may start a thread: a fork would not have it. WORKER_CONF sees to that, too.
"""

from __future__ import annotations

import gc
import importlib
import sys

WORKER_CONF = {
    "spark.python.daemon.module": "quintet_spark.workers",
    # Threads that numpy and pyarrow start when they are imported, and that the source has no work for. Set for all of
    # Spark's Python processes, those beside the driver too.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.executorEnv.JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""What a session is started with whose executors have this package; it is too late for it in one that runs."""


def main() -> None:
    """Forks workers, of the module that Spark names, until Spark ends it."""
    from pyspark.daemon import manager

    importlib.import_module(sys.argv[1])
    importlib.import_module("quintet_spark.source.reading")
    # Workers share these pages as long as no collection writes to them.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
