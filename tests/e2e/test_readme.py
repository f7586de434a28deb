"""The README's five minutes, as a reader types them: each command answers what stands below it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.up import Up, up

README = Path(__file__).parents[2] / "README.md"

# In place of netcat, of which there are several: `nc [-N] HOST PORT`, -N ends the sending with the input.
NETCAT = f"""#!{sys.executable}
import socket, sys
*options, host, port = sys.argv[1:]
with socket.create_connection((host, int(port))) as connection:
    connection.sendall(sys.stdin.buffer.read())
    if "-N" in options:
        connection.shutdown(socket.SHUT_WR)
    while data := connection.recv(65536):
        sys.stdout.buffer.write(data)
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    """Each command of the console blocks with what it answers there."""
    for block in blocks("console"):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, answer = entry.partition("\n")
            yield command, answer.rstrip("\n")


def run(running: Up, folder: Path, *words: str) -> str:
    """Run a command with the README's addresses moved to where `running` listens."""
    ports = {"8080": running.address("text-queue"), "8009": running.address("job-centre")}
    ports["50051"] = core = running.address("core", "core-grpc")
    moved = [re.sub(r"(?<=127\.0\.0\.1[ :])\d+", lambda port: str(ports[port[0]][1]), word) for word in words]
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "QUINTET_TARGET": f"{core[0]}:{core[1]}", "LANG": "C.UTF-8"}
    return subprocess.run(moved, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.rstrip("\n")


def test_every_command_answers_what_the_readme_says(tmp_path: Path) -> None:
    netcat = tmp_path / "nc"
    netcat.write_text(NETCAT)
    netcat.chmod(0o755)
    told = list(commands())
    [example] = blocks("python")
    with up(tmp_path / "data") as running:
        for command, answer in told:
            command = command.replace(".venv/bin/quintet", f"{sys.executable} -m quintet_cli")
            assert run(running, tmp_path, "bash", "-c", command) == answer, command
        assert run(running, tmp_path, sys.executable, "-c", example) == "to ada\nto grace"
    assert len(told) == 8
