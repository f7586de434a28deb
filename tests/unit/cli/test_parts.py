"""The parts of `quintet up` and the ports they get."""

import socket
from pathlib import Path

import click
import pytest
from quintet_cli.up.everything import check_ports
from quintet_cli.up.parts import Part, parts
from quintet_cli.up.settings import UpSettings


def all_parts(**given: object) -> dict[str, Part]:
    core, adapters = parts(UpSettings.model_validate(given), "unix:///r.sock", Path("/c.sock"))
    return {part.name: part for part in (core, *adapters)}


def test_the_default_ports_are_the_documented_ones() -> None:
    ports = {name: part.ports({}) for name, part in all_parts().items()}
    assert ports == {
        "core": {"QUINTET_CORE_PORT": "50051", "QUINTET_METRICS_PORT": "9100"},
        "text-queue": {"QUINTET_PORT": "8080", "QUINTET_METRICS_PORT": "9101"},
        "job-centre": {"QUINTET_PORT": "8009", "QUINTET_METRICS_PORT": "9102"},
        "taskflux": {"QUINTET_PORT": "2606", "QUINTET_METRICS_PORT": "9103"},
        "zmq-kv": {"QUINTET_PORT": "5555", "QUINTET_PUB_PORT": "5556", "QUINTET_METRICS_PORT": "9104"},
        "etzel": {"QUINTET_PORT": "8004", "QUINTET_LINES_PORT": "8005", "QUINTET_METRICS_PORT": "9105"},
    }


def test_the_offset_moves_every_port() -> None:
    assert all_parts(port_offset=10_000)["text-queue"].ports({}) == {
        "QUINTET_PORT": "18080",
        "QUINTET_METRICS_PORT": "19101",
    }


def test_the_dialect_of_one_protocol_is_not_that_of_another() -> None:
    parts = all_parts(taskflux_dialect="csharp")
    assert parts["taskflux"].environment["QUINTET_DIALECT"] == "csharp"
    assert "QUINTET_DIALECT" not in parts["text-queue"].environment
    assert all_parts()["taskflux"].environment["QUINTET_DIALECT"] == "document"


def test_any_port_leaves_every_choice_to_the_system() -> None:
    assert {port for part in all_parts(any_port=True).values() for port in part.ports({}).values()} == {"0"}


def test_a_part_that_starts_again_keeps_the_ports_it_had() -> None:
    chosen = {"job-centre": "127.0.0.1:41001", "metrics": "[::1]:41002"}
    assert all_parts(any_port=True)["job-centre"].ports(chosen) == {
        "QUINTET_PORT": "41001",
        "QUINTET_METRICS_PORT": "41002",
    }


def test_ports_that_are_taken_are_named_all_at_once_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        core_port, text_port = one.getsockname()[1], two.getsockname()[1]
        taken = all_parts(core_port=core_port, text_queue_port=text_port, job_centre_port=0, metrics_port=0)
        with pytest.raises(click.ClickException) as refusal:
            check_ports("127.0.0.1", taken.values())
    assert refusal.value.message.splitlines()[1:3] == [
        f"  port {core_port} (core): Address already in use",
        f"  port {text_port} (text-queue): Address already in use",
    ]


def test_an_offset_that_leads_past_the_last_port_is_refused() -> None:
    with pytest.raises(ValueError, match="must keep every port at most 65535"):
        UpSettings(port_offset=20_000)
