"""Settings of an adapter process: one frozen class per protocol."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from quintet_client.credentials import Credentials
from quintet_kit.settings import Count, Milliseconds, Port, ProcessSettings

from quintet_adapters.protocols.etzel_requests import EtzelLimits
from quintet_adapters.protocols.job_centre_requests import JobCentreLimits
from quintet_adapters.protocols.taskflux_requests import TaskFluxLimits
from quintet_adapters.protocols.text_queue import TextQueueLimits
from quintet_adapters.protocols.zmq_kv import ByteOrder, StatusBytes, ZmqKvTerms
from quintet_adapters.transports.tcp import TcpLimits
from quintet_adapters.transports.zeromq.client_keys import is_secret_key
from quintet_adapters.transports.zeromq.requests import RequestLimits
from quintet_adapters.transports.zeromq.service import Curve, ServiceTerms
from quintet_adapters.transports.zeromq.sockets import Address


class AnyAdapterSettings(ProcessSettings):
    """What every adapter can be told."""

    core_target: str = Field(
        "127.0.0.1:50051", min_length=1, description="The core: `host:port` or `unix:/path/of/socket`."
    )
    core_ca_file: Path | None = Field(None, description="Authorities that sign the core's certificate: use TLS.")
    core_cert_file: Path | None = Field(None, description="This adapter's certificate, for mutual TLS with the core.")
    core_key_file: Path | None = Field(None, description="The key of that certificate.")
    core_token: SecretStr | None = Field(None, description="Bearer token for the core.")
    core_token_path: Path | None = Field(
        None, description="File with the bearer token, read anew for every connection to the core."
    )
    namespace: str = Field(
        "default", min_length=1, max_length=255, description="Namespace whose queues or tables are served."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    connections_max: Count = Field(10_000, description="Connections at once; a further one is closed at once.")
    grace_ms: Milliseconds = Field(10_000, description="For what is under way when the process is told to stop.")
    close_ms: Milliseconds = Field(10_000, description="For a client to take its last answers.")

    @model_validator(mode="after")
    def _core_files_belong_together(self) -> Self:
        if (self.core_cert_file is None) != (self.core_key_file is None):
            raise ValueError("QUINTET_CORE_CERT_FILE and QUINTET_CORE_KEY_FILE must be set together")
        return self

    def credentials(self) -> Credentials:
        """For the core. Raises OSError when a file cannot be read."""
        return Credentials(
            root_certificates=_read(self.core_ca_file),
            certificate_chain=_read(self.core_cert_file),
            private_key=_read(self.core_key_file),
            token=self.core_token.get_secret_value() if self.core_token else "",
            token_path=self.core_token_path,
        )

    def tls(self) -> ssl.SSLContext | None:
        """For clients that use TLS. Raises OSError when a file cannot be used."""
        return None


class AdapterSettings(AnyAdapterSettings):
    """What the adapters of queues can be told besides."""

    tls_cert_file: Path | None = Field(None, description="Certificate for clients: listen with TLS.")
    tls_key_file: Path | None = Field(None, description="The key of that certificate.")
    tls_client_ca_file: Path | None = Field(None, description="Admit only clients with certificates that these signed.")
    linger_ms: Milliseconds = Field(
        2_000, description="For dropping what a client still sends after the last answer of its connection."
    )
    linger_bytes_max: Count = Field(16 * 1024 * 1024, description="Bytes dropped so, at most.")
    queue_name_bytes_max: int = Field(4096, ge=1, le=4096, description="Longest queue name, in bytes of UTF-8.")

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("QUINTET_TLS_CERT_FILE and QUINTET_TLS_KEY_FILE must be set together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("QUINTET_TLS_CLIENT_CA_FILE must be set only with QUINTET_TLS_CERT_FILE")
        return self

    def tls(self) -> ssl.SSLContext | None:
        """For clients. Raises OSError when a file cannot be used."""
        if self.tls_cert_file is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        if self.tls_client_ca_file is not None:
            context.load_verify_locations(self.tls_client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def tcp_limits(self) -> TcpLimits:
        """How connections end."""
        return TcpLimits(linger_ms=self.linger_ms, linger_bytes_max=self.linger_bytes_max, close_ms=self.close_ms)


class TextQueueSettings(AdapterSettings):
    """The text queue (ADD, GET, ACK, IN)."""

    port: Port = Field(8080, description="Port to listen on.")
    metrics_port: Port = Field(9101, description="Port of /metrics, /healthz and /readyz.")
    lease_seconds: int = Field(300, ge=1, le=31_536_000, description="How long a job that was given out stays away.")
    dialect: Literal["strict", "course"] = Field(
        "strict", description="`course`: ACK answers YES or NO, errors are the bare word ERROR, SAVE exists."
    )
    quiet_ms: int = Field(20, ge=1, description="Silence that ends a GET, ACK or IN that has no line end.")
    read_timeout_ms: int = Field(5_000, ge=1, description="From the last byte to ERROR, the command being incomplete.")
    command_timeout_ms: int = Field(60_000, ge=1, description="From the connection to ERROR, likewise.")
    data_bytes_max: int = Field(1_000_000, ge=0, le=64 * 1024 * 1024, description="Largest data of an ADD.")

    def limits(self) -> TextQueueLimits:
        """What conversations keep to."""
        return TextQueueLimits(
            namespace=self.namespace,
            lease_ms=self.lease_seconds * 1000,
            course=self.dialect == "course",
            quiet_ms=self.quiet_ms,
            read_timeout_ms=self.read_timeout_ms,
            lifetime_ms=self.command_timeout_ms,
            data_bytes_max=self.data_bytes_max,
            queue_name_bytes_max=self.queue_name_bytes_max,
        )


class JobCentreSettings(AdapterSettings):
    """Job Centre (newline JSON)."""

    port: Port = Field(8009, description="Port to listen on.")
    metrics_port: Port = Field(9102, description="Port of /metrics, /healthz and /readyz.")
    line_bytes_max: int = Field(8 * 1024 * 1024, ge=64, le=63 * 1024 * 1024, description="Longest line of a request.")
    queues_max: int = Field(1000, ge=1, description="Different queues in one get; the core has a limit of its own.")
    requests_max: Count = Field(256, description="Requests of one connection under way at once.")
    bytes_max: Count = Field(16 * 1024 * 1024, description="Bytes of jobs of one connection under way at once.")

    def limits(self) -> JobCentreLimits:
        """What conversations keep to."""
        return JobCentreLimits(
            namespace=self.namespace,
            line_bytes_max=self.line_bytes_max,
            queue_name_bytes_max=self.queue_name_bytes_max,
            queues_max=self.queues_max,
            requests_max=self.requests_max,
            bytes_max=self.bytes_max,
        )


class EtzelSettings(AdapterSettings):
    """Etzel (JSON by WebSocket, or by lines)."""

    port: Port = Field(8004, description="Port of the WebSocket.")
    lines_port: Port = Field(8005, description="Port of the same requests as lines.")
    metrics_port: Port = Field(9105, description="Port of /metrics, /healthz and /readyz.")
    websocket_path: str = Field(
        "/connect",
        pattern="^/([!-.0->@-~]+(/[!-.0->@-~]+)*)?$",
        description="Path of the WebSocket; clients may add a slash.",
    )
    handshake_ms: int = Field(10_000, ge=1, description="From a connection to the end of its opening handshake.")
    frame_bytes_max: int = Field(
        8 * 1024 * 1024, ge=126, le=63 * 1024 * 1024, description="Longest line; largest WebSocket message, inflated."
    )
    subscriptions_max: Count = Field(1000, description="Queues one connection may subscribe to.")
    requests_max: Count = Field(256, description="Requests of one connection under way at once.")
    bytes_max: Count = Field(16 * 1024 * 1024, description="Bytes of messages of one connection under way at once.")

    def tcp_limits(self) -> TcpLimits:
        """As everywhere, but that a client need not read: there are publishers that never do."""
        return replace(super().tcp_limits(), unacknowledged_ms=0)

    def limits(self) -> EtzelLimits:
        """What conversations keep to."""
        return EtzelLimits(
            namespace=self.namespace,
            frame_bytes_max=self.frame_bytes_max,
            queue_name_bytes_max=self.queue_name_bytes_max,
            requests_max=self.requests_max,
            bytes_max=self.bytes_max,
            subscriptions_max=self.subscriptions_max,
            path=self.websocket_path,
            handshake_ms=self.handshake_ms,
        )


class TaskFluxSettings(AdapterSettings):
    """TaskFlux (binary packets)."""

    port: Port = Field(2606, description="Port to listen on.")
    metrics_port: Port = Field(9103, description="Port of /metrics, /healthz and /readyz.")
    dialect: Literal["document", "csharp"] = Field(
        "document", description="`csharp`: as the project's own C# client expects it, where its pages say otherwise."
    )
    idle_timeout_ms: int = Field(
        60_000, ge=1, description="From the last whole packet or answer to the end; a Dequeue that waits is not idle."
    )
    packet_bytes_max: int = Field(
        16 * 1024 * 1024, ge=64, le=63 * 1024 * 1024, description="Largest length that a packet may announce."
    )
    advertised_address: str = Field(
        "", max_length=1024, description="Address that ClusterMetadata tells; empty: the one that is listened on."
    )

    def limits(self) -> TaskFluxLimits:
        """What conversations keep to."""
        return TaskFluxLimits(
            namespace=self.namespace,
            csharp=self.dialect == "csharp",
            idle_ms=self.idle_timeout_ms,
            packet_bytes_max=self.packet_bytes_max,
        )


class ZmqKvSettings(AnyAdapterSettings):
    """The ZeroMQ key-value database (ROUTER and PUB)."""

    port: Port = Field(5555, description="Port of requests (REP; a ROUTER, so that DEALER clients pipeline).")
    pub_port: Port = Field(5556, description="Port of notifications (PUB).")
    metrics_port: Port = Field(9104, description="Port of /metrics, /healthz and /readyz.")
    status_bytes: StatusBytes = Field("ok=0,error=1", description="First frame of a reply; `text`: OK and ERROR.")
    ttl_byte_order: ByteOrder = Field("big", description="Byte order of a time to live.")
    curve_secret_key: SecretStr | None = Field(
        None, description="The service's secret key in Z85: both ports require CURVE."
    )
    curve_client_keys: Path | None = Field(
        None,
        description="Directory of public keys, one a file (Z85, or a certificate); only their holders get in."
        " Files may come and go while the adapter runs.",
    )
    pub_queued_max: int = Field(
        100_000,
        ge=1,
        le=100_000_000,
        description="Notifications kept for a slow subscriber (SNDHWM); it misses further ones.",
    )
    unread_bytes_max: Count = Field(
        256 * 1024 * 1024, description="Replies kept for clients that do not read; beyond it no request is read."
    )
    unread_ms: int = Field(
        10_000, ge=1, description="Beyond it, who has taken nothing for so long loses the replies kept for him."
    )

    @model_validator(mode="after")
    def _curve_settings_belong_together(self) -> Self:
        if (self.curve_secret_key is None) != (self.curve_client_keys is None):
            raise ValueError("QUINTET_CURVE_SECRET_KEY and QUINTET_CURVE_CLIENT_KEYS must be set together")
        if self.curve_secret_key is not None and not is_secret_key(self.curve_secret_key.get_secret_value()):
            raise ValueError("QUINTET_CURVE_SECRET_KEY: value (secret), must be 40 characters of Z85")
        return self

    def terms(self) -> ServiceTerms:
        """How the service is to be set up."""
        return ServiceTerms(
            requests=Address(self.host, self.port),
            notifications=Address(self.host, self.pub_port),
            protocol=ZmqKvTerms(self.namespace, self.status_bytes, self.ttl_byte_order),
            limits=RequestLimits(self.unread_bytes_max, self.unread_ms, self.connections_max),
            curve=self._curve(),
            notifications_queued_max=self.pub_queued_max,
            close_ms=self.close_ms,
        )

    def _curve(self) -> Curve | None:
        if self.curve_secret_key is None or self.curve_client_keys is None:
            return None
        return Curve(self.curve_secret_key.get_secret_value().encode(), self.curve_client_keys)


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
