"""A line of the log is one JSON object with a stable event word, whoever wrote it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from quintet_kit import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_event_level_process_and_fields() -> None:
    out = io.StringIO()
    logs.configure("core", stream=out)
    logs.get_logger(session=7).info("listening", name="core-grpc", address="127.0.0.1:1")
    (line,) = lines(out)
    assert line.pop("timestamp")
    assert line == {
        "event": "listening",
        "level": "info",
        "process": "core",
        "session": 7,
        "name": "core-grpc",
        "address": "127.0.0.1:1",
    }


def test_lines_below_the_level_are_not_written() -> None:
    out = io.StringIO()
    logs.configure("core", level="warning", stream=out)
    logs.get_logger().info("listening")
    assert out.getvalue() == ""


def test_an_exception_is_one_line_with_its_traceback() -> None:
    out = io.StringIO()
    logs.configure("core", stream=out)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logs.get_logger().exception("operation_failed")
    (line,) = lines(out)
    assert line["event"] == "operation_failed"
    assert "RuntimeError: broken" in str(line["exception"])


def test_lines_of_other_libraries_come_out_the_same_way() -> None:
    out = io.StringIO()
    logs.configure("core", stream=out)
    logging.getLogger("grpc").warning("peer %s", "gone")
    (line,) = lines(out)
    assert (line["event"], line["library"], line["message"]) == ("library_log", "grpc", "peer gone")


def test_a_value_that_json_does_not_know_is_shown_not_raised() -> None:
    out = io.StringIO()
    logs.configure("core", stream=out)
    logs.get_logger().info("odd", value=object(), raw=b"\xff")
    assert len(lines(out)) == 1


def test_readable_lines_are_not_json() -> None:
    out = io.StringIO()
    logs.configure("core", log_format="readable", stream=out)
    logs.get_logger().info("listening", name="core-grpc")
    assert "listening" in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_a_readable_exception_comes_with_its_traceback_and_no_values() -> None:
    out = io.StringIO()
    logs.configure("core", log_format="readable", stream=out)
    payload = "-".join(["hush", "hush"])
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logs.get_logger().exception("operation_failed")
    assert "operation_failed" in out.getvalue()
    assert "broken" in out.getvalue()
    assert payload not in out.getvalue()
