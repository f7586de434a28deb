"""How a client proves who it is, and how it opens its channel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Largest gRPC message sent or taken."""

# The session reconnects by its own backoff and wants a verdict at once; a channel's own backoff (up to two minutes,
# shared between channels of one process unless told otherwise) would only hide a core that is back.
_CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True, slots=True)
class Credentials:
    """TLS and token. PEM bytes throughout.

    With `root_certificates` or `tls` the channel is TLS (roots of the system when None), with `certificate_chain` and
    `private_key` mutual TLS. The bearer token is `token`, or the content of `token_path`, which is read anew
    for every connection and call, so that a rotated secret is taken up.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    tls: bool = False
    token: str = ""
    token_path: Path | None = None
    server_name: str = ""
    """Name expected in the server's certificate, when it is not the target's."""

    @property
    def uses_tls(self) -> bool:
        """Whether the channel is encrypted."""
        return self.tls or self.root_certificates is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Call metadata that carries the token. Raises OSError when the token's file cannot be read."""
        token = self.token_path.read_text().strip() if self.token_path is not None else self.token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def __repr__(self) -> str:
        return f"Credentials(tls={self.uses_tls}, token={'***' if self.token or self.token_path else ''!r})"


ANONYMOUS = Credentials()
"""No TLS, no token: a unix socket, or a trusted network."""


def open_channel(target: str, credentials: Credentials) -> grpc.aio.Channel:
    """A channel to "unix:/path" or "host:port". Nothing is connected yet."""
    options = _channel_options(credentials)
    if not credentials.uses_tls:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, _channel_credentials(credentials), options=options)


def open_blocking_channel(target: str, credentials: Credentials) -> grpc.Channel:
    """The same for programs without an event loop."""
    options = _channel_options(credentials)
    if not credentials.uses_tls:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, _channel_credentials(credentials), options=options)


def _channel_options(credentials: Credentials) -> list[tuple[str, str | int]]:
    options: list[tuple[str, str | int]] = [*_CHANNEL_OPTIONS]
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    return options


def _channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=credentials.root_certificates,
        private_key=credentials.private_key,
        certificate_chain=credentials.certificate_chain,
    )
