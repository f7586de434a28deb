"""Who may read: TLS, client certificates and bearer tokens of the source."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from quintet_spark.source import register

from tests.support.event_log import event_rows_of, put_jobs, working
from tests.support.secured_core import CLIENT_HOST, secured_core, write_certificate
from tests.support.stack import CorePart

READER, MAILER = "reader-token", "mailer-token"
VERBS = '["list_partitions", "read_blocks", "find_offsets"]'
TOKENS = f"""
[[token]]
name = "reader"
token = "{READER}"
namespaces = ["*"]
verbs = {VERBS}

[[token]]
name = "mailer"
token = "{MAILER}"
namespaces = ["mail"]
verbs = {VERBS}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="quintet-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def core(folder: Path) -> Iterator[CorePart]:
    """A core that asks for a certificate and a token on its TCP listener."""
    authority = trustme.CA()
    write_certificate(folder, "client", authority.issue_cert(CLIENT_HOST))
    (folder / "token").write_text(f"{READER}\n")
    with secured_core(folder, authority, TOKENS) as core:
        put_jobs(core.target, "work", 20)
        working(core.target, lambda client: client.enqueue_many("post", [b"letter"] * 7), "mail")
        yield core


@pytest.fixture
def options(folder: Path, core: CorePart, spark: SparkSession) -> dict[str, str]:
    """All but the token."""
    register(spark)
    return {
        "endpoint": f"localhost:{core.port('core-grpc')}",
        "caFile": str(folder / "ca.pem"),
        "certFile": str(folder / "client-cert.pem"),
        "keyFile": str(folder / "client-key.pem"),
        "retryMs": "500",
    }


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("quintet").options(**options).load()


def test_a_token_from_a_file_reads_everything(
    spark: SparkSession, core: CorePart, options: dict[str, str], folder: Path
) -> None:
    frame = read(spark, {**options, "tokenFile": str(folder / "token")})
    assert frame.count() == len(event_rows_of(core.target))


def test_a_narrower_token_reads_its_namespace(spark: SparkSession, options: dict[str, str]) -> None:
    found = read(spark, {**options, "token": MAILER}).select("namespace", "queue", "kind").collect()
    assert {(row.namespace, row.queue) for row in found} == {("mail", "post")}
    assert [row.kind for row in found] == ["queue_created"] + ["job_enqueued"] * 7


def test_no_token_is_refused_and_a_wrong_one_not_repeated(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(PySparkException, match="refused: UNAUTHENTICATED"):
        read(spark, options).count()
    with pytest.raises(PySparkException, match="refused: UNAUTHENTICATED") as caught:
        read(spark, {**options, "token": "wrong-token"}).count()
    assert "wrong-token" not in str(caught.value)


def test_a_stranger_is_told_in_time(spark: SparkSession, options: dict[str, str]) -> None:
    strange = {name: value for name, value in options.items() if name not in ("certFile", "keyFile")}
    with pytest.raises(PySparkException, match="was not there for 500 ms"):
        read(spark, {**strange, "token": READER}).count()
