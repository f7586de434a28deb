"""An adapter as a process: settings, TLS, health, metrics, lost leases, the end."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect as connect_websocket

from tests.support.clients import JobCentreClient, TextClient, connect, read_all
from tests.support.stack import AdapterPart, Stack, until

SESSION_TTL_MS = 1500


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Whose core these tests may freeze."""
    with Stack(QUINTET_SESSION_TTL_MS=str(SESSION_TTL_MS)) as stack:
        yield stack


@pytest.fixture
def adapters(own_stack: Stack) -> Iterator[list[AdapterPart]]:
    """Adapters that are ended after the test."""
    started: list[AdapterPart] = []
    yield started
    for adapter in started:
        adapter.kill9()


class TestSettings:
    def test_all_faults_are_reported_at_once(self, own_stack: Stack) -> None:
        adapter = own_stack.further_adapter(
            "text-queue", QUINTET_LEASE_SECONDS="0", QUINTET_DIALECT="loose", QUINTET_CONNECTIONS_MAX="many"
        )
        with pytest.raises(RuntimeError):
            adapter.start()
        log = adapter.log.read_text()
        for fault in ("QUINTET_LEASE_SECONDS: value '0'", "QUINTET_DIALECT: value 'loose'", "QUINTET_CONNECTIONS_MAX"):
            assert fault in log
        assert "Traceback" not in log

    def test_a_port_that_is_taken_ends_the_process_and_is_named(self, own_stack: Stack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            adapter = own_stack.further_adapter("job-centre")
            adapter.listening["job-centre"] = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(RuntimeError, match="listen_failed"):
                adapter.start()

    def test_namespaces_do_not_see_each_other(self, own_stack: Stack, adapters: list[AdapterPart]) -> None:
        adapters.append(own_stack.further_adapter("job-centre", QUINTET_NAMESPACE="elsewhere"))
        adapters[0].start()
        with JobCentreClient(own_stack.job_centre.address) as here, JobCentreClient(adapters[0].address) as elsewhere:
            job_id = elsewhere.put("shared name")
            assert here.get("shared name")["status"] == "no-job"
            assert here.delete(job_id) == "no-job"
            assert elsewhere.get("shared name")["id"] == job_id
            assert elsewhere.abort(job_id) == "ok"


class TestHealth:
    def test_an_adapter_waits_for_its_core_and_answers_errors_meanwhile(self, adapters: list[AdapterPart]) -> None:
        with Stack() as stack:
            stack.job_centre.kill9()
            stack.core.kill9()
            stack.job_centre.start(wait=False)
            # It is not ready, so it has no ready file; its port is the one it had.
            until(lambda: accepts(stack.job_centre.address), "the adapter to listen")
            with JobCentreClient(stack.job_centre.address) as client:
                assert client.get("q")["status"] == "error"
                assert stack.job_centre.readiness() == (503, "the core cannot be reached")
                stack.core.start()
                stack.job_centre.wait_ready()
                assert client.get("q") == {"status": "no-job"}
                assert stack.job_centre.readiness() == (200, "ready")

    def test_metrics_tell_of_connections_requests_bytes_and_latencies(
        self, own_stack: Stack, adapters: list[AdapterPart]
    ) -> None:
        adapters.append(own_stack.further_adapter("job-centre"))
        adapters[0].start()
        with JobCentreClient(adapters[0].address) as client:
            job_id = client.put("measured")
            client.ask(b"nonsense")
            client.get("none")
            client.delete(job_id)
            metrics = adapters[0].metrics()
        assert metrics["quintet_adapter_connections"] == 1
        assert metrics["quintet_adapter_connections_opened_total"] == 1
        assert metrics["quintet_adapter_session_connected"] == 1
        assert metrics["quintet_adapter_received_bytes_total"] > 100
        assert metrics["quintet_adapter_sent_bytes_total"] > 50
        for command, outcome in (("put", "ok"), ("invalid", "refused"), ("get", "empty"), ("delete", "ok")):
            label = f'{{command="{command}",outcome="{outcome}"}}'
            assert metrics[f"quintet_adapter_requests_total{label}"] == 1
        assert metrics['quintet_adapter_request_seconds_count{command="put"}'] == 1


class TestLostLeases:
    def test_close_their_holder_before_another_can_have_the_job(
        self, own_stack: Stack, adapters: list[AdapterPart]
    ) -> None:
        """The core that serves the holder freezes; another one lapses its session and gives the job away."""
        other_core = own_stack.second_core()
        other_core.start()
        adapters.append(own_stack.further_adapter("job-centre", other_core))
        adapters[0].start()
        with JobCentreClient(own_stack.job_centre.address) as holder, JobCentreClient(adapters[0].address) as other:
            idle = JobCentreClient(own_stack.job_centre.address)
            job_id = holder.put("precious")
            assert holder.get("precious")["id"] == job_id
            own_stack.core.freeze()
            try:
                other.send({"request": "get", "queues": ["precious"], "wait": True})
                assert other.read()["id"] == job_id
                holder.connection.settimeout(0)
                assert holder.connection.recv(1) == b"", "the holder was disconnected before the job was given away"
            finally:
                own_stack.core.thaw()
            until(lambda: idle.get("precious") == {"status": "no-job"}, "the adapter to have a new session")
            idle.close()
            assert other.delete(job_id) == "ok"
        other_core.kill9()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


class TestTls:
    def test_clients_of_job_centre_are_served(
        self, own_stack: Stack, adapters: list[AdapterPart], certificate: tuple[Path, Path]
    ) -> None:
        connection = self._connect("job-centre", own_stack, adapters, certificate)
        with connection, connection.makefile("rwb", buffering=0) as stream:
            stream.write(b'{"request":"put","queue":"sealed","job":{},"pri":1}\n' * 3)
            assert [stream.readline()[:15] for _ in range(3)] == [b'{"status":"ok",'] * 3

    def test_clients_of_the_text_queue_are_served(
        self, own_stack: Stack, adapters: list[AdapterPart], certificate: tuple[Path, Path]
    ) -> None:
        with self._connect("text-queue", own_stack, adapters, certificate) as connection:
            connection.sendall(b"ADD sealed 2 hi")
            assert len(connection.recv(100)) == 16
            assert connection.recv(100) == b""

    def test_clients_of_etzel_are_served_on_both_ports(
        self, own_stack: Stack, adapters: list[AdapterPart], certificate: tuple[Path, Path]
    ) -> None:
        with self._connect("etzel", own_stack, adapters, certificate) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 200 ")
        context = ssl.create_default_context(cafile=str(certificate[0]))
        plain = connect(adapters[0].address_of("etzel-lines"))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as lines:
            lines.sendall(b'{"cmd":"PUB","qname":"sealed-etzel","message":1}\n')
            assert lines.recv(100).startswith(b'{"cmd":"ok"')
        with connect_websocket(f"wss://127.0.0.1:{adapters[0].port('etzel')}/connect", ssl=context) as websocket:
            websocket.send('{"cmd":"FET","qname":"sealed-etzel"}')
            assert '"msg":1' in str(websocket.recv())

    def test_a_client_without_tls_is_turned_away_and_hurts_nobody(
        self, own_stack: Stack, adapters: list[AdapterPart], certificate: tuple[Path, Path]
    ) -> None:
        with self._connect("job-centre", own_stack, adapters, certificate) as connection:
            with connect(adapters[0].address) as plain:
                plain.sendall(b'{"request":"get","queues":[]}\n')
                assert b"no-job" not in read_what_comes(plain)
            connection.sendall(b'{"request":"get","queues":[]}\n')
            assert connection.recv(100) == b'{"status":"no-job"}\n'

    def _connect(
        self, protocol: str, stack: Stack, adapters: list[AdapterPart], certificate: tuple[Path, Path]
    ) -> ssl.SSLSocket:
        cert, key = certificate
        adapter = stack.further_adapter(protocol, QUINTET_TLS_CERT_FILE=str(cert), QUINTET_TLS_KEY_FILE=str(key))
        adapters.append(adapter)
        adapter.start()
        context = ssl.create_default_context(cafile=str(cert))
        return context.wrap_socket(connect(adapter.address), server_hostname="127.0.0.1")


def read_what_comes(connection: socket.socket) -> bytes:
    try:
        return read_all(connection)
    except ConnectionResetError:
        return b""


def accepts(address: tuple[str, int]) -> bool:
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return False
    return True


class TestTheEnd:
    def test_a_command_under_way_is_finished(self, own_stack: Stack, adapters: list[AdapterPart]) -> None:
        adapters.append(own_stack.further_adapter("text-queue"))
        adapters[0].start()
        with connect(adapters[0].address) as begun, connect(adapters[0].address) as idle:
            begun.sendall(b"ADD ending 5 hel")
            until(lambda: adapters[0].metrics()["quintet_adapter_received_bytes_total"] >= 16, "the bytes to arrive")
            signal_stop(adapters[0])
            assert read_all(idle) == b""
            until(lambda: not accepts(adapters[0].address), "the adapter to accept nobody any more")
            begun.sendall(b"lo")
            job_id = read_all(begun)
        until(lambda: not adapters[0].is_running, "the process to end")
        assert TextClient(own_stack.text_queue.address).get("ending") == (job_id, b"hello")

    def test_a_connection_that_never_finishes_does_not_keep_the_process(
        self, own_stack: Stack, adapters: list[AdapterPart]
    ) -> None:
        adapters.append(own_stack.further_adapter("text-queue", QUINTET_GRACE_MS="300"))
        adapters[0].start()
        with connect(adapters[0].address) as begun:
            begun.sendall(b"ADD ending 5 hel")
            until(lambda: adapters[0].metrics()["quintet_adapter_received_bytes_total"] >= 16, "the bytes to arrive")
            assert adapters[0].terminate() == 0


def signal_stop(adapter: AdapterPart) -> None:
    os.kill(adapter.pid, signal.SIGTERM)
