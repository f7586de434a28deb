"""What the page says, without Spark: rows in, HTML out."""

from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from quintet_spark.report.findings import Findings, find
from quintet_spark.report.options import HOUR_MS, ReportOptions
from quintet_spark.report.page import PageRows, forecast_end, render

OPTIONS = ReportOptions(length_max=1_000)


def level(queue: str = "work", **columns: Any) -> dict[str, Any]:
    """A row of `queues` in which all is well."""
    counts = (
        *("arrivals", "deliveries", "completions", "releases", "lease_expiries", "owner_closures", "deletions"),
        *("expiries", "redrives", "dead_letters", "deaths", "failures", "redeliveries", "completions_first"),
        *("deliveries_timed", "deliveries_in_target", "backlog_end", "ready_end", "dead_end"),
    )
    times = [f"{name}_{of}_ms" for name in ("wait", "service") for of in ("p50", "p95", "p99", "max")]
    shares = {"failure_share": 0.0, "first_delivery_share": 1.0, "in_target_share": 1.0}
    ages = {"oldest_age_end_ms": 0, "oldest_age_max_ms": 0}
    named = {"namespace": "default", "queue": queue, "counted_by": "events"}
    return {**dict.fromkeys(counts, 0), **dict.fromkeys(times, 5), **shares, **ages, **named, **columns}


def forecast(queue: str = "work", **columns: Any) -> dict[str, Any]:
    """A row of `forecast` that is steady."""
    rates = {"arrival_rate": 1.0, "completion_rate": 1.0, "capacity_rate": None, "utilisation": None}
    line = {"slope": 0.0, "slope_low": -1.0, "slope_high": 1.0, "fit_at_end": 5.0, "verdict": "steady"}
    ends = dict.fromkeys(("reached_in_hours", "reached_earliest_hours", "reached_latest_hours"))
    named = {"namespace": "default", "queue": queue, "as_of_ms": 10 * HOUR_MS, "points": 60, "backlog": 5}
    return {**named, **rates, **line, **ends, **columns}


def poison(**columns: Any) -> dict[str, Any]:
    job = {"namespace": "default", "queue": "work", "job_id": 7, "deliveries": 9, "deaths": 1, "failures": 9}
    return {**job, "outcome": "dead", "reasons": ["no paper"], "last_at_ms": 10 * HOUR_MS, **columns}


def page_of(*levels: dict[str, Any], **columns: Any) -> str:
    overall = {**level(), "queues": len(levels)}
    found = {"busiest": levels, "slowest": levels, "failing": levels, "queues": levels, "queues_total": len(levels)}
    rows = PageRows(
        **{"generated_at_ms": 0, "first_at_ms": 0, "last_at_ms": 10 * HOUR_MS, "overall": overall, **found, **columns}
    )
    return render(rows, OPTIONS)


def sentences(found: Findings) -> list[list[str]]:
    return [[each.sentence for each in some] for some in (found.actions, found.watches, found.fine)]


