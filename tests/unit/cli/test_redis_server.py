"""The child Redis is found, checked and told to fsync every change: on a real redis-server."""

import subprocess
from pathlib import Path

import click
import pytest
from quintet_cli.up.redis_server import RedisServer, find
from redis.asyncio import Redis


def program(folder: Path, says: str) -> Path:
    path = folder / "redis-server"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_server_in_path_is_found() -> None:
    assert find(None).exists()


@pytest.mark.parametrize(
    "says", ["Redis server v=7.0.0 sha=0", "Valkey server v=8.1.3 sha=0", "Redis server v=10.0.1 x"]
)
def test_a_server_that_is_recent_enough_is_taken(tmp_path: Path, says: str) -> None:
    path = program(tmp_path, says)
    assert find(path) == path


@pytest.mark.parametrize(
    ("says", "found"), [("Redis server v=6.2.16 sha=0", "is 6.2.16"), ("hello", "is not one")], ids=["old", "other"]
)
def test_any_other_program_is_refused_with_what_was_found(tmp_path: Path, says: str, found: str) -> None:
    with pytest.raises(click.ClickException, match=rf"needs redis-server 7.0 or later.*{found}"):
        find(program(tmp_path, says))


def test_no_server_at_all_is_a_message_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(click.ClickException, match="apt-get install redis-server"):
        find(None)


async def test_it_runs_with_an_append_only_file_that_is_always_synced(tmp_path: Path) -> None:
    server = RedisServer(program=find(None), data=tmp_path, socket=tmp_path / "s")
    with subprocess.Popen(server.command()) as process:
        try:
            assert await server.wait_ready(process.pid) == {"redis": f"unix:{tmp_path / 's'}"}
            async with Redis.from_url(server.url, decode_responses=True) as redis:
                settings = await redis.config_get("append*", "no-appendfsync-on-rewrite", "maxmemory-policy", "save")
            assert settings["appendonly"] == "yes"
            assert settings["appendfsync"] == "always"
            assert settings["no-appendfsync-on-rewrite"] == "no"
            assert settings["maxmemory-policy"] == "noeviction"
            assert settings["save"] == ""
        finally:
            process.terminate()
