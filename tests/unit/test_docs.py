"""What the hand-written pages say of the code is what the code says."""

import re
from pathlib import Path

import pytest
from quintet.v1.reason_pb2 import Reason
from quintet.v1.session_service_pb2 import Failure
from quintet_adapters.messages import explain
from quintet_core.domain.errors import Reason as CoreReason
from quintet_core.rpc.status import CODES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REASONS = [value.name for value in CoreReason]


def rows_of_reasons() -> dict[str, tuple[str, str]]:
    """The code and the words of each reason, as docs/protocols.md has them."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", (ROOT / "docs/protocols.md").read_text(), re.MULTILINE)
    return {reason: (code, words) for reason, code, words in rows}


def test_every_reason_is_in_the_table_of_protocols() -> None:
    assert list(rows_of_reasons()) == REASONS


@pytest.mark.parametrize("reason", REASONS)
def test_the_table_of_protocols_is_true(reason: str) -> None:
    failure = Failure(reason=Reason.Value(f"REASON_{reason}"), message="what is wrong", metadata={"max": "N"})
    assert rows_of_reasons()[reason] == (CODES[CoreReason[reason]].name, explain(failure))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    links = {link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)}
    paths = set(re.findall(r"`((?:tests|docs|service|adapters|proto|tools)/[\w./-]+)`", text))
    missing = {link for link in links if link and not (page.parent / link).exists()}
    assert missing | {path for path in paths if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_that_a_page_names_are_settings(page: Path) -> None:
    known = (ROOT / "docs/settings.md").read_text()
    named = set(re.findall(r"\bQUINTET_[A-Z_]+[A-Z]\b", page.read_text()))
    tests_only = {"QUINTET_TEST_EXAMPLES", "QUINTET_FAULT_SEED", "QUINTET_FAULT_ROUNDS"}
    assert {name for name in named - tests_only if f"`{name}`" not in known} == set()
