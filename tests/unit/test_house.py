"""The house's rules that no linter knows, held over the sources themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("service", "adapters", "spark-operator")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "__init__.py"
)
LINES_MAX = 550
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "types", "misc"}
ENVIRONMENT_READERS = {ROOT / "service/quintet_kit/environment.py"}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", SOURCES, ids=named)
class TestEverySource:
    """One file of the sources."""

    def test_has_a_name_that_says_what_is_in_it(self, path: Path) -> None:
        assert not VAGUE_NAMES & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}

    def test_is_short_enough_to_read_at_one_sitting(self, path: Path) -> None:
        assert len(path.read_text().splitlines()) <= LINES_MAX

    def test_begins_by_saying_what_it_is_for(self, path: Path) -> None:
        assert ast.get_docstring(ast.parse(path.read_text())), "a module docstring is missing"

    def test_has_no_function_too_long_to_follow(self, path: Path) -> None:
        long = [
            node.name
            for node in functions(ast.parse(path.read_text()))
            if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
        ]
        assert not long

    def test_leaves_the_environment_to_the_kit(self, path: Path) -> None:
        if path in ENVIRONMENT_READERS:
            return
        reads = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
        ]
        assert not reads


def test_the_median_function_is_short() -> None:
    lengths = sorted(
        len(node.body) and (node.end_lineno or 0) - node.body[0].lineno + 1
        for path in SOURCES
        for node in functions(ast.parse(path.read_text()))
    )
    assert lengths[len(lengths) // 2] < 10
