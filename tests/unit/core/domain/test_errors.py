"""Reasons are those of the API, each with a sentence of its own."""

from __future__ import annotations

from quintet.v1 import reason_pb2
from quintet_core.domain.errors import SENTENCES, Reason


def test_reasons_are_those_of_the_api_by_the_same_numbers() -> None:
    theirs = {name.removeprefix("REASON_"): number for name, number in reason_pb2.Reason.items() if number}
    assert {reason.name: reason.value for reason in Reason} == theirs


def test_each_reason_has_a_sentence_of_its_own() -> None:
    assert set(SENTENCES) == set(Reason)
    assert len(set(SENTENCES.values())) == len(Reason)
