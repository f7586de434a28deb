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


# What listens where (a port of the README): part and listener.
LISTENERS = {
    "8080": ("text-queue", "text-queue"),
    "8009": ("job-centre", "job-centre"),
    "2606": ("taskflux", "taskflux"),
    "5555": ("zmq-kv", "zmq-kv"),
    "8005": ("etzel", "etzel-lines"),
    "50051": ("core", "core-grpc"),
}


def exchanges() -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command and program of the README, in order, with what it answers there."""
    told = re.findall(r"^```(console|python|text)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    program = ""
    for language, block in told:
        if language == "python":
            program = block
        elif language == "text":
            yield (sys.executable, "-c", program), block.rstrip("\n")
        else:
            yield from commands(block)


def commands(block: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command of a console block with what it answers there."""
    for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, answer = entry.partition("\n")
        yield (
            ("bash", "-c", command.replace(".venv/bin/quintet", f"{sys.executable} -m quintet_cli")),
            answer.rstrip("\n"),
        )


def run(running: Up, folder: Path, *words: str) -> str:
    """Run a command with the README's addresses moved to where `running` listens."""
    addresses = {port: running.address(*listener) for port, listener in LISTENERS.items()}
    moved = [re.sub(r"(?<=127\.0\.0\.1[ :])\d+", lambda port: str(addresses[port[0]][1]), word) for word in words]
    core = addresses["50051"]
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "QUINTET_TARGET": f"{core[0]}:{core[1]}", "LANG": "C.UTF-8"}
    return subprocess.run(moved, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.rstrip("\n")


def test_everything_answers_what_the_readme_says(tmp_path: Path) -> None:
    netcat = tmp_path / "nc"
    netcat.write_text(NETCAT)
    netcat.chmod(0o755)
    told = list(exchanges())
    with up(tmp_path / "data") as running:
        for command, answer in told:
            assert run(running, tmp_path, *command) == answer, command
    assert len(told) == 15
