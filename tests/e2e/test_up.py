"""`quintet up` as a user meets it: it starts everything, keeps it running, stops it, and forgets nothing."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.up import COMMAND, Up, ask, ask_until, ends_of, up

TEXT = "text-queue"
PARTS = {"redis", "core", TEXT, "job-centre", "taskflux", "zmq-kv", "etzel"}


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\n\r\n".encode()


def get(address: tuple[str, int], path: str) -> bytes:
    return ask(address, request(path))


@dataclass(frozen=True, slots=True)
class Lasting:
    """A `quintet up` that stays, and where it keeps its data."""

    up: Up
    data: Path


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    """One for all tests that leave it as they found it; it stops as it should, whatever was killed of it before."""
    data = tmp_path_factory.mktemp("lasting")
    with up(data) as running:
        yield Lasting(running, data)
        assert running.stop() == 0


def test_a_job_put_before_a_stop_is_there_after_the_next_start(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        job = first.ask(TEXT, b"ADD greetings 5 hello")
        with ends_of(*(first.pid(part) for part in PARTS)):
            assert first.stop(signal.SIGINT) == 0
    with up(tmp_path) as second:
        assert second.ask(TEXT, b"GET greetings\n") == job + b" 5 hello"
        assert second.ask(TEXT, b"ACK greetings " + job + b"\n") == b"OK"


def test_every_part_listens_and_reports_ready(lasting: Lasting) -> None:
    assert set(lasting.up.parts) == PARTS
    for part in PARTS - {"redis"}:
        metrics = lasting.up.address(part, "metrics")
        assert get(metrics, "/readyz").startswith(b"HTTP/1.1 200 ")
        assert b"# TYPE quintet_" in get(metrics, "/metrics")


def test_killed_with_everything_it_leaves_no_process_and_no_job_is_lost(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        job = first.ask(TEXT, b"ADD greetings 5 hello")
        with ends_of(*(first.pid(part) for part in PARTS)):
            first.process.kill()
    with up(tmp_path) as second:
        assert second.ask(TEXT, b"GET greetings\n") == job + b" 5 hello"


def test_two_on_one_data_directory_are_refused(lasting: Lasting) -> None:
    second = subprocess.run((*COMMAND, "--data", str(lasting.data)), capture_output=True, text=True)
    assert second.returncode == 1
    assert f"in use by `quintet up` (process {lasting.up.process.pid})" in second.stderr
    assert lasting.up.ask(TEXT, b"GET nothing\n") == b"NONE"


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_part_that_is_killed_comes_back_where_it_was(lasting: Lasting, part: str) -> None:
    running = lasting.up
    queue = f"kept-from-{part}".encode()
    job = running.ask(TEXT, b"ADD " + queue + b" 5 hello")
    with ends_of(running.pid(part)):
        os.kill(running.pid(part), signal.SIGKILL)
    in_queue = ask_until(running.address(TEXT), b"IN " + queue + b" " + job + b"\n", b"YES")
    assert in_queue == b"YES"
    for each in PARTS - {"redis"}:
        assert ask_until(running.address(each, "metrics"), request("/readyz"), b"HTTP/1.1 200 ")


def test_a_second_signal_ends_it_at_once_and_its_children_with_it(tmp_path: Path) -> None:
    with up(tmp_path, log=subprocess.PIPE) as running:
        with ends_of(*(running.pid(part) for part in PARTS)):
            os.kill(running.pid(TEXT), signal.SIGSTOP)  # the orderly stop now waits for it
            running.process.send_signal(signal.SIGINT)
            assert running.process.stderr is not None
            assert any(line.startswith("Stopping") for line in running.process.stderr)
            running.process.send_signal(signal.SIGINT)
        assert running.process.wait() == 128 + signal.SIGINT
        socket_path = running.parts["redis"]["listening"]["redis"].removeprefix("unix:")
        assert not Path(socket_path).parent.exists()


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [word for word in COMMAND if word != "--any-port"]
        others = ("metrics", "core", "job-centre", "taskflux", "etzel", "etzel-lines")
        command += ["--data", str(tmp_path), *(word for name in others for word in (f"--{name}-port", "0"))]
        ended = subprocess.run([*command, "--text-queue-port", port], capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"port {port} (text-queue): Address already in use" in ended.stderr


def test_settings_that_are_wrong_are_all_named() -> None:
    ended = subprocess.run((*COMMAND, "--core-port", "x", "--log-level", "loud"), capture_output=True, text=True)
    assert ended.returncode == 78
    assert [line.split(":")[0] for line in ended.stderr.splitlines()] == ["QUINTET_CORE_PORT", "QUINTET_LOG_LEVEL"]


def test_people_get_a_table(tmp_path: Path) -> None:
    with subprocess.Popen((*COMMAND, "--data", str(tmp_path)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("Ctrl+C stops everything")):
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended early"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    table = "".join(lines)
    assert all(name in table for name in ("core-grpc", TEXT, "job-centre", "redis"))
