"""What Spark's Python workers import, and the process that they are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quintet_spark.workers import WORKER_CONF

MODULE = WORKER_CONF["spark.python.daemon.module"]
PORT_BYTES = 4


def imported_with(module: str) -> set[str]:
    """The modules of a fresh process that imports this one."""
    code = f"import sys, {module}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(told.stdout.split())


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("quintet_spark.source", {"pandas", "pyarrow", "numpy"}),
        ("quintet_spark.source.reading", {"pandas"}),
        (MODULE, {"pyspark", "grpc"}),
    ],
)
def test_a_process_imports_no_more_than_it_uses(module: str, spared: set[str]) -> None:
    assert not imported_with(module) & spared


def test_workers_are_forked_from_one_thread_that_has_imported_what_they_read_with() -> None:
    variables = {
        name.removeprefix("spark.executorEnv."): value
        for name, value in WORKER_CONF.items()
        if name.startswith("spark.executorEnv.")
    }
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert len(process.stdout.read(PORT_BYTES)) == PORT_BYTES
            about = Path("/proc", str(process.pid))
            assert len(list((about / "task").iterdir())) == 1
            mapped = (about / "maps").read_text()
            assert all(name in mapped for name in ("/numpy/", "/pyarrow/", "/grpc/"))
            # Spark ends it by this.
            process.stdin.close()
            process.wait()
        finally:
            process.kill()
