"""What `quintet up` can be told, by environment or by its options."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from quintet_kit.settings import LogFormat, LogLevel, Port, Settings

PORT_MAX = 65535
_METRICS_PORTS = 9


class UpSettings(Settings):
    """`quintet up`; every setting is also an option (`--core-port`), and children inherit the whole environment."""

    data: Path = Field(Path("data"), description="Directory that holds everything durable; made when missing.")
    redis_server: Path | None = Field(
        None, description="The redis-server (7.0 or later) or valkey-server to run; found in PATH when not given."
    )
    host: str = Field("127.0.0.1", description="Address on which the core and the adapters listen.")
    port_offset: int = Field(0, ge=0, le=60_000, description="Added to every port, to run beside something else.")
    any_port: bool = Field(False, description="Let every port be any free one; what was chosen is shown.")
    core_port: Port = Field(50051, description="The core's gRPC.")
    text_queue_port: Port = Field(8080, description="The text queue.")
    job_centre_port: Port = Field(8009, description="Job Centre.")
    taskflux_port: Port = Field(2606, description="TaskFlux.")
    zmq_kv_port: Port = Field(5555, description="The ZeroMQ key-value database: requests.")
    zmq_kv_pub_port: Port = Field(5556, description="The ZeroMQ key-value database: notifications.")
    etzel_port: Port = Field(8004, description="Etzel by WebSocket.")
    etzel_lines_port: Port = Field(8005, description="Etzel by lines.")
    metrics_port: Port = Field(9100, description="The core's metrics and health; each adapter's follow it by one.")
    taskflux_dialect: Literal["document", "csharp"] = Field("document", description="The dialect of TaskFlux.")
    namespace: str = Field("default", description="Namespace whose queues the adapters serve.")
    start_ms_max: int = Field(60_000, ge=1, description="How long the core or an adapter may take to be ready.")
    stop_ms_max: int = Field(20_000, ge=1, description="How long each may take to stop before it is killed.")
    log_level: LogLevel = Field("warning", description="Least severe log line that is shown, also of the children.")
    log_format: LogFormat = Field("auto", description="As for every process.")

    @model_validator(mode="after")
    def _ports_stay_ports(self) -> Self:
        ports = [
            getattr(self, name) for name in type(self).model_fields if name.endswith("_port") and name != "any_port"
        ]
        highest = max(*ports, self.metrics_port + _METRICS_PORTS)
        if highest + self.port_offset > PORT_MAX:
            raise ValueError(f"QUINTET_PORT_OFFSET: value {self.port_offset}, must keep every port at most {PORT_MAX}")
        return self
