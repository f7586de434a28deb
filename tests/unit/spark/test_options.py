"""Options of the source: what there is, and how all that is wrong is told at once."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructType
from quintet_spark.schemas import EVENTS, METRICS
from quintet_spark.source.options import ANY_KIND, BATCH, STREAM, Options, OptionsError, checked_schema
from quintet_spark.source.position import Position

CORE = {"endpoint": "127.0.0.1:50051"}


def test_only_the_endpoint_must_be_given() -> None:
    options = Options.of(CORE, STREAM)
    assert options.schema == EVENTS
    assert options.start == Position(word="earliest")
    assert options.fail_on_data_loss
    assert not options.consumer


def test_the_manual_has_every_option_with_its_default() -> None:
    manual = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    for each in fields(Options):
        default = each.default
        if isinstance(default, bool):
            default = str(default).lower()
        elif isinstance(default, Position):
            default = default.word
        name = each.metadata["name"]
        shown = {"endpoint": "must be given", "namespace": "all"}.get(name) or (f"`{default}`" if default else "none")
        assert f"| `{name}` | {shown} |" in manual


def test_names_are_taken_in_any_case_of_letters() -> None:
    options = Options.of({**CORE, "MAXEVENTSPERBATCH": "5", "Stream": "METRICS", "failondataloss": "False"}, STREAM)
    assert (options.events_max, options.schema, options.fail_on_data_loss) == (5, METRICS, False)


@pytest.mark.parametrize("endpoint", ["core:1", "unix:/run/core.sock", "[::1]:50051", "10.0.0.1:65535"])
def test_an_endpoint_is_a_host_and_port_or_a_socket(endpoint: str) -> None:
    assert Options.of({"endpoint": endpoint}, BATCH).endpoint == endpoint


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("endpoint", "core", "must be host:port"),
        ("endpoint", "core:65536", "must be host:port"),
        ("endpoint", "http://core:1", "must be host:port"),
        ("stream", "jobs", "must be events or metrics"),
        ("start", "soon", "must be earliest"),
        ("maxEventsPerBatch", "0", "whole number from 1"),
        ("splitEvents", "many", "whole number from 1"),
        ("consumer", "x" * 256, "1 to 255 bytes"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("retryMs", "-1", "whole number from 0"),
        ("tokenFile", "", "must not be empty"),
        ("consumers", "x", "no such option"),
        ("end", "latest", "is for a batch only"),
    ],
)
def test_a_fault_is_told_by_the_name_of_its_option(name: str, text: str, fault: str) -> None:
    with pytest.raises(OptionsError, match=rf"{name}.*{fault}"):
        Options.of({**CORE, name: text}, STREAM)


def test_a_batch_has_no_consumer_and_no_limit() -> None:
    with pytest.raises(OptionsError, match=r"consumer: is for a stream only; maxEventsPerBatch: is for a stream only"):
        Options.of({**CORE, "consumer": "me", "maxEventsPerBatch": "5"}, BATCH)
    assert Options.of({**CORE, "consumer": "me", "end": "latest"}, ANY_KIND)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(OptionsError) as caught:
        Options.of({"token": "hush", "tokenFile": "t", "certFile": "c", "retryMs": "x"}, STREAM)
    for told in ("endpoint: is missing", "token and tokenFile", "certFile and keyFile", "caFile", "retryMs"):
        assert told in str(caught.value)


def test_a_token_is_told_to_nobody() -> None:
    with pytest.raises(OptionsError) as caught:
        Options.of({"token": "hush-hush", "tokenFile": "t"}, STREAM)
    with pytest.raises(OptionsError) as empty:
        Options.of({**CORE, "token": ""}, STREAM)
    options = Options.of({**CORE, "token": "hush-hush"}, STREAM)
    assert not any("hush" in text for text in (str(caught.value), str(empty.value), repr(options), str(options)))
    assert options.credentials().metadata() == (("authorization", "Bearer hush-hush"),)


class TestASchema:
    """That a reader asks for."""

    def test_may_be_some_of_the_columns_in_any_order(self) -> None:
        wanted = StructType().add("kind", StringType()).add("offset", LongType(), nullable=False)
        assert checked_schema(wanted, Options.of(CORE, BATCH)) == wanted

    def test_has_all_its_faults_told_at_once(self) -> None:
        wanted = StructType().add("kind", LongType()).add("what", StringType()).add("kind", LongType())
        with pytest.raises(OptionsError, match=r"kind: is string, not bigint; what: there is no such column.*twice"):
            checked_schema(wanted, Options.of(CORE, BATCH))

    def test_has_a_column_at_least(self) -> None:
        with pytest.raises(OptionsError, match="at least one"):
            checked_schema(StructType(), Options.of(CORE, BATCH))
