"""Where ZeroMQ sockets listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import zmq
from quintet_adapters.transports.zeromq.sockets import Address, address_of, listening


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def listen(context: zmq.Context[zmq.Socket[bytes]], host: str, port: int = 0) -> str:
    return address_of(listening(context, zmq.ROUTER, Address(host, port), b"test", None, {}))


@pytest.mark.parametrize(
    ("host", "begin"), [("127.0.0.1", "127.0.0.1:"), ("localhost", "127.0.0.1:"), ("", "0.0.0.0:"), ("::1", "[::1]:")]
)
def test_a_host_may_be_a_number_or_a_name(context: zmq.Context[zmq.Socket[bytes]], host: str, begin: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("there is no IPv6 here")
    address = listen(context, host)
    assert address.startswith(begin)
    assert int(address.removeprefix(begin)) > 0


def test_a_port_that_is_taken_is_an_error_that_names_it(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"in use: 127\.0\.0\.1:{port}"):
            listen(context, "127.0.0.1", port)


def test_a_host_that_is_not_known_is_an_error_that_names_it(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with pytest.raises(OSError, match=r"no-such-host\.invalid:5"):
        listen(context, "no-such-host.invalid", 5)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
