"""A `quintet up` under a little load, a Spark driver that follows it, and a real Prometheus that looks at both."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.every_protocol import EveryProtocol
from tests.support.prometheus import Prometheus, configuration, running
from tests.support.up import Up, up


@dataclass(frozen=True, slots=True)
class Watched:
    """What Prometheus looks at, and Prometheus."""

    up: Up
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """One for all tests that only look. It yields when the driver has come to windows of its own."""
    folder = Path(tempfile.mkdtemp(prefix="quintet-eyes-"))
    try:
        with ExitStack() as stack:
            everything = stack.enter_context(up(folder / "data"))
            stack.enter_context(EveryProtocol(everything))
            spark = stack.enter_context(_driver(everything, folder))
            prometheus = stack.enter_context(running(configuration(everything, folder, spark, every_s=2)))
            prometheus.wait_scraped()
            for last in ("quintet_core_consumer_lag_records", "spark_streaming_eventTime_watermark > 0"):
                prometheus.wait_series(last)
            yield Watched(everything, prometheus)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _driver(everything: Up, folder: Path) -> Iterator[str]:
    """The rollup as a process, with its web interface; gives that one's address."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    interface = f"spark.ui.enabled=true,spark.ui.port={port},spark.port.maxRetries=0"
    command = [sys.executable, "-m", "quintet_spark", "rollup", "--memory", "512m", "--conf", interface]
    command += ["--endpoint", "{}:{}".format(*everything.address("core", "core-grpc")), "--lake", str(folder / "lake")]
    log = (folder / "spark.log").open("wb")
    with log, subprocess.Popen([*command, "--rollup-interval-s", "10"], stdout=log, stderr=log) as process:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
