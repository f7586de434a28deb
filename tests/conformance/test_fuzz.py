"""Arbitrary bytes to both ports: no crash, no hang, no leak of connections, valid clients undisturbed."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.clients import Address, JobCentreClient, TextClient, connect, reset
from tests.support.stack import AdapterPart, Stack, until

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1, 2**32)

JOB_CENTRE_WORDS = (
    b'{"request":"put","queue":"f","job":{"a":[1,{}]},"pri":1}\n',
    b'{"request":"get","queues":["f"]}\n',
    b'{"request":"get","queues":["f"],"wait":true}\n',
    b'{"request":"get","queues":[],"wait":true}\n',
    b'{"request":"delete","id":17}\n',
    b'{"request":"abort","id":17}\n',
    *(b"\n", b"{", b'"', b"\\", b"\\ud800", b"[" * 3000, b"9" * 3000, b"\x00", b"\xff", b"\r", b"null", b'"request":'),
)
TEXT_WORDS = (
    *(b"ADD f 5 hello", b"ADD f 1000000 ", b"ADD f 0 ", b"GET f\n", b"GET f", b"ACK f 0000000000000011", b"IN f x\n"),
    *(b"ADD ", b" ", b"\n", b"\r\n", b"f", b"99999999999999999999 ", b"\x00", b"\xff", b"SAVE\n", b"x" * 5000),
)


def nonsense(chance: random.Random, words: tuple[bytes, ...]) -> bytes:
    """Words of the protocol and noise, some of it damaged."""
    data = bytearray()
    for _ in range(chance.randrange(1, 8)):
        data += chance.choice(words) if chance.random() < 0.8 else chance.randbytes(chance.randrange(50))
    for _ in range(chance.choice((0, 0, 1, 3))):
        data[chance.randrange(len(data)) if data else 0 : 0] = chance.randbytes(1)
    return bytes(data)


def torment(address: Address, words: tuple[bytes, ...], seed: int) -> None:
    """One client that knows no manners: sends nonsense in pieces and leaves in some way."""
    chance = random.Random(seed)
    connection = connect(address)
    connection.settimeout(0.05)
    with suppress(OSError):
        for _ in range(chance.randrange(1, 4)):
            connection.sendall(nonsense(chance, words))
            if chance.random() < 0.5:
                connection.recv(chance.choice((1, 65536)))
    with suppress(OSError):
        if chance.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)
    if chance.random() < 0.3:
        reset(connection)
    connection.close()


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Stack]:
    with Stack(QUINTET_READ_TIMEOUT_MS="1000") as stack:
        yield stack


def text_works(address: Address) -> None:
    text = TextClient(address)
    job_id = text.add("valid", b"data")
    assert text.get("valid") == (job_id, b"data")
    assert text.ack("valid", job_id) == b"OK"


def job_centre_works(address: Address) -> None:
    with JobCentreClient(address) as client:
        job_id = client.put("valid", {"a": 1}, 3)
        assert client.get("valid", wait=True)["id"] == job_id
        assert client.delete(job_id) == "ok"


@pytest.mark.parametrize(
    ("protocol", "words", "works"),
    [("text-queue", TEXT_WORDS, text_works), ("job-centre", JOB_CENTRE_WORDS, job_centre_works)],
)
def test_nonsense_hurts_nobody(
    fuzzed: Stack, protocol: str, words: tuple[bytes, ...], works: Callable[[Address], None]
) -> None:
    print(f"FUZZ_SEED={SEED} FUZZ_ROUNDS={ROUNDS}")
    adapter = next(adapter for adapter in fuzzed.adapters if adapter.protocol == protocol)
    pid = adapter.pid
    with ThreadPoolExecutor(16) as pool:
        tormentors = [pool.submit(torment, adapter.address, words, SEED + number) for number in range(ROUNDS)]
        for number in range(20):
            tormentors[number * ROUNDS // 20].result()
            works(adapter.address)
        for tormentor in tormentors:
            tormentor.result()
    until(lambda: has_no_connections(adapter), "every connection to be gone")
    works(adapter.address)
    assert (adapter.is_running, adapter.pid) == (True, pid)
    assert "Traceback" not in adapter.log.read_text()
    assert "Traceback" not in fuzzed.core.log.read_text()


def has_no_connections(adapter: AdapterPart) -> bool:
    metrics = adapter.metrics()
    return metrics["quintet_adapter_connections"] == 0 and metrics["quintet_adapter_operations_in_flight"] == 0
