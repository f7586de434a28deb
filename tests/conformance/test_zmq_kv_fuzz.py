"""Arbitrary messages and arbitrary bytes to both ZeroMQ ports: no crash, no hang, valid clients undisturbed."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.clients import Address, connect, reset
from tests.support.stack import AdapterPart, Stack, until
from tests.support.zmq_kv import (
    OK,
    UPDATED,
    DealerClient,
    ReqClient,
    SubClient,
    notifications_of,
    requests_of,
    ttl,
)

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1, 2**32)
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32)
_READY = b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
WORDS = (
    *(b"", b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"valid", b"fuzz", b"k", b"v", ttl(0), ttl(1)),
    *(ttl(2**64 - 1), b"\xff", b"a\x00b", b"n" * 255, b"k" * 65, b"v" * 1025, b"x" * 70_000, b"\xed\xa0\x80"),
)
PIECES = (
    *(_GREETING, _GREETING[:11], b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f", b"\x03\x00NULL", b"CURVE", b"PLAIN"),
    *(_READY, b"\x04\x05\x05READY", b"\x04\xff", b"\x06" + bytes(7) + b"\x10", b"\x02\xff" + b"\xff" * 7),
    *(
        b"\x01\x00",
        b"\x00\x01\x02",
        b"\x01\x01\x02\x00\x05valid",
        b"\x00\x06\x01valid",
        b"\x00\x00",
        b"\x04\x05\x04PING",
    ),
    b"\x01\x00\x01\x01\x02\x01\x05valid\x01\x01k\x00\x01v",
)


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[AdapterPart]:
    with Stack() as stack:
        adapter = stack.further_adapter("zmq-kv")
        adapter.start()
        with ReqClient(requests_of(adapter)) as client:
            assert client.create_table(b"valid") == [OK]
        yield adapter
        assert "Traceback" not in stack.core.log.read_text()


def frames(chance: random.Random) -> list[bytes]:
    """Words of the protocol, and noise."""
    return [
        chance.choice(WORDS) if chance.random() < 0.9 else chance.randbytes(chance.randrange(100))
        for _ in range(chance.randrange(1, 8))
    ]


def speak_nonsense(adapter: AdapterPart, seed: int) -> None:
    """A client whose every message gets one reply, behind the envelope it has."""
    chance = random.Random(seed)
    with DealerClient(requests_of(adapter)) as client:
        messages = [frames(chance) for _ in range(chance.randrange(1, 40))]
        for message in messages:
            client.send(*message)
        for message in messages:
            reply = client.read()
            envelope = [] if len(message[0]) == 1 or b"" not in message else message[: message.index(b"") + 1]
            assert reply[: len(envelope)] == envelope
            assert reply[len(envelope)] in (b"\x00", b"\x01")
            assert len(reply) - len(envelope) in (1, 2)


def torment(address: Address, seed: int) -> None:
    """Somebody who speaks no ZMTP, or speaks it badly, and leaves in some way."""
    chance = random.Random(seed)
    connection = connect(address)
    connection.settimeout(0.05)
    with suppress(OSError):
        if chance.random() < 0.6:
            connection.sendall(_GREETING + (_READY if chance.random() < 0.7 else b""))
        for _ in range(chance.randrange(1, 5)):
            data = bytearray(b"".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 5))))
            for _ in range(chance.choice((0, 0, 1, 5))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            connection.sendall(bytes(data))
            if chance.random() < 0.5:
                connection.recv(chance.choice((1, 65536)))
        if chance.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)
    if chance.random() < 0.3:
        reset(connection)
    connection.close()


def works(adapter: AdapterPart) -> None:
    with SubClient(notifications_of(adapter), b"valid") as subscriber, ReqClient(requests_of(adapter)) as client:
        assert client.update(b"valid", b"works", b"v") == [OK]
        assert client.get(b"valid", b"works") == [OK, b"v"]
        while subscriber.is_silent(100):
            client.update(b"valid", b"works", b"v")
        assert subscriber.hear(1)[0][:2] == (b"valid", UPDATED)


def test_every_message_gets_one_reply(fuzzed: AdapterPart) -> None:
    print(f"FUZZ_SEED={SEED} FUZZ_ROUNDS={ROUNDS}")
    with ThreadPoolExecutor(8) as pool:
        speakers = [pool.submit(speak_nonsense, fuzzed, SEED + number) for number in range(ROUNDS)]
        for speaker in speakers:
            speaker.result()
    with ReqClient(requests_of(fuzzed)) as client:
        client.create_table(b"valid")  # one of them may have deleted it
    works(fuzzed)
    assert "Traceback" not in fuzzed.log.read_text()


@pytest.mark.parametrize("listener", ["zmq-kv", "zmq-kv-pub"])
def test_arbitrary_bytes_hurt_nobody(fuzzed: AdapterPart, listener: str) -> None:
    print(f"FUZZ_SEED={SEED} FUZZ_ROUNDS={ROUNDS}")
    pid = fuzzed.pid
    address = fuzzed.address_of(listener)
    with ReqClient(requests_of(fuzzed)) as client:
        client.create_table(b"valid")
    with ThreadPoolExecutor(16) as pool:
        tormentors = [pool.submit(torment, address, SEED + number) for number in range(ROUNDS)]
        for number in range(5):
            tormentors[number * ROUNDS // 5].result()
            works(fuzzed)
        for tormentor in tormentors:
            tormentor.result()
    until(lambda: fuzzed.metrics()["quintet_adapter_connections"] == 0, "every connection to be gone")
    works(fuzzed)
    assert (fuzzed.is_running, fuzzed.pid) == (True, pid)
    assert "Traceback" not in fuzzed.log.read_text()
