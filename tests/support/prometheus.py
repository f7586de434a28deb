"""A real Prometheus with the configuration and rules of monitoring/, on a free port."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.support.monitoring import MONITORING, read_yaml
from tests.support.up import Up

SECONDS_MAX = 300
DEFAULT_PORTS = {
    "core": 9100,
    "text-queue": 9101,
    "job-centre": 9102,
    "taskflux": 9103,
    "zmq-kv": 9104,
    "etzel": 9105,
}
"""Where monitoring/prometheus.yml expects each part of `quintet up`."""
_SPARK_DEFAULT = "127.0.0.1:4040"
_SPARK_SECOND = "127.0.0.1:4041"

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that is ready. Expressions that it does not understand fail the test."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS_MAX) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expr: str) -> list[dict[str, Any]]:
        """What an expression gives now."""
        result: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return result

    def query_range(self, expr: str, seconds: int = 60) -> list[dict[str, Any]]:
        """What it gives over the last time, as a panel asks."""
        now = time.time()
        times = {"start": str(now - seconds), "end": str(now), "step": "1"}
        result: list[dict[str, Any]] = self.ask("query_range", query=expr, **times)["result"]
        return result

    def series(self, selector: str) -> list[Series]:
        """The labels of all series that a selector finds."""
        found: list[Series] = self.ask("series", **{"match[]": selector})
        return found

    def wait(self, what: str, is_so: Callable[[], object]) -> None:
        """Return when something is so; it becomes so as Prometheus scrapes and evaluates, every second or two."""
        give_up_at = time.monotonic() + SECONDS_MAX
        while not is_so():
            assert time.monotonic() < give_up_at, f"never came: {what}"
            time.sleep(0.4)

    def wait_series(self, expr: str) -> None:
        """Return when an expression gives something."""
        self.wait(expr, partial(self.query, expr))

    def wait_scraped(self, times: int = 3) -> None:
        """Return when every target was scraped so often."""
        targets = len(self.ask("targets")["activeTargets"])
        scraped = f"count_over_time(up[5m]) >= {times} and up == 1"
        self.wait("every target scraped", lambda: len(self.query(scraped)) == targets)


def configuration(up: Up, folder: Path, spark: str | None = None, *, every_s: int = 1) -> Path:
    """The configuration of monitoring/ with the addresses of a running `quintet up` and of a driver's web interface.

    Everything is done every `every_s` seconds, except that a driver, whose pages are dear, is looked at every 5."""
    text = (MONITORING / "prometheus.yml").read_text()
    for part, port in DEFAULT_PORTS.items():
        default = f"127.0.0.1:{port}"
        assert default in text
        text = text.replace(default, "{}:{}".format(*up.address(part, "metrics")))
    document = yaml.safe_load(text)
    every = f"{every_s}s"
    document["global"] |= {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    document["scrape_configs"] = [
        job for job in document["scrape_configs"] if spark or not job["job_name"].startswith("quintet-spark")
    ]
    for job in document["scrape_configs"]:
        if job["job_name"].startswith("quintet-spark"):
            job |= {"scrape_interval": "5s", "scrape_timeout": "5s"}
        for targets in job["static_configs"]:
            named = [spark if target == _SPARK_DEFAULT else target for target in targets["targets"]]
            targets["targets"] = [target for target in named if target != _SPARK_SECOND]
    (folder / "rules").symlink_to(MONITORING / "rules")
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def running(configured: Path) -> Iterator[Prometheus]:
    """Start one that keeps its data beside its configuration; ended with the block."""
    command = ["prometheus", f"--config.file={configured}", f"--storage.tsdb.path={configured.parent / 'data'}"]
    log = configured.parent / "prometheus.log"
    with (
        log.open("wb") as output,
        subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=output, stdout=output) as process,
    ):
        try:
            yield Prometheus(f"http://{_address(process, log)}")
        finally:
            process.terminate()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    give_up_at = time.monotonic() + SECONDS_MAX
    while True:
        text = log.read_text()
        found = re.search(r'msg="Listening on" address=(\S+)', text)
        if found and "Server is ready" in text:
            return found[1]
        assert process.poll() is None, text
        assert time.monotonic() < give_up_at, text
        time.sleep(0.05)


def documented(page: Path) -> list[tuple[str, str, Mapping[str, str]]]:
    """Name, kind and labels, with what is said of their values, of each metric in docs/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| .+ \|$", page.read_text(), re.MULTILINE)
    return [(name, kind, dict(re.findall(r"`(\w+)`: ([^`]+?)(?:; (?=`)|$)", labels))) for name, kind, labels in rows]


def targets_of(name: str) -> list[str]:
    """The targets of a job in the configuration as it is committed."""
    jobs = read_yaml(MONITORING / "prometheus.yml")["scrape_configs"]
    (job,) = (job for job in jobs if job["job_name"] == name)
    return [target for targets in job["static_configs"] for target in targets["targets"]]
