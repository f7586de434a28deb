"""`quintet table` as processes of their own against a real core."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Cli, exit_code
from tests.support.stack import CorePart


@pytest.fixture
def cli(core: CorePart) -> Cli:
    return Cli(core.target, "table")


@pytest.fixture
def table(queue: str) -> str:
    """A table name that no other test has."""
    return queue.replace("queue", "table")


def test_a_table_is_made_shown_changed_listed_and_deleted(cli: Cli, table: str) -> None:
    [made] = cli.records("create", table, "--rows-max", "5", "--events-carry-values")
    assert made["settings"] == {"rows_max": 5, "value_bytes_max": None, "events_carry_values": True}
    assert cli.run("create", table).returncode == 3
    [changed] = cli.records("update", table, "--rows-max", "none", "--value-bytes-max", "3")
    assert changed["settings"] == {"rows_max": None, "value_bytes_max": 3, "events_carry_values": True}
    assert cli.records("show", table) == [changed]
    assert cli.records("list", table) == [changed]
    cli.text("put", table, "k", "abc")
    assert cli.run("put", table, "k", "abcd").returncode == 3
    assert cli.run("delete", table, stdin=b"n\n").returncode == 1
    assert cli.records("delete", table, "--yes") == [{"table": table, "deleted_rows": 1}]
    assert cli.run("show", table).returncode == 3
    assert cli.text("list", table) == "no tables\n"


def test_a_row_is_put_read_and_deleted(cli: Cli, table: str) -> None:
    [written] = cli.records("put", table, "ada", "lovelace", "--ttl", "1h")
    assert (written["key"], written["created"]) == ("ada", True)
    [row] = cli.records("get", table, "ada")
    assert row == {
        "key": "ada",
        "value": "lovelace",
        "version": written["version"],
        "expires_at_ms": written["expires_at_ms"],
    }
    assert row["expires_at_ms"] > 0
    [kept] = cli.records("put", table, "ada", "l.")
    assert kept["expires_at_ms"] == row["expires_at_ms"]
    assert cli.records("put", table, "ada", "l.", "--clear-ttl")[0]["expires_at_ms"] == 0
    assert cli.output("del", table, "ada", "--raw") == b"l."
    for command in ("get", "del"):
        gone = cli.run(command, table, "ada")
        assert (gone.returncode, gone.stdout, gone.stderr) == (1, b"", b"no such row\n")


def test_a_row_of_another_version_is_left_alone(cli: Cli, table: str) -> None:
    version = cli.text("put", table, "k", "1", "--expect-version", "0").strip()
    assert cli.run("put", table, "k", "2", "--expect-version", "0").returncode == 3
    second = cli.text("put", table, "k", "2", "--expect-version", version).strip()
    refused = cli.run("del", table, "k", "--expect-version", version, "--json")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"] == "VERSION_MISMATCH"
    assert cli.output("del", table, "k", "--expect-version", second, "--raw") == b"2"


def test_keys_and_values_are_any_bytes(cli: Cli, table: str, tmp_path: Path) -> None:
    everything = bytes(range(256))
    in_base64 = base64.b64encode(everything).decode()
    file = tmp_path / "value"
    file.write_bytes(everything)
    cli.text("put", table, in_base64, "--key-base64", "--file", str(file))
    assert cli.output("get", table, in_base64, "--key-base64", "--raw") == everything
    cli.text("put", table, b"\xff", "-", stdin=b"\n")
    assert cli.output("get", table, b"\xff", "--raw") == b"\n"
    cli.text("put", table, "", stdin=b"")
    rows = cli.records("scan", table)
    assert [(row.get("key"), row.get("key_base64"), row.get("value_base64")) for row in rows] == [
        ("", None, None),
        (None, in_base64, in_base64),
        (None, "/w==", None),
    ]


def test_rows_are_listed_in_the_order_of_their_keys(cli: Cli, table: str) -> None:
    lines = [json.dumps({"key": f"k{number:03}", "value": "v"}) for number in range(100)]
    assert cli.text("write", table, stdin="\n".join(lines).encode()) == f"100 rows of {table} written\n"
    assert [row["key"] for row in cli.records("scan", table, "--limit", "0")] == [f"k{n:03}" for n in range(100)]
    assert [row["key"] for row in cli.records("scan", table, "k01", "--limit", "3")] == ["k010", "k011", "k012"]
    assert [row["key"] for row in cli.records("scan", table, "azA=", "--key-base64", "--limit", "1")] == ["k000"]
    without = cli.records("scan", table, "--limit", "1", "--no-values")
    assert [list(row) for row in without] == [["key", "version", "expires_at_ms"]]


def test_writes_take_effect_together_or_not_at_all(cli: Cli, table: str) -> None:
    [first] = cli.records("write", table, stdin=b'{"key":"a","value":"1","ttl_ms":3600000}\n')
    writes = b'{"key":"b","value_base64":"/w=="}\n\n{"key":"a","delete":true,"expect_version":%d}\n'
    assert cli.run("write", table, stdin=writes % (first["version"] + 100)).returncode == 3
    assert [row["key"] for row in cli.records("scan", table)] == ["a"]
    versions = [row["version"] for row in cli.records("write", table, stdin=writes % first["version"])]
    assert len(versions) == 2
    assert [row.get("value_base64") for row in cli.records("scan", table)] == ["/w=="]


def test_people_get_tables(cli: Cli, table: str) -> None:
    cli.text("put", table, "[red]k", "a\x1bb")
    assert "[red]k" in cli.text("get", table, "[red]k")
    assert "a\N{MIDDLE DOT}b" in cli.text("scan", table)
    assert table in cli.text("show", table)
    assert table in cli.text("list")


def test_changes_are_watched_until_interrupted(cli: Cli, table: str) -> None:
    cli.text("create", table, "--events-carry-values")
    arguments = cli.command("watch", table, "--prefix", "k")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        try:
            assert watching.stderr.readline() == b"watching\n"
            cli.text("put", table, "other", "x")
            cli.text("put", table, "k", "[v]", "--ttl", "1h")
            cli.text("del", table, "k")
            put, deleted = watching.stdout.readline().decode(), watching.stdout.readline().decode()
        finally:
            watching.send_signal(signal.SIGINT)
        assert exit_code(watching) == 130
        assert watching.stderr.read() == b""
    assert f"row_put table={table} key=k value=[v] expires=" in put
    assert f"row_deleted table={table} key=k" in deleted


def test_a_watch_goes_on_where_one_says(cli: Cli, table: str) -> None:
    [first] = cli.records("put", table, "a", "1")
    partition = cli.records("show", table)[0]["partition"]
    for key in ("b", "/w=="):
        cli.text("put", table, key, "22", *(["--key-base64"] if "=" in key else []))
    seen = cli.records("watch", table, "--after", f"{partition}/{first['version']}", "--limit", "2")
    assert [(change["kind"], change.get("key"), change.get("key_base64")) for change in seen] == [
        ("row_put", "b", None),
        ("row_put", None, "/w=="),
    ]
    assert [(change["table"], change["value_bytes"], "value" in change) for change in seen] == [(table, 2, False)] * 2


def test_the_event_log_shows_rows(cli: Cli, table: str) -> None:
    cli.text("create", table, "--events-carry-values")
    cli.text("put", table, "/w==", "v", "--key-base64")
    everything = Cli(cli.target)
    created, put = everything.records("events", "--table", table)
    assert (created["kind"], created["table"], created["key"], "value" in created) == (
        "table_created",
        table,
        "",
        False,
    )
    assert (put["kind"], put["key_base64"], put["value"], put["state"]) == ("row_put", "/w==", "v", None)
    assert table in everything.text("events", "--table", table)


def test_a_table_that_is_not_there_is_exit_code_3(cli: Cli, table: str) -> None:
    for arguments in (("get", table, "k"), ("scan", table), ("put", table, "k", "v", "--no-create")):
        refused = cli.run(*arguments)
        assert refused.returncode == 3
        assert b"TABLE_NOT_FOUND" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("put", "t"), b""),
        (("put", "t", "k", "v", "--ttl", "soon"), b""),
        (("put", "t", "k", "v", "--ttl", "1s", "--clear-ttl"), b""),
        (("put", "t", "k", "v", "--expect-version", "-1"), b""),
        (("get", "t", "no base64", "--key-base64"), b""),
        (("create", "t", "--rows-max", "many"), b""),
        (("watch", "t", "--after", "7"), b""),
        (("write", "t"), b""),
        (("write", "t"), b'{"key":"k"}'),
        (("write", "t"), b'{"key":"k","key_base64":"aw==","value":"v"}'),
        (("write", "t"), b'{"key":"k","value":"v","delete":true}'),
        (("write", "t"), b'{"key":"k","value":"v","ttl_ms":1,"clear_ttl":true}'),
        (("write", "t"), b'{"key":"k","value":1}'),
        (("write", "t"), b"\xff"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], stdin: bytes) -> None:
    wrong = Cli(f"unix:{tmp_path / 'nobody.sock'}", "table").run(*arguments, stdin=stdin)
    assert wrong.returncode == 2
    assert b"Usage:" in wrong.stderr
    assert b"Traceback" not in wrong.stderr
