"""What a runbook tells to type can be typed, and the pages are those of the alerts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from quintet_cli.__main__ import main

from tests.support.monitoring import RUNBOOKS, alerts
from tests.support.redis_server import RedisServer

PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page.name != "README.md")
PARTS = ["What it means", "What users feel", "Look", "Do", "It is over"]
SETTLED = {"curl", "df"}
"""Programs of the system."""


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of a page, as words."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert line.startswith("$ "), line
            yield shlex.split(line.removeprefix("$ "))
    for said in re.findall(r"`(quintet [^`]+)`", page.read_text()):
        yield shlex.split(said)


def commands_of(program: str) -> list[list[str]]:
    """What the pages ask of a program, without repetitions."""
    said = {tuple(words[1:]) for page in PAGES for words in commands(page) if words[0] == program}
    return [list(words) for words in sorted(said)]


def test_there_is_a_page_for_each_alert_and_no_other() -> None:
    assert {page.stem for page in PAGES} == set(alerts())


def test_the_list_of_pages_has_each_with_its_severity() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
    assert listed == [(name, name, alert["labels"]["severity"]) for name, alert in alerts().items()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
class TestEveryPage:
    """One runbook."""

    def test_is_built_as_the_others(self, page: Path) -> None:
        text = page.read_text()
        assert text.startswith(f"# {page.stem}\n\n*{alerts()[page.stem]['labels']['severity']}*: ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS

    def test_uses_programs_that_are_known(self, page: Path) -> None:
        asked = {words[0] for words in commands(page)}
        assert asked
        assert asked <= {"quintet", "redis-cli", *SETTLED}

    def test_names_the_metrics_that_there_are(self, page: Path) -> None:
        known = (RUNBOOKS.parent / "metrics.md").read_text()
        named = set(re.findall(r"`(quintet_\w+)`", page.read_text()))
        assert {name for name in named if f"`{name}`" not in known} == set()


@pytest.mark.parametrize("words", commands_of("quintet"), ids=" ".join)
def test_commands_of_quintet_are_understood(words: list[str]) -> None:
    command: click.Command = main
    rest, path = list(words), []
    while isinstance(command, click.Group):
        path.append(rest.pop(0))
        found = command.get_command(click.Context(command), path[-1])
        assert found is not None, f"no such command: {path}"
        command = found
    context = command.make_context(" ".join(path), rest)
    assert not context.args


def test_a_command_that_is_not_there_would_be_found() -> None:
    assert CliRunner().invoke(main, ["queus"]).exit_code != 0


def test_commands_of_redis_are_carried_out(own_redis_server: RedisServer) -> None:
    client = shutil.which("redis-cli") or "valkey-cli"
    for words in commands_of("redis-cli"):
        asked = [client, "-s", own_redis_server.path, *words]
        ended = subprocess.run(asked, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, ""), words
        assert "ERR" not in ended.stdout, (words, ended.stdout)
