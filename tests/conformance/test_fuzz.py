"""Arbitrary bytes to every port: no crash, no hang, no leak of connections, valid clients undisturbed."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest
from websockets.frames import Close, Frame, Opcode

from tests.support import taskflux as tf
from tests.support.clients import Address, JobCentreClient, TextClient, connect, reset
from tests.support.etzel import EtzelClient, EtzelLinesClient, EtzelWebSocketClient
from tests.support.stack import AdapterPart, Stack, until
from tests.support.taskflux import TaskFluxClient

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
TASKFLUX_WORDS = (
    *(tf.enqueue("f", -5, b"hi"), tf.dequeue("f"), tf.dequeue("f", 50), tf.dequeue("f", 2**32 - 1), tf.count("f")),
    *(tf.create("f", 2, 100, 1024, (-10, 10)), tf.create("f"), tf.delete("f"), tf.LIST, tf.METADATA, tf.HAND_SHAKE),
    *(tf.ACK, tf.ACK_TOO, tf.NACK) * 4,
    *(b"CE\1f", b"\xff" * 8, b"\0" * 9, b"c", b"d\1", b"cl\0\1\0\0", b"m\0\0\0\3", b"e", b"l", b"k", b"C", b"x" * 5000),
)
ETZEL_REQUESTS = (
    b'{"cmd":"SUB","qname":"f"}',
    b'{"cmd":"ISLP","qname":"f"}',
    b'{"cmd":"PUB","qname":"f","message":{"a":[1,{}]}}',
    b'{"cmd":"PUB","qname":"f","message":1,"timeout":5,"delay":0.1,"expires":1e999}',
    b'{"cmd":"FET","qname":"f"}',
    b'{"cmd":"ACK","qname":"f","uid":"0000000000000011"}',
)
ETZEL_WORDS = (
    *(request + b"\n" for request in ETZEL_REQUESTS),
    *(b"\n", b"{", b'"', b"\\", b"\\ud800", b"[" * 3000, b"9" * 3000, b"\x00", b"\xff", b"\r", b"null", b'"cmd":'),
)
HANDSHAKE = (
    b"GET /connect HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    """As a client sends it."""
    return Frame(opcode, data, fin).serialize(mask=True)


WEBSOCKET_WORDS = (
    *(frame(Opcode.TEXT, request) for request in ETZEL_REQUESTS * 2),
    *(frame(Opcode.TEXT, ETZEL_REQUESTS[2][:9], fin=False), frame(Opcode.CONT, ETZEL_REQUESTS[2][9:])),
    *(frame(Opcode.CONT, b"", fin=False), frame(Opcode.PING, b"p"), frame(Opcode.PONG), frame(Opcode.BINARY, b"b")),
    *(frame(Opcode.CLOSE), frame(Opcode.CLOSE, Close(1000, "bye").serialize()), frame(Opcode.TEXT, b"\xff")),
    *(b"\xc1\x85mask\x00\x00\x00\x00\x00", b"\x81\xff\xff", b"\x81\xfe\x7f\xff", b"\x81\x05hello", b"\x81", HANDSHAKE),
)


@dataclass(frozen=True)
class Port:
    """A port to torment, and how a valid client finds that it still serves."""

    protocol: str
    listener: str
    words: tuple[bytes, ...]
    works: Callable[[Address], None]
    greeting: bytes = b""
    """What most of the tormentors begin with."""

    def address(self, adapter: AdapterPart) -> Address:
        return adapter.address_of(self.listener)


def nonsense(chance: random.Random, words: tuple[bytes, ...]) -> bytes:
    """Words of the protocol and noise, some of it damaged."""
    data = bytearray()
    for _ in range(chance.randrange(1, 8)):
        data += chance.choice(words) if chance.random() < 0.8 else chance.randbytes(chance.randrange(50))
    for _ in range(chance.choice((0, 0, 1, 3))):
        data[chance.randrange(len(data)) if data else 0 : 0] = chance.randbytes(1)
    return bytes(data)


def torment(address: Address, words: tuple[bytes, ...], greeting: bytes, seed: int) -> None:
    """One client that knows no manners: sends nonsense in pieces and leaves in some way."""
    chance = random.Random(seed)
    connection = connect(address)
    connection.settimeout(0.05)
    with suppress(OSError):
        if chance.random() < 0.8:
            connection.sendall(greeting)
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
        stack.further_adapter("etzel", QUINTET_HANDSHAKE_MS="1000").start()
        stack.further_adapter("taskflux", QUINTET_IDLE_TIMEOUT_MS="1000").start()
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


def taskflux_works(address: Address) -> None:
    with TaskFluxClient(address) as client:
        assert client.ask(tf.create("valid")) in (tf.Ok(), tf.Error(3))
        assert client.put("valid", b"data", -1) == tf.Ok()
        assert client.take("valid", 1000) == tf.Record(-1, b"data")


def etzel_works(client: EtzelClient) -> None:
    with client:
        client.subscribe("valid")
        client.sleep("valid")
        uid = client.publish("valid", {"a": 1})
        assert client.awake() == "valid"
        assert client.fetch("valid")["uid"] == uid
        client.acknowledge("valid", uid)


PORTS = (
    Port("text-queue", "text-queue", TEXT_WORDS, text_works),
    Port("job-centre", "job-centre", JOB_CENTRE_WORDS, job_centre_works),
    Port("taskflux", "taskflux", TASKFLUX_WORDS, taskflux_works, tf.HAND_SHAKE),
    Port("etzel", "etzel-lines", ETZEL_WORDS, lambda address: etzel_works(EtzelLinesClient(address))),
    Port("etzel", "etzel", WEBSOCKET_WORDS, lambda address: etzel_works(EtzelWebSocketClient(address)), HANDSHAKE),
)


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.listener)
def test_nonsense_hurts_nobody(fuzzed: Stack, port: Port) -> None:
    print(f"FUZZ_SEED={SEED} FUZZ_ROUNDS={ROUNDS}")
    adapter = next(part for part in fuzzed.parts if isinstance(part, AdapterPart) and part.protocol == port.protocol)
    address, pid = port.address(adapter), adapter.pid
    with ThreadPoolExecutor(16) as pool:
        tormentors = [
            pool.submit(torment, address, port.words, port.greeting, SEED + number) for number in range(ROUNDS)
        ]
        for number in range(20):
            tormentors[number * ROUNDS // 20].result()
            port.works(address)
        for tormentor in tormentors:
            tormentor.result()
    until(lambda: has_no_connections(adapter), "every connection to be gone")
    port.works(address)
    assert (adapter.is_running, adapter.pid) == (True, pid)
    assert "Traceback" not in adapter.log.read_text()
    assert "Traceback" not in fuzzed.core.log.read_text()


def has_no_connections(adapter: AdapterPart) -> bool:
    metrics = adapter.metrics()
    return metrics["quintet_adapter_connections"] == 0 and metrics["quintet_adapter_operations_in_flight"] == 0
