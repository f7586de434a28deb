"""What all of the adapter's ZeroMQ sockets have in common: options, CURVE, addresses, the event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import zmq

FRAME_BYTES_MAX: Final = 1024 * 1024
"""A peer that sends a longer frame is cut off."""
_BACKLOG: Final = 4096
_HANDSHAKE_MS: Final = 10_000
_KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_INTERVAL_S: Final = 15
_KEEPALIVE_PROBES: Final = 4


@dataclass(frozen=True, slots=True)
class Address:
    """Where a socket listens; port 0: any free one."""

    host: str
    port: int


def listening(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    address: Address,
    domain: bytes,
    server_key: bytes | None,
    options: dict[int, int],
) -> zmq.Socket[bytes]:
    """A socket of this kind that listens. `domain`: what the doorkeeper knows it by; `server_key`: CURVE's secret key.

    Raises OSError when the address cannot be had.
    """
    opened = context.socket(kind)
    common: dict[int, int] = {
        zmq.LINGER: 0,
        zmq.MAXMSGSIZE: FRAME_BYTES_MAX,
        zmq.BACKLOG: _BACKLOG,
        zmq.HANDSHAKE_IVL: _HANDSHAKE_MS,
        zmq.TCP_KEEPALIVE: 1,
        zmq.TCP_KEEPALIVE_IDLE: _KEEPALIVE_IDLE_S,
        zmq.TCP_KEEPALIVE_INTVL: _KEEPALIVE_INTERVAL_S,
        zmq.TCP_KEEPALIVE_CNT: _KEEPALIVE_PROBES,
    }
    for option, value in {**common, **options}.items():
        opened.setsockopt(option, value)
    opened.setsockopt(zmq.ZAP_DOMAIN, domain)
    if server_key is not None:
        opened.setsockopt(zmq.CURVE_SERVER, 1)
        opened.setsockopt(zmq.CURVE_SECRETKEY, server_key)
    try:
        opened.bind(_endpoint(opened, address))
    except (OSError, zmq.ZMQError) as error:
        opened.close()
        reason = zmq.strerror(error.errno or 0) if isinstance(error, zmq.ZMQError) else error.strerror
        raise OSError(error.errno, f"{reason}: {address.host}:{address.port}") from None
    return opened


def address_of(opened: zmq.Socket[bytes]) -> str:
    """`host:port` of a socket that listens."""
    endpoint = opened.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\x00").decode().removeprefix("tcp://")


def on_readable(loop: asyncio.AbstractEventLoop, watched: zmq.Socket[bytes], act: Callable[[], None]) -> None:
    """Calls `act` when something has happened at the socket.

    Its descriptor tells of news, not of messages: `act` must look at EVENTS, or receive until there is nothing left;
    and as any other call may have taken the news in, whoever sends must look again afterwards.
    """
    loop.add_reader(_descriptor_of(watched), act)


def has_input(looked_at: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received. Takes in what the descriptor had to tell."""
    return bool(int(looked_at.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def close(loop: asyncio.AbstractEventLoop, opened: zmq.Socket[bytes], linger_ms: int = 0) -> None:
    """Closes a socket that `on_readable` looked at; what was sent has `linger_ms` to leave."""
    if not opened.closed:
        loop.remove_reader(_descriptor_of(opened))
        opened.close(linger=linger_ms)


def _descriptor_of(opened: zmq.Socket[bytes]) -> int:
    return int(opened.getsockopt(zmq.FD))


def _endpoint(opened: zmq.Socket[bytes], address: Address) -> str:
    """libzmq binds to numbers, not to names; of a name with several, to one: of IPv4 if there is any."""
    found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    host = min((ipaddress.ip_address(each[4][0]) for each in found), key=lambda number: number.version)
    if host.version == 6:
        opened.setsockopt(zmq.IPV6, 1)
        return f"tcp://[{host}]:{address.port or '*'}"
    return f"tcp://{host}:{address.port or '*'}"
