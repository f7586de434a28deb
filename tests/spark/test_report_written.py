"""The report as a whole: tables and page on disk, from frames."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from quintet_spark.report import ReportOptions, WrittenReport, write_report
from quintet_spark.transforms import report
from quintet_spark.transforms.rollup import ROLLUP, rollup

from tests.spark.log_frames import Row, at, event_frame, metric_frame

# A report is some twenty jobs of Spark, whatever the size of its tables.
pytestmark = pytest.mark.timeout(300)

EVENTS: list[Row] = [
    {"kind": "job_enqueued", "job_id": 1, "at": at(0)},
    {"kind": "job_dequeued", "job_id": 1, "at": at(1), "attempt": 1, "wait_ms": 60_000, "state": "leased"},
    {"kind": "job_acknowledged", "job_id": 1, "at": at(2), "attempt": 1, "service_ms": 60_000},
    {"kind": "job_enqueued", "job_id": 2, "at": at(3), "queue": "mail & more"},
    {"kind": "job_dequeued", "job_id": 2, "at": at(3), "queue": "mail & more", "attempt": 1, "wait_ms": 0},
    {
        "kind": "job_released",
        "job_id": 2,
        "at": at(90),
        "queue": "mail & more",
        "attempt": 1,
        "state": "dead",
        "detail": "no <stamp>",
    },
    {"kind": "row_put", "job_id": None, "queue": None, "table": "rows", "at": at(91)},
]
SNAPSHOTS: list[Row] = [
    *({"at": at(minute), "ready": 10 * minute, "enqueued_total": 10 * minute} for minute in range(60)),
    *({"at": at(minute), "name": "mail & more", "dead": 1} for minute in range(60)),
]


@dataclass(frozen=True)
class Whole:
    """A report on EVENTS and SNAPSHOTS, and what it told on its way. It took seconds: nobody changes it."""

    written: WrittenReport
    out: Path
    steps: list[str]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Its rollup has not come as far as the events."""
    events, metrics = event_frame(spark, EVENTS), metric_frame(spark, SNAPSHOTS)
    behind = rollup(events, metrics).where("queue = 'work'")
    out, steps = tmp_path_factory.mktemp("whole") / "report of today", list[str]()
    options = ReportOptions(length_max=1_000)
    written = write_report(spark, events, metrics, behind, str(out), options=options, progress=steps.append)
    return Whole(written, out, steps)


def test_a_report_is_tables_and_a_page(spark: SparkSession, whole: Whole) -> None:
    written, out = whole.written, whole.out
    counts = {name: spark.read.parquet(path).count() for name, path in written.tables.items()}
    assert counts == {"service_levels": 2, "queues": 2, "poison_jobs": 1, "backlog": 120, "forecast": 2}
    assert whole.steps[-1] == "draw the page"
    assert len(written.needs_action) == 2
    assert written.needs_action[0].startswith("“work” will hold 1\u202f000 jobs in about")
    assert written.page == f"{out}/index.html"
    page = Path(written.page).read_text()
    assert "2 things need action." in page
    assert "mail &amp; more" in page
    assert "no &lt;stamp&gt;" in page
    assert not list(out.glob("*.new"))


def test_a_rollup_that_has_not_come_as_far_is_no_source_of_a_chart(whole: Whole) -> None:
    assert "drawn from the rollup" not in Path(whole.written.page).read_text()


def test_a_report_takes_the_place_of_the_one_before(spark: SparkSession, whole: Whole, tmp_path: Path) -> None:
    out = tmp_path / "report"
    shutil.copytree(whole.out, out)
    written = write_report(spark, event_frame(spark, []), metric_frame(spark, []), None, str(out))
    assert written.needs_action == []
    assert "There is nothing to report" in Path(written.page).read_text()
    assert spark.read.parquet(written.tables["queues"]).count() == 0


def test_the_chart_is_drawn_from_the_rollup_when_that_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    events, metrics = event_frame(spark, EVENTS), metric_frame(spark, SNAPSHOTS)
    rolled = spark.createDataFrame(rollup(events, metrics).toArrow(), ROLLUP)
    hour = 3_600_000
    both = [
        sorted(tuple(row) for row in frame.collect() if any(row[1:]))
        for frame in (report.activity(events, bucket_ms=hour), report.rolled_activity(rolled, bucket_ms=hour))
    ]
    assert both[0] == both[1]
    written = write_report(spark, events, metrics, rolled, str(tmp_path / "drawn"))
    assert "drawn from the rollup" in Path(written.page).read_text()


def test_a_place_that_cannot_be_written_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Exception, match="file"):
        write_report(spark, event_frame(spark, []), metric_frame(spark, []), None, str(tmp_path / "file" / "report"))
