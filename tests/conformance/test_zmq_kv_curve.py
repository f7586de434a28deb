"""CURVE on both ports of the ZeroMQ key-value adapter: who holds a listed key gets in, nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zmq
import zmq.auth

from tests.support.stack import AdapterPart, Stack, until
from tests.support.zmq_kv import OK, ReqClient, SubClient, notifications_of, requests_of


class Keys(NamedTuple):
    """A pair in Z85."""

    public: bytes
    secret: bytes


SERVER, LISTED, UNLISTED, LATE = (Keys(*zmq.curve_keypair()) for _ in range(4))


@pytest.fixture(scope="module")
def client_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client_keys")
    (folder / "listed.pub").write_bytes(LISTED.public + b"\n")
    (folder / "not a key").write_bytes(b"nonsense")
    (folder / "empty").touch()
    return folder


@pytest.fixture(scope="module")
def adapter(stack: Stack, client_keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdapterPart]:
    secret = tmp_path_factory.mktemp("server_key") / "secret"
    secret.write_bytes(SERVER.secret + b"\n")
    part = stack.further_adapter(
        "zmq-kv", QUINTET_CURVE_SECRET_KEY_FILE=str(secret), QUINTET_CURVE_CLIENT_KEYS=str(client_keys)
    )
    part.start()
    yield part
    part.kill9()


def curve(keys: Keys, server: Keys = SERVER) -> dict[int, int | bytes]:
    return {
        zmq.CURVE_SERVERKEY: server.public,
        zmq.CURVE_PUBLICKEY: keys.public,
        zmq.CURVE_SECRETKEY: keys.secret,
        zmq.HANDSHAKE_IVL: 1000,
    }


def handshake_of(kind: int, endpoint: str, options: dict[int, int | bytes]) -> int:
    """How the first handshake of a new client ends: the event that its socket's monitor tells."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(kind)
    for option, value in options.items():
        socket.setsockopt(option, value)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    monitor.setsockopt(zmq.RCVTIMEO, 30_000)
    socket.connect(endpoint)
    event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
    socket.disable_monitor()
    context.destroy(linger=0)
    return event


class TestKeys:
    def test_that_are_listed_open_both_ports(self, adapter: AdapterPart) -> None:
        with ReqClient(requests_of(adapter), curve(LISTED)) as client:
            assert client.create_table(b"sealed") == [OK]
            with SubClient(notifications_of(adapter), b"", options=curve(LISTED)) as subscriber:
                assert client.update(b"sealed", b"k", b"v") == [OK]
                assert subscriber.hear(1) == [(b"sealed", b"\x00", b"k")]

    @pytest.mark.parametrize(
        "options",
        [curve(UNLISTED), {zmq.HANDSHAKE_IVL: 1000}, curve(LISTED, server=UNLISTED)],
        ids=["unlisted", "none", "another server's"],
    )
    def test_that_are_not_open_neither(self, adapter: AdapterPart, options: dict[int, int | bytes]) -> None:
        assert handshake_of(zmq.DEALER, requests_of(adapter), options) == zmq.EVENT_DISCONNECTED
        assert handshake_of(zmq.SUB, notifications_of(adapter), options) == zmq.EVENT_DISCONNECTED

    def test_refused_are_counted(self, adapter: AdapterPart) -> None:
        before = adapter.metrics()["quintet_adapter_connections_refused_total"]
        assert handshake_of(zmq.DEALER, requests_of(adapter), curve(UNLISTED)) == zmq.EVENT_DISCONNECTED
        assert adapter.metrics()["quintet_adapter_connections_refused_total"] > before

    def test_may_come_and_go_while_the_adapter_runs(self, adapter: AdapterPart, client_keys: Path) -> None:
        assert handshake_of(zmq.DEALER, requests_of(adapter), curve(LATE)) == zmq.EVENT_DISCONNECTED
        certificate, _ = zmq.auth.create_certificates(client_keys, "late")
        public, secret = zmq.auth.load_certificate(f"{certificate}_secret")
        assert secret is not None
        certified = curve(Keys(public, secret))
        until(
            lambda: handshake_of(zmq.DEALER, requests_of(adapter), certified) == zmq.EVENT_HANDSHAKE_SUCCEEDED,
            "the new key to be listed",
        )
        for path in client_keys.glob("late*"):
            path.unlink()
        until(
            lambda: handshake_of(zmq.DEALER, requests_of(adapter), certified) == zmq.EVENT_DISCONNECTED,
            "the key to be listed no longer",
        )


class TestSettings:
    @pytest.mark.parametrize(
        ("variables", "fault"),
        [
            ({"QUINTET_CURVE_SECRET_KEY": "x" * 39}, "QUINTET_CURVE_CLIENT_KEYS must be set together"),
            ({"QUINTET_CURVE_CLIENT_KEYS": "/nowhere"}, "QUINTET_CURVE_CLIENT_KEYS must be set together"),
            (
                {"QUINTET_CURVE_SECRET_KEY": "secret", "QUINTET_CURVE_CLIENT_KEYS": "/nowhere"},
                "QUINTET_CURVE_SECRET_KEY: value (secret), must be 40 characters of Z85",
            ),
        ],
    )
    def test_half_of_them_are_faults(self, stack: Stack, variables: dict[str, str], fault: str) -> None:
        adapter = stack.further_adapter("zmq-kv")
        adapter.environment.update(variables)
        with pytest.raises(RuntimeError):
            adapter.start()
        log = adapter.log.read_text()
        assert fault in log
        assert "value (secret)" in log or "secret'" not in log

    def test_a_directory_that_cannot_be_read_lets_nobody_in(self, stack: Stack, tmp_path: Path) -> None:
        adapter = stack.further_adapter(
            "zmq-kv",
            QUINTET_CURVE_SECRET_KEY=SERVER.secret.decode(),
            QUINTET_CURVE_CLIENT_KEYS=str(tmp_path / "nowhere"),
        )
        adapter.start()
        assert handshake_of(zmq.DEALER, requests_of(adapter), curve(LISTED)) == zmq.EVENT_DISCONNECTED
        assert "client_keys_unreadable" in adapter.log.read_text()
        adapter.kill9()