class Page(HTMLParser):
    """The tags of a page, its text, and whether all are closed."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def whole_page() -> str:
    traffic = {at * HOUR_MS: {"arrivals": at, "completions": 1, "failures": 0} for at in range(5)}
    return page_of(
        level("a", deaths=3),
        level("b", in_target_share=0.5, deliveries_timed=100),
        poison=[poison()],
        poison_total=1,
        forecasts=[
            forecast(),
            forecast(
                "up", verdict="growing", slope=60.0, slope_low=50.0, reached_in_hours=2.0, reached_earliest_hours=1.0
            ),
        ],
        days=[{**level(), "day": "2026-03-01", "queues": 2}, {**level(), "day": "2026-03-02", "queues": 2}],
        traffic=traffic,
        backlog={at * HOUR_MS: 5 for at in range(5)},
        backlogs={("default", "work"): {at * HOUR_MS: at for at in range(5)}},
    )


def test_the_page_needs_nothing_but_itself() -> None:
    page = Page(whole_page())
    assert not page.open
    assert not {"script", "iframe", "object", "embed", "img", "form"} & {tag for tag, _ in page.tags}
    addresses = [
        value for _, attrs in page.tags for name in ("href", "src", "xlink:href") if (value := attrs.get(name))
    ]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert "http:" not in whole_page()
    assert "https:" not in whole_page()
    assert "url(" not in whole_page()
    assert "@import" not in whole_page()


def test_every_reason_is_a_section_of_the_page() -> None:
    page = Page(whole_page())
    wanted = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert wanted == {"#failing", "#slowest", "#capacity"}
    assert {f"#{attrs['id']}" for _, attrs in page.tags if attrs.get("id")} >= wanted


def test_charts_are_drawings_with_a_title_and_a_table() -> None:
    html = whole_page()
    drawings = [part.split("</svg>")[0] for part in html.split("<svg ")[1:]]
    for drawing in drawings:
        ElementTree.fromstring(f"<svg {drawing}</svg>")
        assert 'aria-hidden="true"' in drawing or ("<title" in drawing and 'role="img"' in drawing)
    page = Page(html)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("figure") == 2
    assert tags.count("caption") == tags.count("table") == 8
    assert "nan" not in html.lower().split("</style>")[1].replace("governance", "")


EVIL = "</title><script>alert(1)</script>\"'><img src=x onerror=y>&\u202e\x00\x1b"


def test_names_of_any_characters_are_only_text() -> None:
    html = page_of(
        level(EVIL, deaths=1, in_target_share=0.1, deliveries_timed=50, failure_share=0.9, failures=90),
        level("other", namespace=EVIL),
        poison=[poison(queue=EVIL, reasons=[EVIL], outcome=EVIL)],
        poison_total=1,
        forecasts=[
            forecast(
                EVIL, verdict="growing", slope=60.0, slope_low=50.0, reached_in_hours=2.0, reached_earliest_hours=1.0
            )
        ],
    )
    page = Page(html)
    assert not page.open
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not {name for _, attrs in page.tags for name in attrs if name.startswith("on")}
    assert not set(html) & set("\u202e\x00\x1b")
    assert r"\u{202e}" in "".join(page.text)


def test_a_name_of_any_length_leaves_the_page_bounded() -> None:
    assert len(page_of(level("x" * 100_000), poison=[poison(reasons=["y" * 100_000] * 3)], poison_total=1)) < 40_000


def test_queues_beyond_those_shown_are_one_row() -> None:
    many = [level(f"queue {n}", arrivals=2, completions=1) for n in range(500)]
    overall = {**level(), "arrivals": 1_000, "completions": 500}
    html = page_of(*many, busiest=many[:20], slowest=many[:10], failing=(), overall=overall)
    text = "".join(Page(html).text)
    assert "The 20 busiest of 500 queues" in text
    assert "480 others960480" in text.replace("\n", "")
    assert "queue 19" in text
    assert "queue 20" not in text


def test_without_rows_the_page_says_that_there_are_none() -> None:
    html = render(PageRows(generated_at_ms=0), OPTIONS)
    assert "There is nothing to report" in html
    assert "<table" not in html


def test_all_is_well_when_it_is() -> None:
    found = find([level(deliveries_timed=100)], [forecast()], [], OPTIONS)
    actions, watches, fine = sentences(found)
    assert (actions, watches) == ([], [])
    assert len(fine) == 3
    assert "All is well." in page_of(level(deliveries_timed=100), forecasts=[forecast()])


@pytest.mark.parametrize(
    ("queues", "forecasts", "jobs", "said"),
    [
        ([level(deaths=2), level("b", deaths=5)], [], [], "7 jobs used up their attempts and died, in “b” and “work”."),
        ([level(in_target_share=0.5, deliveries_timed=20)], [], [], "“work” misses the target"),
        (
            [],
            [forecast(verdict="growing", slope=60.0, reached_in_hours=2.0)],
            [],
            "“work” will hold 1\u202f000 jobs in about 2\u202fh",
        ),
        (
            [],
            [forecast(verdict="growing", slope=60.0, slope_low=50.0, utilisation=1.2)],
            [],
            "“work” grows: more arrives than",
        ),
        (
            [],
            [forecast(verdict="growing", slope=60.0, slope_low=50.0, capacity_rate=0.0)],
            [],
            "“work” grows: more arrives than",
        ),
    ],
)
def test_what_needs_action_is_said(
    queues: list[dict[str, Any]], forecasts: list[dict[str, Any]], jobs: list[dict[str, Any]], said: str
) -> None:
    (action,), *_ = sentences(find(queues, forecasts, jobs, OPTIONS))
    assert action.startswith(said)


@pytest.mark.parametrize(
    ("queues", "forecasts", "jobs", "said"),
    [
        ([level(in_target_share=0.5, deliveries_timed=19)], [], [], "of few deliveries"),
        ([level(dead_end=3)], [], [], "3 dead jobs wait to be redriven or deleted."),
        ([level(failures=10, failure_share=0.5)], [], [], "“work” gets at least 10\u202f% of deliveries back"),
        ([level(oldest_age_end_ms=2 * HOUR_MS)], [], [], "“work” holds a job that has been ready for up to 2\u202fh."),
        ([], [forecast(verdict="growing", slope=60.0, slope_low=50.0)], [], "“work” grows, though its workers"),
        (
            [],
            [forecast(verdict="growing", slope=60.0, slope_low=50.0, reached_in_hours=2_000.0)],
            [],
            "“work” grows, though its workers",
        ),
        ([], [], [poison(deaths=0, outcome="ready")], "1 job that still exists was delivered 5 times or more."),
    ],
)
def test_what_is_worth_watching_is_said(
    queues: list[dict[str, Any]], forecasts: list[dict[str, Any]], jobs: list[dict[str, Any]], said: str
) -> None:
    actions, (watch,), _ = sentences(find(queues, forecasts, jobs, OPTIONS))
    assert not actions
    assert said in watch


@pytest.mark.parametrize(("slope_low", "backlog", "is_told"), [(9.9, 5, False), (10, 5, True), (10, 101, False)])
def test_growth_that_is_next_to_nothing_is_not_worth_a_sentence(slope_low: float, backlog: int, is_told: bool) -> None:
    """Sixty minutes were looked at."""
    row = forecast(verdict="growing", slope=slope_low + 1, slope_low=slope_low, backlog=backlog, utilisation=1.2)
    actions, _, fine = sentences(find([], [row], [], OPTIONS))
    assert bool(actions) is is_told
    assert ("No backlog grows to speak of, of 1 queue judged." in fine) is not is_told


def test_queues_that_only_snapshots_tell_of_are_judged_by_what_is_known() -> None:
    unknown: dict[str, Any] = dict.fromkeys(
        ("in_target_share", "first_delivery_share", "deliveries_timed", "wait_p50_ms", "redeliveries")
    )
    found = find([level(**unknown)], [], [], OPTIONS)
    assert sentences(found)[:2] == [[], []]
    assert "work" in page_of(level(**unknown), slowest=())


def test_when_a_forecast_ends_is_said_with_its_interval() -> None:
    draining = forecast(
        verdict="draining", reached_in_hours=2.0, reached_earliest_hours=1.0, reached_latest_hours=None, slope=-3.0
    )
    assert forecast_end(draining, OPTIONS) == "empty in 2\u202fh (1\u202fh or later)"
    growing = forecast(verdict="growing", reached_in_hours=2.0, reached_earliest_hours=1.0, reached_latest_hours=4.0)
    assert forecast_end(growing, OPTIONS) == "1\u202f000 jobs in 2\u202fh (1\u202fh to 4\u202fh)"
    assert forecast_end(growing, ReportOptions()) == "\u2013"
    assert forecast_end({**growing, "reached_in_hours": None}, OPTIONS) == "1\u202f000 jobs in more than a year"
    assert forecast_end(forecast(), OPTIONS) == "\u2013"


@pytest.mark.parametrize(
    "wrong", [{"target_share": 0}, {"target_share": 1.1}, {"target_wait_ms": 0}, {"queues_shown": 0}]
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ReportOptions(**wrong)
