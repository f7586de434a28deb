"""Tokens and what they allow."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from quintet_core.rpc.access import EVERYTHING, Tokens

TABLE = '[[token]]\ntoken = "t"\nnamespaces = ["a", "b-*"]\nverbs = ["enqueue"]\n'


def load(folder: Path, text: str) -> Tokens:
    path = folder / "tokens.toml"
    path.write_text(text)
    return Tokens.load(path)


def test_a_token_allows_its_verbs_in_its_namespaces(tmp_path: Path) -> None:
    access = load(tmp_path, TABLE).access_of("Bearer t")
    assert access is not None
    assert not access.unlimited
    allowed = [name for name in ("a", "b-", "b-1", "b", "ab", "") if access.allows("enqueue", name)]
    assert allowed == ["a", "b-", "b-1"]
    assert not access.allows("dequeue", "a")
    assert access.allows_verb("enqueue")
    assert not access.allows_verb("dequeue")


def test_a_token_may_be_given_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"t").hexdigest().upper()
    tokens = load(tmp_path, TABLE.replace('token = "t"', f'sha256 = "{digest}"'))
    assert tokens.access_of("bearer t") is not None


@pytest.mark.parametrize("header", ["", "t", "Bearer", "Bearer ", "Bearer T", "Basic t", "Bearer t t"])
def test_any_other_header_has_no_access(tmp_path: Path, header: str) -> None:
    assert load(tmp_path, TABLE).access_of(header) is None


def test_stars_allow_everything(tmp_path: Path) -> None:
    text = TABLE.replace('["a", "b-*"]', '["*"]').replace('["enqueue"]', '["*"]')
    access = load(tmp_path, text).access_of("Bearer t")
    assert access is not None
    assert access.unlimited
    assert access.allows("purge", "anything")
    assert EVERYTHING.unlimited


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no [[token]]"),
        ("token = 7", "holds no [[token]]"),
        ("[[token", "Expected"),
        (TABLE.replace('token = "t"\n', ""), "needs either token or sha256"),
        (TABLE.replace('token = "t"', 'token = ""'), "token must be text"),
        (TABLE.replace('token = "t"', 'sha256 = "abc"'), "64 hexadecimal digits"),
        (TABLE.replace('["enqueue"]', "[]"), "verbs must be a list of words"),
        (TABLE.replace('["enqueue"]', '["enqueue", "fly"]'), "verb 'fly' is unknown"),
        (TABLE.replace('["a", "b-*"]', '"a"'), "namespaces must be a list of words"),
        (TABLE + 'colour = "red"', "colour is unknown"),
    ],
)
def test_faults_of_the_file_are_named(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        load(tmp_path, text)
    assert fault in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token 1") as caught:
        load(tmp_path, TABLE.replace("enqueue", "fly") + TABLE.replace("enqueue", "swim"))
    assert "token 2: verb 'swim'" in str(caught.value)
