"""The operator's commands as processes of their own against a real core."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Cli, exit_code
from tests.support.stack import CorePart


@pytest.fixture
def cli(core: CorePart) -> Cli:
    return Cli(core.target)


def test_a_job_is_put_taken_and_acknowledged(cli: Cli, queue: str) -> None:
    [put] = cli.records("put", queue, "hello", "--rank", "3", "--attribute", "a=b")
    [peeked] = cli.records("peek", queue)
    assert (peeked["id"], peeked["payload"], peeked["rank"], peeked["attributes"]) == (
        put["id"],
        "hello",
        3,
        {"a": "b"},
    )
    [taken] = cli.records("take", queue, "--lease", "1m")
    [acknowledged] = cli.records("ack", str(taken["id"]), str(taken["lease"]["token"]))
    assert acknowledged == {"id": put["id"], "acknowledged": True}
    assert cli.run("take", queue).returncode == 1
    assert cli.run("peek", queue).returncode == 1


def test_people_get_tables(cli: Cli, queue: str) -> None:
    job_id = cli.text("put", queue, "[red]hello").strip()
    assert queue in cli.text("queues", queue)
    assert "[red]hello" in cli.text("peek", queue)
    assert job_id in cli.text("jobs", queue)
    assert "job_enqueued" in cli.text("events", "--queue", queue)
    assert "always" in cli.text("durability")
    assert job_id in cli.text("take", queue, "--ack")
    assert cli.text("queues", "no such prefix") == "no queues\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "payload"),
    [(("-",), b"a\nb\n", b"a\nb\n"), ((), b"\xff", b"\xff"), (("--file", "FILE"), b"", b"from a file")],
    ids=["dash", "nothing", "file"],
)
def test_a_payload_is_read_from_where_one_says(
    cli: Cli, queue: str, tmp_path: Path, arguments: tuple[str, ...], stdin: bytes, payload: bytes
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"from a file")
    cli.text("put", queue, *(str(file) if each == "FILE" else each for each in arguments), stdin=stdin)
    assert cli.run("take", queue, "--raw").stdout == payload + b"\n"


def test_every_line_is_a_job(cli: Cli, queue: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    assert cli.text("put", queue, "--lines", stdin=lines) == f"1000 jobs put into {queue}\n"
    [counted] = cli.records("queues", queue)
    assert counted["counts"]["ready"] == 1000
    listed = cli.records("jobs", queue, "--limit", "0")
    assert [job["payload"] for job in listed] == [f"line {number}" for number in range(1000)]


def test_lines_of_a_slow_pipe_are_put_as_they_come(cli: Cli, queue: str) -> None:
    arguments = cli.command("put", queue, "--lines", "--json")
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as putting:
        assert putting.stdin is not None
        assert putting.stdout is not None
        for line in (b"one", b"two"):
            putting.stdin.write(line + b"\n")
            putting.stdin.flush()
            assert json.loads(putting.stdout.readline())["queue"] == queue
        putting.send_signal(signal.SIGINT)
        assert exit_code(putting) == 130
        assert putting.stderr is not None
        assert putting.stderr.read() == b""
    assert [job["payload"] for job in cli.records("jobs", queue)] == ["one", "two"]


def test_a_payload_that_is_no_text_is_shown_in_base64(cli: Cli, queue: str) -> None:
    cli.text("put", queue, stdin=b"\xff\xfe")
    [job] = cli.records("take", queue)
    assert job["payload_base64"] == "//4="


def test_a_paused_queue_is_shown_and_resumed(cli: Cli, queue: str) -> None:
    cli.text("put", queue, "x")
    [paused] = cli.records("pause", queue, "--direction", "out", "--for", "10m")
    assert paused["paused"] == "out"
    assert "out until" in cli.text("queues", queue)
    assert cli.run("take", queue).returncode == 1
    [resumed] = cli.records("resume", queue)
    assert resumed["paused"] is None


def test_dead_jobs_are_redriven_and_all_are_purged(cli: Cli, queue: str) -> None:
    cli.text("put", queue, "--lines", "--delay", "1h", stdin=b"a\nb\nc\n")
    assert cli.records("redrive", queue, "--state", "delayed", "--max", "2") == [{"queue": queue, "redriven": 2}]
    [job, *_] = cli.records("jobs", queue)
    assert cli.records("jobs", "--id", str(job["id"])) == [job]
    assert cli.records("redrive", queue) == [{"queue": queue, "redriven": 0}]
    assert cli.run("purge", queue, stdin=b"n\n").returncode == 1
    assert cli.records("purge", queue, "--yes") == [{"queue": queue, "deleted": 3}]


def test_events_are_followed_until_interrupted(cli: Cli, queue: str) -> None:
    arguments = cli.command("events", "--follow", "--last", "0", "--json", "--queue", queue)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        try:
            cli.text("put", queue, "x")
            # The subscription may have begun after the first: put until one is seen.
            first = _first_line(following, lambda: cli.text("put", queue, "x"))
            assert json.loads(first)["queue"] == queue
        finally:
            following.send_signal(signal.SIGINT)
        assert exit_code(following) == 130
        assert following.stderr is not None
        assert following.stderr.read() == b""


def _first_line(process: subprocess.Popen[bytes], meanwhile: Callable[[], object]) -> bytes:
    import select

    assert process.stdout is not None
    while not select.select([process.stdout], [], [], 0.2)[0]:
        meanwhile()
    return process.stdout.readline()


def test_durability_is_said(cli: Cli) -> None:
    [found] = cli.records("durability")
    assert found["durable"]
    assert found["append_fsync"] == "always"


def test_the_bench_measures_and_leaves_nothing_behind(cli: Cli) -> None:
    before = cli.records("queues")
    [figures] = cli.records("bench", "--loops", "20", "--duration", "300ms")
    assert figures["lifecycles"] >= 20
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert "lifecycles/s" in cli.text("bench", "--loops", "1", "--duration", "200ms")
    assert [queue["name"] for queue in cli.records("queues")] == [queue["name"] for queue in before]


def test_what_the_core_refuses_is_one_sentence_and_exit_code_3(cli: Cli) -> None:
    refused = cli.run("ack", "123456789", "1")
    assert refused.returncode == 3
    assert b"JOB_NOT_FOUND" in refused.stderr
    assert b"Traceback" not in refused.stderr
    refused = cli.run("ack", "123456789", "1", "--json")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"] == "JOB_NOT_FOUND"


def test_a_core_that_is_away_is_one_sentence_and_exit_code_4(tmp_path: Path) -> None:
    away = Cli(f"unix:{tmp_path / 'nobody.sock'}").run("queues", "--patience", "0.3")
    assert away.returncode == 4
    assert b"quintet up" in away.stderr
    assert b"Traceback" not in away.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("ack", "5"),
        ("jobs",),
        ("put", "q", "x", "--attribute", "novalue"),
        ("put", "q", "x", "--delay", "soon"),
        ("take",),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    wrong = Cli(f"unix:{tmp_path / 'nobody.sock'}").run(*arguments)
    assert wrong.returncode == 2
    assert b"Usage:" in wrong.stderr
    assert b"Traceback" not in wrong.stderr
