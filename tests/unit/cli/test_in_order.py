"""Commands are there by their names, and imported when they are wanted."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from quintet_cli.__main__ import main
from quintet_cli.commands import MODULES


@pytest.mark.parametrize("name", ["up", *MODULES])
def test_a_command_is_found_by_its_name(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name


def test_help_lists_all_commands_in_their_order() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output.partition("Commands:\n")[2]
    assert [line.split()[0] for line in shown.splitlines()] == ["up", *MODULES]


def test_a_name_that_is_nearly_one_is_answered_with_what_may_have_been_meant() -> None:
    answer = CliRunner().invoke(main, ["quues"])
    assert answer.exit_code == 2
    assert "Did you mean 'queues'?" in answer.output


def test_a_command_imports_nothing_that_only_others_need() -> None:
    program = (
        "import sys; from quintet_cli.__main__ import main; main(['put', '--help'], standalone_mode=False);"
        "print({'pydantic', 'rich', 'structlog'} & set(sys.modules))"
    )
    run = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert run.stdout.endswith("\nset()\n")
